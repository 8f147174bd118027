import { expect, test } from 'vitest';
import type { Region } from '../attempt/regions.js';
import { bitsOf } from '../transfer/bitmap.js';
import { headerOf, shardOf, type Peer } from './shard.fixture.js';

const member = (id: string, replicas: number[]) => ({ id, seat: replicas[0]!, incarnation: 0, replicas });
const [a, b] = [member('a', [0]), member('b', [1])];

/** Chunks that it is asked for, message by message. */
const askedFor = ({ heard }: Peer, chunks: number): number[][] =>
  heard.flatMap((message) => {
    if (message.type !== 'dropped') return [];
    const isSet = bitsOf(message.chunks);
    return [Array.from({ length: chunks }, (_, i) => i).filter((i) => isSet(i))];
  });

test('what came of a worker before a view named it is asked for once, as far as it is lacking, and nobody else is asked for anything', () => {
  const { shard, peer, arena } = shardOf(3, 2);
  shard.onView(1, [a]);
  const [first, second] = [peer('a'), peer('b')];
  first.push({ chunk: 0, replica: 0 });
  for (const chunk of [0, 2]) second.push({ chunk, replica: 1 });
  // One that is ahead of the view is held until it is seen that it does not name the sender.
  second.push({ chunk: 1, replica: 1, view: 2 });
  shard.onView(2, [a]);
  expect([askedFor(first, 3), askedFor(second, 3)]).toEqual([[], []]);
  shard.onView(3, [a, b]);
  shard.onView(4, [a, b]);
  expect([askedFor(first, 3), askedFor(second, 3)]).toEqual([[], [[0, 1, 2]]]);
  for (const chunk of [0, 1, 2]) second.push({ chunk, replica: 1, view: 4 });
  for (const chunk of [1, 2]) first.push({ chunk, replica: 0, view: 4 });
  expect(shard.table.state).toBe('REDUCED');
  shard.end();
  expect(arena.bytesInUse).toBe(0);
});

test('what was dropped of a round is not asked for in the next one', () => {
  const { shard, peer } = shardOf(1, 2);
  shard.onView(1, [a]);
  const [first, second] = [peer('a'), peer('b')];
  second.push({ chunk: 0, replica: 1 });
  for (const replica of [0, 1]) first.push({ chunk: 0, replica });
  shard.onCommit({ round: 0, view: 2, term: 1, members: [a, b] });
  expect(askedFor(second, 1)).toEqual([]);
});

test('a chunk beyond the window is refused, and members hear of a new base as chunks become complete', () => {
  const { shard, peer } = shardOf(4, 1, 1);
  shard.onView(1, [a]);
  const member = peer('a');
  expect(member.heard[0]).toMatchObject({ type: 'welcome', window: 1, base: 0 });
  expect(() => member.push({ chunk: 1, replica: 0 })).toThrow('BAD_ROUND');
  expect(() => member.push({ chunk: 1, replica: 0, round: 1 })).toThrow('BAD_ROUND');
  for (const chunk of [0, 1, 2, 3]) member.push({ chunk, replica: 0 });
  const bases = member.heard.flatMap((message) => (message.type === 'credit' ? [[message.round, message.base]] : []));
  expect(bases).toEqual([
    [0, 1],
    [0, 2],
    [0, 3],
  ]);
  // The first window of the next round is taken already.
  member.push({ chunk: 0, replica: 0, round: 1 });
  shard.onCommit({ round: 0, view: 1, term: 1 });
  expect(member.heard.at(-1)).toEqual({ type: 'credit', round: 1, base: 1 });
  expect(peer('b').heard[0]).toMatchObject({ type: 'welcome', round: 1, base: 1 });
});

test('a gradient with NaN is told again, to a coordinator that may not have heard of it', () => {
  const { shard, told, peer } = shardOf(1, 1);
  shard.onView(1, [a]);
  const { link } = peer('a');
  const header = headerOf({ chunk: 0, replica: 0 });
  shard.payloadFor(link, header).fill(0xff);
  shard.data(link, header);
  const found = { type: 'non-finite', round: 0, chunk: 0 };
  const tellings = () => told.filter(({ type }) => type === 'non-finite');
  expect(tellings()).toEqual([found]);
  shard.tellAgain();
  expect(tellings()).toEqual([found, found]);
});

test('the sum of a chunk becomes its next generation, unless somebody else reads it', () => {
  const { shard, peer, arena } = shardOf(2, 2, undefined, true);
  shard.onView(1, [a, b]);
  const [first, second] = [peer('a'), peer('b')];
  const kept: { sum: Region; floats: number[] }[] = [];
  /** As a standby's socket does of chunk 1. */
  const reduced = (_round: number, chunk: number, sum: Region): void => {
    if (chunk === 1) kept.push({ sum: sum.retain(), floats: [...sum.floats] });
  };
  shard.replication = { reduced, holdsBack: false };
  const before = arena.bytesInUse;
  const blockBytes = before / 2;
  for (const chunk of [0, 1]) {
    first.push({ chunk, replica: 0, value: 1 });
    second.push({ chunk, replica: 1, value: 2 });
  }
  expect(shard['present'].chunks.map(({ place }) => [...shard['present'].generations.next(place)!.floats])).toEqual([
    [-3, -3, -3, -3],
    [-3, -3, -3, -3],
  ]);
  expect(kept.map(({ sum, floats }) => [[...sum.floats], floats])).toEqual([
    [
      [3, 3, 3, 3],
      [3, 3, 3, 3],
    ],
  ]);
  expect(arena.bytesInUse).toBe(before + 3 * blockBytes);
  kept[0]!.sum.release();
  shard.onCommit({ round: 0, view: 1, term: 1 });
  expect(arena.bytesInUse).toBe(before);
  shard.end();
  expect(arena.bytesInUse).toBe(0);
});
