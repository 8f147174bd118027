/** The members that go on when others are lost: never two views side by side, and all agree on which operation is done. */
import { describe, expect, it } from 'vitest';
import { encoded, nextIn, nextView, NEVER, reportIn, type Report, type View } from './views.js';

const FIRST: View = { number: 0, members: [0, 1, 2, 3, 4] };

/** Members that are all connected to each other. */
function reports(members: readonly number[], of: Partial<Record<number, Partial<Report>>> = {}, common: Partial<Report> = {}) {
  return new Map(
    members.map((member): [number, Report] => [
      member,
      {
        confirmed: FIRST,
        accepted: [],
        completed: 7,
        here: members.filter((other) => other !== member),
        dead: [],
        ...common,
        ...of[member],
      },
    ]),
  );
}

describe('the next view', () => {
  it('has those that are left, and names who has completed most', () => {
    const next = nextView(reports([1, 2, 4], { 2: { completed: 8 }, 4: { completed: 8 } }));
    expect(next).toEqual({ number: 1, members: [1, 2, 4], completed: 8, behind: [1], source: 2 });
  });

  it('needs more than half, or half with the lowest', () => {
    const four = { confirmed: { number: 3, members: [0, 1, 2, 3] } };
    expect(nextView(reports([3, 4]))).toContain('2 of 5 processes');
    expect(nextView(reports([0, 3], {}, four))).toMatchObject({ number: 4, members: [0, 3] });
    expect(nextView(reports([1, 2], {}, four))).toContain('half without the first');
  });

  it('is that of those that are left when all others have ended', () => {
    expect(nextView(reports([3, 4], { 3: { dead: [0, 1] }, 4: { dead: [2] } }))).toMatchObject({ members: [3, 4] });
    const two = { confirmed: { number: 0, members: [0, 1] } };
    expect(nextView(reports([1], { 1: { dead: [0] } }, two))).toMatchObject({ members: [1] });
    expect(nextView(reports([1], {}, two))).toContain('1 of 2');
    expect(nextView(reports([2, 3, 4], { 2: { dead: [3] } }))).toMatchObject({ members: [2, 3, 4] });
  });

  it('counts who has ended as long as somebody else may live, with whom it may have gone on', () => {
    expect(nextView(reports([3, 4], { 3: { dead: [0, 1] } }))).toContain('2 of 5 processes');
    expect(nextView(reports([0], { 0: { dead: [2] } }, { confirmed: { number: 0, members: [0, 1, 2] } }))).toContain('1 of 3');
    // A member that is here and is left out lives.
    const cut = { 1: { here: [2] }, 2: { here: [1], dead: [3] } };
    expect(nextView(reports([0, 1, 2], { ...cut, 0: { here: [] } }, { confirmed: { number: 0, members: [0, 1, 2, 3] } }))).toContain(
      '1 of 4',
    );
  });

  it('has a quorum of each view that somebody has accepted since the last that is confirmed', () => {
    const accepted = [{ number: 1, members: [0, 1, 2] }];
    expect(nextView(reports([2, 3, 4], { 2: { accepted } }))).toContain('1 of 3');
    expect(nextView(reports([1, 2, 3], { 2: { accepted } }))).toMatchObject({ number: 2, members: [1, 2, 3] });
    const confirmed = { number: 1, members: [0, 1, 2] };
    // Two of the three that one of them has confirmed: they go on, without the one that is no member of it.
    expect(nextView(reports([0, 1, 3], { 0: { confirmed }, 1: { accepted } }))).toMatchObject({ number: 2, members: [0, 1] });
  });

  it('leaves out who does not reach all', () => {
    const cut = { 0: { here: [1, 2] }, 3: { here: [1, 2] } };
    expect(nextView(reports([0, 1, 2, 3], cut))).toMatchObject({ members: [0, 1, 2] });
  });

  const goesOn = (members: readonly number[], common: Partial<Report>): boolean =>
    members.length > 0 && typeof nextView(reports(members, {}, common)) !== 'string';
  const inMask = (mask: number): number[] => FIRST.members.filter((member) => (mask >> member) & 1);

  it('never lets two parts of a cut network go on, whatever the cut and whoever has ended', () => {
    for (let cut = 0; cut < 32; cut++)
      for (let ended = 0; ended < 31; ended++) {
        const dead = inMask(ended);
        const parts = [inMask(cut & ~ended), inMask(~cut & ~ended)];
        const expected = dead.length === 0 || parts.some((part) => part.length === 0) ? [1] : [0, 1];
        expect(expected, JSON.stringify({ parts, dead })).toContain(parts.filter((part) => goesOn(part, { dead })).length);
      }
  });

  it('nor where one part has gone on, and some of it have ended before the network is whole', () => {
    for (let cut = 0; cut < 32; cut++)
      for (let ended = 0; ended < 31; ended++) {
        const [part, dead] = [inMask(cut), inMask(ended)];
        if (!goesOn(part, {})) continue;
        const [one, other] = [inMask(cut & ~ended), inMask(~cut & ~ended)];
        const both = goesOn(one, { dead, confirmed: { number: 1, members: part } }) && goesOn(other, { dead });
        expect(both, JSON.stringify({ part, one, other, dead })).toBe(false);
      }
  });
});

