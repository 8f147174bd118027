import { HEADER_BYTES } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { chunksOf } from '../transfer/chunks.js';
import { memoryPair } from '../transports/memory.js';
import { Member } from './member.js';
import { shardOf } from './shard.fixture.js';
import { nodesIn } from './tree-nodes.js';

const [CHUNKS, CHUNK_BYTES] = [8, 16];
const members = [
  { id: 'a', seat: 0, incarnation: 0, replicas: [0] },
  { id: 'b', seat: 1, incarnation: 0, replicas: [1] },
];
type Setting = ReturnType<typeof shardOf>;

/** A member with the gradient of replica 0 in round 0. `dial` opens a real connection, in memory, and returns how to break it. */
function memberInRound() {
  const memory = [0, 1].map(() => new Uint8Array(CHUNKS * CHUNK_BYTES));
  const gradient = new Uint8Array(Float32Array.from({ length: (CHUNKS * CHUNK_BYTES) / 4 }, () => 1).buffer);
  const member = new Member({
    id: 'a',
    attempt: 1,
    servers: 1,
    totalRounds: 2,
    chunks: Array.from({ length: CHUNKS }, (_, index) => ({
      index,
      offset: (index * CHUNK_BYTES) / 4,
      length: CHUNK_BYTES / 4,
      server: 0,
    })),
    store: { bytes: (generation) => memory[generation & 1]! },
    compute: {
      step: (round) => member.node({ round, lo: 0, hi: 1, chunk: chunksOf(gradient), release: () => undefined }),
      evaluate: () => undefined,
      committed: () => undefined,
    },
    onEnd: () => undefined,
  });
  /** Chunks of gradients that the shard was sent, over all connections, and their bytes. */
  const sent = { chunks: [] as number[], bytes: 0 };
  const dial = async ({ shard }: Setting): Promise<() => Promise<void>> => {
    const [near, far] = memoryPair();
    near.setReceiver({
      payloadFor: (header) => member.payloadFor(header),
      data: (header) => member.data(header),
      message: (message) => member.message(0, message),
      closed: () => member.detach(0, near),
    });
    member.attach(0, near);
    const link = shard.attach('a', far);
    far.setReceiver({
      payloadFor: (header) => shard.payloadFor(link, header),
      data: (header) => {
        sent.chunks.push(header.chunk);
        sent.bytes += HEADER_BYTES + header.length;
        shard.data(link, header);
      },
      message: (message) => void shard.fromWorker(link, message),
      closed: () => shard.detach(link),
    });
    if (member.view === 0) member.message(0, { type: 'view', view: 1, term: 1, round: 0, members });
    await settled();
    return async () => {
      far.close();
      await settled();
    };
  };
  return { member, sent, dial, memory };
}

/** All that is under way between two ends in this process has come. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

test('a member that comes back sends no chunk that a tree of the shard holds: each one once, over all of its connections', async () => {
  const setting = shardOf(CHUNKS, 2, 5);
  const { shard, peer } = setting;
  shard.onView(1, members);
  const { sent, dial, memory } = memberInRound();
  const hangUp = await dial(setting);
  expect(sent.chunks).toEqual(range(0, 5));
  const other = peer('b');
  other.push({ chunk: 0, replica: 1, value: 2 });
  await hangUp();
  await dial(setting);
  expect(sent.chunks, 'the window has moved by one').toEqual(range(0, 6));
  for (const chunk of range(1, CHUNKS)) {
    other.push({ chunk, replica: 1, value: 2 });
    await settled();
  }
  expect(shard.table.state).toBe('REDUCED');
  expect(sent).toEqual({ chunks: range(0, CHUNKS), bytes: CHUNKS * (HEADER_BYTES + CHUNK_BYTES) });
  expect([...new Float32Array(memory[1]!.buffer)]).toEqual(new Array<number>((CHUNKS * CHUNK_BYTES) / 4).fill(-3));
});

test('nor a chunk whose sum waits for the decision', async () => {
  const setting = shardOf(CHUNKS, 2, undefined, false, { twoPhase: { hasBackups: false } });
  const { shard, peer } = setting;
  shard.onView(1, members);
  const { sent, dial } = memberInRound();
  const hangUp = await dial(setting);
  const other = peer('b');
  for (const chunk of range(0, 3)) other.push({ chunk, replica: 1 });
  expect(peer('c').heard[0]).toMatchObject({ applied: 'Bw==', nodes: [{ lo: 0, hi: 1, chunks: '+A==' }] });
  await hangUp();
  const hangUpAgain = await dial(setting);
  for (const chunk of range(3, CHUNKS)) other.push({ chunk, replica: 1 });
  expect(shard.table.state).toBe('DECIDING');
  await hangUpAgain();
  await dial(setting);
  expect(sent.chunks).toEqual(range(0, CHUNKS));
});

test('all is sent to the shard that took over, which holds nothing of the round', async () => {
  const { sent, dial } = memberInRound();
  const primary = shardOf(CHUNKS, 2);
  primary.shard.onView(1, members);
  const hangUp = await dial(primary);
  await hangUp();
  const standby = shardOf(CHUNKS, 2);
  standby.shard.promote(2);
  standby.shard.onView(1, members);
  await dial(standby);
  expect(sent.chunks).toEqual([...range(0, CHUNKS), ...range(0, CHUNKS)]);
});

test('what the trees of a round held says nothing of the next round', async () => {
  const setting = shardOf(CHUNKS, 2);
  const { shard, peer } = setting;
  shard.onView(1, members);
  const { member, sent, dial } = memberInRound();
  await (
    await dial(setting)
  )();
  await dial(setting);
  const other = peer('b');
  for (const chunk of range(0, CHUNKS)) other.push({ chunk, replica: 1 });
  await settled();
  const commit = { round: 0, view: 1, term: 1 };
  shard.onCommit(commit);
  member.message(0, { type: 'commit', ...commit });
  await settled();
  expect(sent.chunks).toEqual([...range(0, CHUNKS), ...range(0, CHUNKS)]);
});

test('what trees hold is said by runs of replicas, within a bound', () => {
  const tree = (...missing: number[]) => ({ missingLeaves: () => missing, isEmpty: false });
  const empty = { missingLeaves: () => expect.unreachable('a tree without nodes costs nothing'), isEmpty: true };
  // A chunk that is done, one that has nothing, one that has all but replica 3, and one that has replicas 2 and 3.
  expect(nodesIn([undefined, empty, tree(3), tree(0, 1, 4)], 5)).toEqual([
    { lo: 0, hi: 2, chunks: 'BA==' },
    { lo: 2, hi: 3, chunks: 'DA==' },
    { lo: 3, hi: 4, chunks: 'CA==' },
    { lo: 4, hi: 5, chunks: 'BA==' },
  ]);
  // Every replica lacks other chunks: 8192 characters each.
  const many = Array.from({ length: 49_152 }, (_, place) => tree(place % 34));
  expect(nodesIn(many, 34)).toHaveLength(2 ** 18 / 8192);
});
