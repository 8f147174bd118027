import { expect, test } from 'vitest';
import type { Message } from '@paceline/protocol';
import { FrameType } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { Member } from './member.js';

const BYTES = 16;

/** A member of one server, in round 0, whose replica is computed: what it sends from now on. */
function setUp() {
  const sent: string[] = [];
  const messages: Message[] = [];
  const evaluated: number[] = [];
  const clock = { now: 0 };
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    sendMessage: (message: Message) => void (sent.push(message.type), messages.push(message)),
    sendData: (_: unknown, __: unknown, onFlushed?: () => void) => {
      sent.push('gradient');
      onFlushed?.();
    },
  } as unknown as Connection;
  const memory = [new Uint8Array(BYTES), new Uint8Array(BYTES)];
  const member = new Member({
    id: 'w',
    attempt: 1,
    servers: 1,
    totalRounds: 3,
    now: () => clock.now,
    chunks: [{ index: 0, offset: 0, length: BYTES / 4, server: 0 }],
    store: { bytes: (generation) => memory[generation & 1]! },
    compute: { step: () => undefined, evaluate: (generation) => void evaluated.push(generation), committed: () => undefined },
    onEnd: () => undefined,
  });
  const view = (number: number) =>
    member.message(0, { type: 'view', view: number, term: 1, round: 0, members: [{ id: 'w', seat: 0, incarnation: 0, replicas: [0, 1] }] });
  const node = (replica: number) => {
    member.contribution(0, replica, 4, [1, 1]);
    member.node({ round: 0, lo: replica, hi: replica + 1, bytes: new Uint8Array(BYTES), release: () => undefined });
  };
  member.attach(0, connection);
  member.message(0, { type: 'welcome', id: 'w', server: 0, round: 0, view: 1, term: 1, applied: '', phase: 'training' });
  const parameters = (round: number): void => {
    const header = { type: FrameType.parameters, codec: 0, attempt: 1, term: 1, view: 1, round, chunk: 0, length: BYTES };
    member.payloadFor(header as never);
    member.data(header as never);
  };
  parameters(0);
  view(1);
  node(0);
  sent.length = 0;
  const take = (): string[] => sent.splice(0);
  return { member, clock, messages, evaluated, parameters, take, view, node, tellAgain: () => member.message(0, { type: 'tell-again' }) };
}

test('a round that stands still has every gradient sent once more: with the new view, and not again with TELL-AGAIN', () => {
  const { take, view, tellAgain } = setUp();
  view(2);
  tellAgain();
  expect(take()).toEqual(['gradient', 'contribution']);
});

test('where the new view got lost, or a gradient came after it, TELL-AGAIN has them sent', () => {
  const { take, view, node, tellAgain } = setUp();
  tellAgain();
  expect(take()).toEqual(['contribution', 'gradient']);
  view(2);
  node(1);
  take();
  tellAgain();
  expect(take()).toEqual(['contribution', 'contribution', 'gradient', 'gradient']);
});

test('a generation that is to be measured before its COMMIT, and does not come by itself, is pulled', () => {
  const { member, clock, messages, evaluated, parameters } = setUp();
  clock.now = 5_000;
  member.tick();
  member.message(0, { type: 'evaluate', generation: 1, blocks: [{ from: 0, to: 4 }] });
  member.tick();
  expect([messages.filter(({ type }) => type === 'pull'), evaluated]).toEqual([[{ type: 'pull', generation: 1, chunk: 0 }], []]);
  parameters(1);
  expect(evaluated).toEqual([1]);
  clock.now = 10_000;
  member.tick();
  expect(messages.filter(({ type }) => type === 'pull')).toHaveLength(1);
});
