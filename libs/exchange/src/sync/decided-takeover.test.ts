/** Plan two-phase: a standby is promoted with a part of the chunks of a round that is decided. */
import { expect, test } from 'vitest';
import { FrameType, type Message, type MessageOf } from '@paceline/protocol';
import { acquireRegion } from '../attempt/regions.js';
import { headerOf, shardOf } from './shard.fixture.js';

const CHUNKS = 3;
const members = [{ id: 'a', seat: 0, incarnation: 0, replicas: [0] }];
const decision = { skip: false, examples: 8, scale: 0.5, variables: [] };
const decided: MessageOf<'decision'> = { type: 'decision', round: 0, ...decision };
const types = (said: readonly Message[]): string[] => said.map(({ type }) => type);

/** A shard that has followed its primary: DECISION(0), and some chunks. */
function promoted(replicated: readonly number[]) {
  const setting = shardOf(CHUNKS, 1, undefined, false, { twoPhase: { hasBackups: false } });
  const { shard, arena, told } = setting;
  shard.onView(1, members);
  shard.followOrder(decided);
  const acknowledged: Message[] = [];
  for (const chunk of replicated) {
    const sum = acquireRegion(arena, 4);
    sum.floats.fill(1);
    const header = { ...headerOf({ chunk, replica: 0 }), type: FrameType.gradient, nodeHi: 1 };
    expect(shard.wantsReplica(header)).toBe(true);
    shard.applyReplica(header, sum, (message) => void acknowledged.push(message));
  }
  expect(acknowledged).toHaveLength(replicated.length);
  told.length = 0;
  shard.promote(2);
  return setting;
}

test('the rest is gathered and applied as it was decided; chunks that are applied stay as they are', () => {
  for (const replicated of [[], [0], [1], [0, 2]]) {
    const { shard, told, peer, arena } = promoted(replicated);
    const { push, link } = peer('a');
    for (let chunk = 0; chunk < CHUNKS; chunk++) if (!replicated.includes(chunk)) push({ chunk, replica: 0, value: 1 });
    expect([types(told).filter((type) => type === 'scalars'), shard.table.state], `${replicated}`).toEqual([['scalars'], 'DECIDING']);
    shard.fromCoordinator(link, decided);
    expect([types(told).at(-1), shard.table.state]).toEqual(['reduced', 'REDUCED']);
    shard.fromCoordinator(link, { type: 'commit', round: 0, view: 1, term: 2, members });
    expect(shard['present'].generations.retained().map((region) => [...region.floats])).toEqual(
      Array.from({ length: CHUNKS }, () => [-1, -1, -1, -1]),
    );
    shard['present'].generations.retained().forEach((region) => (region.release(), region.release()));
    shard.end();
    expect(arena.bytesInUse).toBe(0);
  }
});

test('a coordinator that takes over is told the decision before the round is reduced: other shards may have applied it', () => {
  const { shard } = promoted([1]);
  expect(shard.standing()).toMatchObject({ round: 0, isReduced: false, decision });
});

test('a standby knows which rounds were left out, for the ledger of a coordinator that begins there', () => {
  const { shard } = shardOf(CHUNKS, 1, undefined, false, { twoPhase: { hasBackups: false } });
  shard.onView(1, members);
  const commit = (round: number) => shard.followOrder({ type: 'commit', round, view: 1, term: 1, members });
  for (const round of [0, 1]) {
    shard.followOrder({ ...decided, round, skip: true });
    commit(round);
  }
  shard.followOrder({ ...decided, round: 0, skip: true }); // once more, and late
  expect(shard.known().leftOut).toEqual([0, 1]);
});
