/** Links on which one frame takes longer than any deadline of a peer: nobody is taken for dead, or stuck, while bytes come. */
import { expect, test } from 'vitest';
import { FrameType, HEADER_BYTES, decodeHeader } from '@paceline/protocol';
import type { Cluster } from '../cluster.js';
import { events, play } from './arranged.fixture.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { RunMode } from '../run/async-run.js';
import type { Leg, SimStream } from '../world/stream.js';

const chunks = Array.from({ length: 4 }, () => ({ length: 4, section: 'trainable' as const }));
const shape = {
  servers: 2,
  replicas: 2,
  chunks,
  rounds: 2,
  evalExamples: 0,
  checkpointEveryRounds: 0,
  standby: 0,
  gradient: STREAMING,
} as const;

const isFromWorker = ({ process }: SimStream): boolean => process.name.startsWith('w');

/** Data frames take so long each, control frames no time. */
function legsOf(frames: Uint8Array, chunkMs: number): Leg[] {
  const legs: Leg[] = [];
  let atMs = 0;
  for (let at = 0; at < frames.length;) {
    const { type, length } = decodeHeader(frames, at);
    at += HEADER_BYTES + length;
    if (type !== FrameType.control) atMs += chunkMs;
    legs.push({ upTo: at, atMs });
  }
  return legs;
}

async function playSlow(mode: RunMode, isSlow: (stream: SimStream, cluster: Cluster) => boolean, chunkMs: number) {
  const items = mode === 'sync' ? undefined : { nanShare: 0, stalenessBound: 2 };
  const options = { seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, mode, items, shape } as const;
  const { result, cluster } = await play(options, (made) => {
    made.network.paces = (stream, frames) => (isSlow(stream, made) ? legsOf(frames, chunkMs) : undefined);
  });
  expect(events(cluster, 'worker.lost')).toEqual([]);
  expect(events(cluster, 'worker.away')).toEqual([]);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect([...cluster.refusals.keys()].filter((code) => code === 'SILENT_PEER')).toEqual([]);
  return cluster;
}

test.each(['sync', 'async'] as const)('mode %s: a gradient that takes 5 s a chunk, past the deadline of heartbeats', async (mode) => {
  await playSlow(mode, isFromWorker, 5_000);
});

test('a gradient that takes longer than the step deadline', async () => {
  const cluster = await playSlow('sync', isFromWorker, 12_000);
  expect(cluster.world.nowMs).toBeGreaterThan(cluster.stepDeadlineMs);
});

test('parameters that take 5 s a chunk', async () => {
  await playSlow('sync', ({ process, remote }) => process.name.startsWith('ps') && /^w\d/u.test(remote), 5_000);
});