it('what a member says of its view is checked', () => {
  const text = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');
  const [report] = [...reports([1, 2]).values()];
  expect(reportIn(text(report))).toEqual(report);
  for (const wrong of [null, {}, { ...report, completed: -1 }, { ...report, here: ['1'] }, { ...report, accepted: [{}] }])
    expect(() => reportIn(text(wrong))).toThrow('BAD_MESSAGE');
  expect(nextIn(text({ none: 'too few' }))).toBe('too few');
  expect(() => nextIn(text({ number: 1, members: [0] }))).toThrow('BAD_MESSAGE');
  expect(() => nextIn('e30')).toThrow('BAD_MESSAGE');
});

describe('a process that comes for the place of a lost one', () => {
  const THREE: View = { number: 4, members: [0, 1] };
  const comes = { isNew: true, since: NEVER, confirmed: { number: 0, members: [] }, completed: 33 };
  const among = (of: Parameters<typeof reports>[1], admits: readonly number[] = [2]) =>
    reports([0, 1, 2], { 2: comes, ...of }, { confirmed: THREE, admits });

  it('is in the next view, with how much it knows, and decides nothing', () => {
    const next = nextView(among({}));
    const expected = { number: 5, members: [0, 1, 2], completed: 7, behind: [], source: 0, entrant: { member: 2, known: 33 } };
    expect(next).toEqual(expected);
    expect(nextIn(encoded(next as never))).toEqual(expected);
  });

  it('is in none if somebody does not let it in, or is not connected to it', () => {
    expect(nextView(among({ 1: { confirmed: THREE, admits: [] } }))).toMatchObject({ members: [0, 1] });
    expect(nextView(among({ 1: { confirmed: THREE, admits: [2], here: [0] } }))).toMatchObject({ members: [0, 1] });
    expect(
      nextView(reports([0, 1, 2], { 0: { ...comes, here: [2] } }, { confirmed: { number: 4, members: [1, 2] }, admits: [0] })),
    ).toMatchObject({ members: [1, 2] });
  });

  it('comes alone: the others wait for the next view', () => {
    expect(nextView(reports([0, 1, 2, 3], { 2: comes, 3: comes }, { confirmed: THREE, admits: [2, 3] }))).toMatchObject({
      members: [0, 1, 2],
    });
  });

  it('is no part of the quorum of a view that was before it, where it counts as one that has ended', () => {
    const before: View = { number: 4, members: [0, 1, 2] };
    expect(nextView(reports([1, 2], { 2: comes }, { confirmed: before }))).toContain('1 of 3 processes');
    // Of two, the first one has come again: nobody else can be in another view.
    expect(nextView(reports([0, 1], { 0: comes }, { confirmed: { number: 4, members: [0, 1] }, admits: [0] }))).toMatchObject({
      members: [0, 1],
      source: 1,
    });
  });

  it('decides with the others about a view that it has accepted, and is not in the next one before it has the state', () => {
    const view: View = { number: 5, members: [0, 1, 2, 3] };
    const accepted = { ...comes, since: 5, accepted: [view] };
    const all = reports([0, 1, 2], { 2: accepted }, { confirmed: { number: 4, members: [0, 1, 3] }, accepted: [view] });
    expect(nextView(all)).toMatchObject({ number: 6, members: [0, 1] });
    expect(nextView(reports([1, 2], { 2: { ...accepted, confirmed: view } }, { confirmed: view }))).toContain('2 of 4 processes');
  });

  it('goes on with nobody that has the state: not at all', () => {
    expect(nextView(reports([2], { 2: { ...comes, dead: [0, 1] } }))).toContain('nobody is left that has the state');
    const view: View = { number: 5, members: [0, 1, 2] };
    expect(nextView(reports([2], { 2: { ...comes, since: 5, confirmed: view, dead: [0, 1] } }))).toContain(
      'nobody is left that has the state',
    );
  });

  it('has decided as a member once it has the state', () => {
    const view: View = { number: 5, members: [0, 1, 2] };
    const old = { since: 5, confirmed: view };
    expect(nextView(reports([1, 2], { 2: old }, { confirmed: view }))).toMatchObject({ members: [1, 2] });
    expect(reportIn(encoded({ ...among({}).get(2)! }))).toMatchObject({ since: NEVER, isNew: true });
  });
});
