import { expect, test } from 'vitest';
import { FrameType, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import type { WorkItem } from './done-set.js';
import { AsyncMember } from './async-member.js';
import { chunksOf } from '../transfer/chunks.js';

const welcome = (server: number, term: number): MessageOf<'welcome'> => ({
  type: 'welcome',
  id: 'w',
  server,
  round: 0,
  view: 1,
  term,
  applied: '',
  window: 0,
  base: 0,
  phase: 'SERVING',
});
/** @param n of the fetch that it answers */
const parameters = (chunk: number, term: number, n: number): FrameHeader => ({
  type: FrameType.parameters,
  codec: 0,
  flags: 0,
  attempt: 1,
  term,
  view: n,
  round: 0,
  nodeLo: 0,
  nodeHi: 1,
  chunk,
  length: 4,
  payloadChecksum: 0,
});

/** A member of a run with two servers of one chunk each, which has been given its first work item. */
function holding() {
  const sent: { server: number; type: string }[] = [];
  /** The last fetch from each server. */
  const fetches = [0, 0];
  const computes: WorkItem[] = [];
  let released = 0;
  const member = new AsyncMember({
    id: 'w',
    attempt: 1,
    servers: 2,
    store: new Uint8Array(8),
    chunks: [0, 1].map((index) => ({ index, offset: index, length: 1, server: index })),
    compute: { item: (item) => void computes.push(item), evaluate: () => undefined },
    onEnd: () => undefined,
  });
  for (const server of [0, 1]) {
    const connection = {
      isOpen: true,
      sendMessage: (message: Message) => {
        if (message.type === 'fetch') fetches[server] = message.n;
        sent.push({ server, type: message.type });
      },
      sendData: (_: unknown, _bytes: Uint8Array, done: () => void) => {
        sent.push({ server, type: 'gradient' });
        done();
      },
    } as unknown as Connection;
    member.attach(server, connection);
    member.message(server, welcome(server, 1));
  }
  member.message(0, { type: 'items', items: [{ round: 0, replica: 0 }], waitsFor: null });
  const fetched = (term: number): void => {
    for (const chunk of [0, 1]) {
      member.payloadFor(parameters(chunk, term, fetches[chunk]!));
      member.data(parameters(chunk, term, fetches[chunk]!));
    }
  };
  const computed = (): void => {
    member.contribution(0, 0, 1, [1]);
    member.node({ round: 0, lo: 0, hi: 1, chunk: chunksOf(new Uint8Array(8)), release: () => void released++ });
  };
  return { member, sent, fetches, computes, fetched, computed, released: () => released };
}

test('a shard was taken over: the gradient is let go, and its item computed from parameters that are fetched anew', () => {
  const { member, sent, computes, fetched, computed, released } = holding();
  fetched(1);
  computed();
  expect(sent.filter(({ type }) => type === 'gradient')).toHaveLength(2);
  sent.length = 0;
  member.message(1, welcome(1, 2));
  expect(released()).toBe(1);
  expect(sent.filter(({ type }) => type !== 'contribution')).toEqual([
    { server: 0, type: 'fetch' },
    { server: 1, type: 'fetch' },
  ]);
  // What it fetches is for its coordinator, whose term this is not.
  expect(member.numbers().term).toBe(0);
  fetched(2);
  expect(computes).toHaveLength(2);
  computed();
  expect(sent.filter(({ type }) => type === 'gradient')).toHaveLength(2);
});

test('a shard is taken over while the item is computed: what comes of it is let go', () => {
  const { member, sent, computes, fetched, computed, released } = holding();
  fetched(1);
  member.message(1, welcome(1, 2));
  computed();
  expect([released(), sent.filter(({ type }) => type === 'gradient')]).toEqual([1, []]);
  fetched(2);
  expect(computes).toHaveLength(2);
});

test('what a former primary sends is refused', () => {
  const { member } = holding();
  member.message(1, welcome(1, 2));
  expect(() => member.message(1, welcome(1, 1))).toThrow(/speaks in term 1, its shard is in term 2/u);
  expect(() => member.payloadFor(parameters(1, 1, 1))).toThrow(/STALE_TERM|speaks in term 1/u);
  expect(() => member.payloadFor(parameters(0, 1, 1))).not.toThrow();
});

test('a chunk of an answer to an earlier fetch is not put together with those of a later one', () => {
  const { member, fetches, computes, fetched } = holding();
  const first = [...fetches];
  const take = (chunk: number, n: number): void => {
    member.payloadFor(parameters(chunk, 1, n));
    member.data(parameters(chunk, 1, n));
  };
  take(0, first[0]!);
  member.payloadFor(parameters(1, 1, first[1]!));
  member.message(0, { type: 'tell-again' });
  // The payload was half-way when it was asked for again.
  member.data(parameters(1, 1, first[1]!));
  take(0, first[0]!);
  expect(computes).toEqual([]);
  fetched(1);
  expect(computes).toHaveLength(1);
});
