/**
 * Nobody waits for ever: a frame that gets lost on a connection that holds, whatever the mistake, is asked for again; who does not deliver is lost; and a
 * round that nothing brings on ends its attempt with the reason, within 30 s.
 */
import { expect, test } from 'vitest';
import type { Cluster } from '../cluster.js';
import { holdsData } from '../faults/faults.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { SimStream } from '../world/stream.js';
import { simulateSeed, type SeedOptions, type SeedResult } from '../simulate.js';
import { RUN_MODES, type RunMode } from '../run/async-run.js';

const WITHIN_MS = 30_000;
const shape = {
  servers: 2,
  replicas: 4,
  rounds: 8,
  examples: 64,
  globalBatch: 8,
  evalExamples: 400,
  checkpointEveryRounds: 2,
  standby: 0,
  gradient: STREAMING,
} as const;

interface Played {
  readonly result: SeedResult;
  readonly cluster: Cluster;
  /** By type, with the time. */
  readonly events: readonly { readonly type: string; readonly message: string; readonly atMs: number }[];
  readonly eatenAtMs: number;
}

const isFromWorker = ({ process }: SimStream): boolean => process.name.startsWith('w');
/** To the process that has held this shard from the start. */
const isToServer = ({ remote }: SimStream, cluster: Cluster, index: number): boolean =>
  remote.startsWith(`${cluster.hosted.find((part) => part.index === index)!.server.process.host}/`);

/** From round 3 on every write of these connections is looked at, until the time `forMs` is over. */
async function eating(
  options: Partial<SeedOptions>,
  eats: (stream: SimStream, bytes: Uint8Array, cluster: Cluster) => boolean,
  forMs = Infinity,
): Promise<Played> {
  let cluster!: Cluster;
  let eatenAtMs = 0;
  const events: { type: string; message: string; atMs: number }[] = [];
  const result = await simulateSeed({
    seed: 1,
    check: 'liveness',
    kinds: [],
    stepMs: [20, 60],
    workers: 2,
    shape,
    items: { nanShare: 0, stalenessBound: 2 },
    ...options,
    arrange: (made) => {
      cluster = made;
      const before = made.world.afterEvent;
      made.world.afterEvent = () => {
        before();
        for (const entry of made.control.journal.slice(events.length))
          events.push({
            type: entry.kind === 'event' ? entry.type : '',
            message: entry.kind === 'event' ? entry.message : '',
            atMs: made.world.nowMs,
          });
        if ((made.control.coordinatorPart?.coordinator?.round ?? 0) < 3 && eatenAtMs === 0) return;
        made.network.eats ??= (stream, bytes) => {
          const isEaten = (eatenAtMs === 0 || made.world.nowMs - eatenAtMs < forMs) && eats(stream, bytes, made);
          if (isEaten && eatenAtMs === 0) eatenAtMs = made.world.nowMs;
          return isEaten;
        };
      };
    },
  });
  expect(result.violation).toBeUndefined();
  expect(result.fired.get('eaten frame')).toBeGreaterThan(0);
  return { result, cluster, events, eatenAtMs };
}

const rowsTaken = ({ tables }: SeedResult, name: RegExp): string[] =>
  tables.filter((table) => name.test(table.name)).flatMap(({ taken }) => [...taken.keys()].map(String));

test.each(RUN_MODES)('one gradient is eaten, mode %s: it is asked for again, and nobody is lost', async (mode) => {
  let eaten = 0;
  const { result, events, eatenAtMs } = await eating(
    { mode },
    (stream, bytes) => isFromWorker(stream) && holdsData(bytes) && eaten++ === 0,
  );
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  const stalled = events.find(({ type }) => type === 'round.stalled');
  expect(stalled?.message).toMatch(
    mode === 'sync' ? /parameter server \d to gather replica|parameter server \d to be done/u : /work item of replica/u,
  );
  // In the other modes only when nobody has anything else to do.
  expect(stalled!.atMs - eatenAtMs).toBeLessThan(mode === 'sync' ? 10_000 : WITHIN_MS);
  expect(events.filter(({ type }) => type === 'worker.lost')).toEqual([]);
});

test.each(RUN_MODES)('one worker delivers nothing to one server, mode %s: it is lost, and others do its part', async (mode) => {
  const isDeaf = (stream: SimStream, cluster: Cluster): boolean => stream.process.name === 'w0' && isToServer(stream, cluster, 1);
  const { result, events } = await eating({ mode }, (stream, bytes, cluster) => isDeaf(stream, cluster) && holdsData(bytes), 20_000);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(events.find(({ type }) => type === 'worker.lost')?.message).toMatch(/w0 was lost: it is idle; missing:/u);
});

test.each(RUN_MODES)('nothing reaches one server, mode %s: the attempt ends and says what it waited for', async (mode) => {
  const { result, events, eatenAtMs } = await eating(
    { mode },
    (stream, bytes, cluster) => isFromWorker(stream) && isToServer(stream, cluster, 1) && holdsData(bytes),
    60_000,
  );
  expect(result).toMatchObject({ outcome: 'SUCCEEDED' });
  expect(result.attempts).toBeGreaterThan(1);
  const failed = events.find(({ type }) => type === 'run.failed');
  expect(failed?.message).toMatch(/round \d stands still: it waits for .*parameter server 1/u);
  expect(failed!.atMs - eatenAtMs).toBeLessThan(WITHIN_MS);
});

const MESSAGES: readonly (readonly [RunMode, string])[] = [
  ['sync', 'contribution'],
  ['sync', 'reduced'],
  ['sync', 'commit'],
  ['sync', 'evaluate'],
  ['sync', 'evaluated'],
  ['async', 'items'],
  ['async', 'applied'],
  ['async', 'fetch'],
  ['ssp', 'contribution'],
  ['ssp', 'evaluate'],
];

test.each(MESSAGES)('mode %s: %s is eaten once, and the run goes on', async (mode, type) => {
  let eaten = 0;
  const says = (bytes: Uint8Array): boolean => Buffer.from(bytes).includes(`"type":"${type}"`);
  const { result } = await eating({ mode, stepMs: [20, 30] }, (_, bytes) => says(bytes) && eaten++ === 0);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(result.virtualMs).toBeLessThan(WITHIN_MS + 40_000);
});

test.each(['scalars', 'decision', 'include', 'replica-complete'])(
  'plan two-phase: %s is eaten once, and the round is decided',
  async (type) => {
    let eaten = 0;
    const backupReplicas = type === 'include' || type === 'replica-complete' ? 1 : 0;
    const says = (bytes: Uint8Array): boolean => Buffer.from(bytes).includes(`"type":"${type}"`);
    const gradient = { nonFinite: 'skip', backupReplicas, clipNorm: 1 } as const;
    const { result } = await eating({ shape: { ...shape, gradient } }, (_, bytes) => says(bytes) && eaten++ === 0);
    expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  },
);

test('the rows of a stall are taken in both kinds of coordinator', async () => {
  for (const mode of ['sync', 'async'] as const) {
    const { result } = await eating({ mode }, (stream, bytes, cluster) => isToServer(stream, cluster, 1) && holdsData(bytes), 60_000);
    expect(rowsTaken(result, /coordinator/u)).toEqual(expect.arrayContaining(['askedAgain', 'undelivered', 'stalled']));
  }
});
