/** Which losses end a training that others go on with: those with which weights would be lost, or would be taken for the outcome of an earlier step. */
import { describe, expect, it } from 'vitest';
import type { NextView } from '@paceline/collectives';
import { MemberError } from '../errors.js';
import { MembersChanged } from './changed.js';
import type { GroupThread } from './group-link.js';
import { AgreedVersion, type Pending } from '../threads/agreed-version.js';
import { ViewChanges, type LaidOut } from './view-changes.js';

interface Case {
  /** Index of this process in a cluster of three. */
  readonly index?: number;
  readonly view: Partial<NextView>;
  readonly pending: Pending | undefined;
}

/** An operation in which members are lost, and which ends when it is done again. */
function changed({ index = 1, view, pending }: Case, isOpening = false) {
  const next: NextView = { number: 1, members: [1, 2], completed: 7, behind: [], source: 1, ...view };
  const group = {
    index,
    first: 0,
    lostMembers: [0, 1, 2].filter((member) => !next.members.includes(member)).map((member) => ({ type: 'worker', index: member, view: 1 })),
    adopt: () => next,
    settle: () => (next.behind.includes(index) ? [] : undefined),
  } as unknown as GroupThread;
  const pool = {
    fail: (error: Error): never => {
      throw error;
    },
  };
  const said: string[] = [];
  const model: LaidOut = {
    model: 0,
    versions: { pending: (isDone) => (isDone ? undefined : pending) },
    layOut: () => said.push('laid out'),
    commit: () => said.push('holds'),
  };
  const views = new ViewChanges(pool, group);
  let attempts = 0;
  const operation = (): void => {
    if (attempts++ === 0) throw new MembersChanged('a member was lost');
    said.push('again');
  };
  if (isOpening) views.opened(() => (operation(), model));
  else {
    views.opened(() => model);
    views.done(model, operation, () => void said.push('done'));
  }
  return said;
}

describe('where the first process is lost', () => {
  it.each(['begins', 'takes over'] as const)('all end while weights of it are not with all (%s)', (pending) => {
    expect(() => changed({ view: {}, pending })).toThrow('worker 0 was lost and had not given the weights of a model to all');
    expect(() => changed({ view: {}, pending })).toThrow(MemberError);
    expect(changed({ view: { members: [0, 1], source: 0 }, pending })).toEqual(['laid out', 'holds', 'again']);
  });

  it('what is frozen is no take-over', () => {
    const versions = new AgreedVersion();
    versions.during('freezes', () => expect([versions.pending(false), versions.pending(true)]).toEqual(['begins', 'begins']));
    versions.during('takes over', () => expect([versions.pending(false), versions.pending(true)]).toEqual(['begins', undefined]));
    versions.agree();
    expect(versions.pending(false)).toBeUndefined();
    versions.touch();
    versions.during('takes over', () => expect([versions.pending(false), versions.pending(true)]).toEqual(['takes over', undefined]));
    expect(versions.pending(false)).toBe('set');
  });

  it('all end while a model is opened', () => {
    expect(() => changed({ view: {}, pending: undefined }, true)).toThrow('had not given the weights of a model to all');
    expect(changed({ view: { members: [0, 1], source: 0 }, pending: undefined }, true)).toEqual(['again']);
  });

  it('those that had not got its weights get them from one that had', () => {
    expect(changed({ index: 2, view: { behind: [2] }, pending: 'begins' })).toEqual(['laid out', 'holds', 'done']);
    expect(changed({ view: { behind: [2] }, pending: undefined })).toEqual(['laid out', 'holds', 'again']);
  });

  it('the others go on with weights that each of them has set since', () => {
    expect(changed({ view: {}, pending: 'set' })).toEqual(['laid out', 'holds', 'again']);
  });
});

it('weights that were set after a step are not handed out as those of the step', () => {
  const view = { behind: [2] };
  expect(() => changed({ view, pending: 'set' })).toThrow('weights were set since: the outcome of the step is nowhere any more');
  expect(changed({ view: { behind: [1], source: 2 }, pending: 'set' })).toEqual(['laid out', 'holds', 'done']);
});
