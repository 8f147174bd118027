/** Links on which one frame takes longer than any deadline of a peer: nobody is taken for dead, or stuck, while bytes come. */
import { expect, test } from 'vitest';
import { FrameType, HEADER_BYTES, decodeHeader, type FrameHeader } from '@paceline/protocol';
import type { Cluster, Plant } from '../cluster.js';
import type { MemberChunk } from '@paceline/exchange';
import { calm, events, play, round, sending } from './arranged.fixture.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { RunMode } from '../run/async-run.js';
import type { Leg, SimStream } from '../world/stream.js';

const WORKERS = 2;
const chunks = Array.from({ length: 4 }, () => ({ length: 4, section: 'trainable' as const }));
const shape = {
  servers: 2,
  replicas: WORKERS,
  chunks,
  rounds: 2,
  evalExamples: 0,
  checkpointEveryRounds: 0,
  standby: 0,
  gradient: STREAMING,
} as const;

const isFromWorker = ({ process }: SimStream): boolean => process.name.startsWith('w');

/** Headers of whole frames, and where each ends. */
function headersOf(frames: Uint8Array): { header: FrameHeader; end: number }[] {
  const headers: { header: FrameHeader; end: number }[] = [];
  for (let at = 0; at < frames.length;) {
    const header = decodeHeader(frames, at);
    at += HEADER_BYTES + header.length;
    headers.push({ header, end: at });
  }
  return headers;
}

/** The payloads of data frames take so long each; headers and control frames no time, as beside chunks of usual size. */
function legsOf(frames: Uint8Array, chunkMs: number): Leg[] {
  let atMs = 0;
  return headersOf(frames).flatMap(({ header: { type, length }, end }) => {
    const payload = { upTo: end - length, atMs };
    if (type !== FrameType.control) atMs += chunkMs;
    return [payload, { upTo: end, atMs }];
  });
}

async function playSlow(
  mode: RunMode,
  isSlow: (stream: SimStream, cluster: Cluster) => boolean,
  chunkMs: number,
  look: (stream: SimStream, frames: Uint8Array) => void = () => undefined,
  plant?: Plant,
) {
  const items = mode === 'sync' ? undefined : { nanShare: 0, stalenessBound: 2 };
  const options = {
    seed: 3,
    check: 'liveness',
    kinds: [],
    stepMs: [20, 60],
    workers: WORKERS,
    mode,
    items,
    shape: { ...shape, startWorkers: mode === 'sync' ? WORKERS : undefined },
    plant,
  } as const;
  const { result, cluster } = await play(options, (made) => {
    made.network.paces = (stream, frames) => {
      if (!isSlow(stream, made)) return undefined;
      look(stream, frames);
      return legsOf(frames, chunkMs);
    };
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

const CHUNK_BYTES = 1 << 20;
/** 2 Mbit/s. */
const BYTES_PER_MS = 250;

/** By the plan of the run, each chunk once for whoever computes with it, or adds it up: to each worker all generations, and from each the gradient of its replica in each round. */
const NEEDED_CHUNKS = chunks.length * WORKERS * (shape.rounds + 1 + shape.rounds);

/** What links of 2 Mbit/s carry, with chunks of 1 MiB, for each byte that is needed. */
async function carriedPerNeeded(plant?: Plant): Promise<number> {
  let sentBytes = 0;
  const count = (_stream: SimStream, frames: Uint8Array): void => {
    for (const { header } of headersOf(frames)) {
      const isControl = header.type === FrameType.control;
      sentBytes += HEADER_BYTES + (isControl ? header.length : CHUNK_BYTES);
    }
  };
  await playSlow('sync', (stream) => isFromWorker(stream) || /^w\d/u.test(stream.remote), CHUNK_BYTES / BYTES_PER_MS, count, plant);
  return sentBytes / (NEEDED_CHUNKS * (HEADER_BYTES + CHUNK_BYTES));
}

test('links of 2 Mbit/s, with chunks of 1 MiB: nobody is lost, and they carry at most 2 % more than what is needed', async () => {
  const carried = await carriedPerNeeded();
  // Less would say that the plan is another one.
  expect(carried).toBeGreaterThanOrEqual(1);
  expect(carried).toBeLessThan(1.02);
});

test('planted: a chunk that each worker sends twice is more than that, and so are workers that ask by a timer', async () => {
  const once = await carriedPerNeeded({
    member(member) {
      const machine = member as unknown as { sendChunk(gradient: unknown, chunk: MemberChunk, isAsked?: boolean): void };
      const sendChunk = machine.sendChunk.bind(member);
      let isFirst = true;
      machine.sendChunk = (gradient, chunk) => {
        sendChunk(gradient, chunk);
        if (isFirst) sendChunk(gradient, chunk, true);
        isFirst = false;
      };
    },
  });
  expect(once).toBeGreaterThan(1.02);
  const byTimer = await carriedPerNeeded({
    member(member) {
      const heartbeat = member.heartbeat.bind(member);
      member.heartbeat = (computed) => {
        heartbeat(computed);
        (member as unknown as { pull(): void }).pull();
      };
    },
  });
  expect(byTimer).toBeGreaterThan(1.05);
});

test('one of eight workers is lost while all push: no more is sent again than its own share', async () => {
  const sent = new Set<string>();
  let again = 0;
  let isKilled = false;
  const options = { seed: 5, mode: 'sync', check: 'liveness', kinds: [], stepMs: [20, 60], workers: 8 } as const;
  const { result, cluster } = await play({ ...options, shape: { ...shape, replicas: 8, rounds: 6, globalBatch: 8 } }, (made) => {
    // Nobody else is lost: heartbeats are late behind one frame, and not behind the spikes that a seed may draw.
    calm(made, 1);
    sending(made, (stream, frames) => {
      if (!isFromWorker(stream)) return;
      for (const { header } of headersOf(frames)) {
        if (header.type !== FrameType.gradient) continue;
        const parts = Array.from(
          { length: header.nodeHi - header.nodeLo },
          (_, i) => `${header.round} ${header.nodeLo + i} ${header.chunk}`,
        );
        if (parts.every((part) => sent.has(part))) again++;
        for (const part of parts) sent.add(part);
        const worker = made.liveWorkers().find(({ id }) => id === stream.process.name);
        if (isKilled || round(made) < 3 || made.coordinatorPart!.coordinator!.seats().length < 8 || header.chunk === 0) continue;
        isKilled = true;
        worker!.process.kill();
      }
    });
  });
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect([isKilled, events(cluster, 'worker.lost').length + events(cluster, 'worker.away').length > 0]).toEqual([true, true]);
  // One replica, of all chunks.
  expect(again).toBeGreaterThan(0);
  expect(again).toBeLessThanOrEqual(chunks.length);
});
