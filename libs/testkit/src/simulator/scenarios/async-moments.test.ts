/** Modes async and ssp: what updates compute, to the bit; what metrics say of them; a worker that is lost between two servers. */
import type { AsyncUpdate } from '@paceline/exchange';
import { stateChange } from '@paceline/learning';
import { decodeHeader } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { always, events, killServer, play, rowsTaken, sending, when, type Played } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { holdsData } from '../faults/faults.js';
import type { SeedOptions } from '../simulate.js';
import { isNonFinite } from '../run/async-run.js';

const f32 = Math.fround;
const RATE = 0.1;
const chunks = [
  { length: 5, section: 'trainable' },
  { length: 3, section: 'trainable' },
  { length: 4, section: 'state' },
] as const;
const shape = {
  chunks,
  servers: 2,
  replicas: 4,
  rounds: 8,
  examples: 59,
  globalBatch: 8,
  evalExamples: 0,
  checkpointEveryRounds: 0,
  standby: 0,
  optimizer: { name: 'sgd', learningRate: RATE },
} as const;
const items = { nanShare: 0, stalenessBound: 2, delayCompensation: 0, stalenessScaledRate: false };
const base: SeedOptions = { seed: 1, check: 'liveness', kinds: [], stepMs: [20, 60], mode: 'async', shape, items };

interface Applied extends AsyncUpdate {
  readonly server: number;
}

/** Plays a run and notes each update that a server applies to its first chunk. */
async function playNoting(
  options: SeedOptions,
  arrange: (cluster: Cluster) => void = () => undefined,
): Promise<Played & { readonly applied: readonly Applied[]; weights(): Float32Array }> {
  const applied: Applied[] = [];
  const present = new Map<number, Float32Array>();
  const played = await play(options, (cluster) => {
    const watch = cluster.items!;
    const note = watch.applied.bind(watch);
    watch.applied = (part, chunk, update, params) => {
      if (part.memory.chunks[0]!.index === chunk) applied.push({ ...update, server: part.index });
      present.set(chunk, params.floats.slice());
      note(part, chunk, update, params);
    };
    arrange(cluster);
  });
  expect(played.result.outcome).toBe('SUCCEEDED');
  return { ...played, applied, weights: () => Float32Array.from(chunks.flatMap((_, chunk) => [...present.get(chunk)!])) };
}

/** The weights after one update, in float32, written out. @param at what the gradient was computed from */
function updated(
  { run }: Cluster,
  { round, replica }: { round: number; replica: number },
  now: Float32Array,
  at: Float32Array,
  rate: number,
  lambda: number,
): Float32Array {
  const { trainableLength } = run.layout;
  const count = run.replicaExamples(round, replica);
  const out = new Float32Array(now.length);
  run.step(at, round, replica, out);
  stateChange(out.subarray(trainableLength), at.subarray(trainableLength), count);
  const mean = f32(1 / count);
  return now.map((w, i) => {
    if (i >= trainableLength) return f32(w + out[i]!);
    const g = f32(out[i]! * mean);
    const delayed = lambda === 0 ? g : f32(g + f32(f32(f32(f32(lambda) * g) * g) * f32(w - at[i]!)));
    return f32(w - f32(delayed * f32(rate)));
  });
}

test.each([
  ['async', 1],
  ['async', 3],
  ['ssp', 2],
] as const)(
  'mode %s, %d servers: one worker gives the bits of plain sequential SGD, also after a server was lost',
  async (mode, servers) => {
    for (const isLost of [false, true]) {
      const options = {
        ...base,
        mode,
        workers: 1,
        shape: { ...shape, servers, checkpointEveryRounds: 2 },
        items: { ...items, stalenessBound: 0 },
      };
      const { cluster, applied, weights, result } = await playNoting(options, (cluster) => {
        if (isLost)
          when(
            cluster,
            () => cluster.control.checkpoints.length > 0,
            () => killServer(cluster, 0),
          );
      });
      let expected = cluster.run.initial;
      for (let round = 0; round < shape.rounds; round++)
        for (let replica = 0; replica < shape.replicas; replica++)
          if (cluster.run.replicaExamples(round, replica) > 0) expected = updated(cluster, { round, replica }, expected, expected, RATE, 0);
      expect(weights()).toEqual(expected);
      expect(applied.every(({ staleness }) => staleness === 0)).toBe(true);
      expect(result.attempts).toBe(isLost ? 2 : 1);
    }
  },
);

test.each([{}, { stalenessScaledRate: true }, { delayCompensation: 0.5 }, { stalenessScaledRate: true, delayCompensation: 0.04 }])(
  'three workers, %o: the bits of a replay',
  async (more) => {
    const options = { ...items, ...more };
    const { cluster, applied, weights } = await playNoting({
      ...base,
      workers: 3,
      shape: { ...shape, servers: 1, examples: 64 },
      items: options,
    });
    // State number i has i updates; an update of staleness s was computed from the state that is s back.
    const states = [cluster.run.initial];
    for (const { item, staleness } of applied) {
      const rate = RATE / (options.stalenessScaledRate ? 1 + staleness : 1);
      states.push(updated(cluster, item, states.at(-1)!, states[states.length - 1 - staleness]!, rate, options.delayCompensation));
    }
    expect(
      applied.some(({ staleness }) => staleness > 0),
      'nothing was stale: the test shows nothing',
    ).toBe(true);
    expect(applied.map(({ step }) => step)).toEqual(applied.map((_, i) => i + 1));
    expect(weights()).toEqual(states.at(-1));
  },
);

test('metrics: a row for every R updates, with the staleness of each of them at its slowest server', async () => {
  const { cluster, applied } = await playNoting({ ...base, workers: 3, shape: { ...shape, examples: 64 } });
  const rows = cluster.control.journal.filter((entry) => entry.kind === 'metric');
  expect(rows.map(({ round, rounds }) => [round, rounds])).toEqual(rows.map((_, round) => [round, 1]));
  expect(rows).toHaveLength(shape.rounds);
  const told: number[] = [];
  for (const { stalenessCounts, staleness } of rows) {
    expect(stalenessCounts!.reduce((a, b) => a + b, 0)).toBe(shape.replicas);
    expect(staleness).toBeCloseTo(stalenessCounts!.reduce((sum, count, i) => sum + count * i, 0) / shape.replicas, 9);
    stalenessCounts!.forEach((count, i) => (told[i] = (told[i] ?? 0) + count));
  }
  const slowest = new Map<number, number>();
  for (const {
    item: { round, replica },
    staleness,
  } of applied) {
    const number = round * shape.replicas + replica;
    slowest.set(number, Math.max(slowest.get(number) ?? 0, staleness));
  }
  const wanted = Array.from({ length: told.length }, (_, i) => [...slowest.values()].filter((staleness) => staleness === i).length);
  expect(told).toEqual(wanted);
  expect(told.length, 'nothing was stale: the test shows nothing').toBeGreaterThan(1);
});

test.each([
  ['async', 0, 1],
  ['ssp', 1, 0],
] as const)(
  'mode %s: a worker is killed when server %d has its gradient and server %d has not: it counts once, and the event says where it is applied',
  async (mode, reached, missed) => {
    let lost: { round: number; replica: number } | undefined;
    const { result, cluster } = await play({ ...base, mode, workers: 2 }, (cluster) => {
      sending(cluster, (stream, frames) => {
        if (
          stream.process.name !== 'w0' ||
          !holdsData(frames) ||
          !stream.remote.startsWith(`server-host-${cluster.serverOf(missed)!.slot}/`)
        )
          return false;
        const { round, nodeLo } = decodeHeader(frames, 0);
        if (round >= 3) lost ??= { round, replica: nodeLo };
        return lost?.round === round && lost.replica === nodeLo;
      });
      const marks = (index: number) => cluster.partOf(index)!.shard as unknown as { marks: { has(item: object): boolean } };
      when(
        cluster,
        () => lost !== undefined && marks(reached).marks.has(lost),
        () => cluster.workers[0]!.process.kill(),
      );
    });
    expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
    expect(events(cluster, 'work-item.reissued').some(({ data }) => (data['appliedAt'] as number[]).includes(reached))).toBe(true);
  },
);

test.each([
  ['fail', 'NON_FINITE'],
  ['rollback', 'NON_FINITE_ROLLBACK'],
] as const)('a gradient that is not finite, with `%s`: the attempt ends with the cause %s', async (nonFinite, cause) => {
  const causes = new Set<unknown>();
  await play({ ...base, workers: 2, items: { ...items, nonFinite, nanShare: 0.05, nanSalt: 1 } }, (cluster) => {
    always(cluster, () => events(cluster, 'run.failed').forEach(({ data }) => causes.add(data['cause'])));
  });
  expect([...causes]).toEqual([cause]);
});

test('what was said of a work item that is counted changes nothing when it is said again, and parameters that nobody wants are dropped', async () => {
  const played = await play({ ...base, workers: 2, items: { ...items, nonFinite: 'skip', nanShare: 0.2, nanSalt: 1 } }, (cluster) => {
    const coordinator = () => cluster.coordinatorPart!.coordinator!;
    when(
      cluster,
      () => (cluster.coordinatorPart?.items?.marks.rounds ?? 0) >= 2,
      () => {
        const all = [0, 1].flatMap((round) => [0, 1, 2, 3].map((replica) => ({ round, replica })));
        const isDropped = ({ round, replica }: (typeof all)[number]) => isNonFinite(cluster.run, round, replica);
        const [dropped, counted] = [all.find(isDropped)!, all.find((item) => !isDropped(item))!];
        const { id, session } = cluster.workers[0]!;
        const examples = cluster.run.replicaExamples(counted.round, counted.replica);
        coordinator().memberMessage(id, { type: 'contribution', ...counted, examples, sums: [1, 1] });
        coordinator().memberMessage(id, { type: 'item-non-finite', ...dropped });
        (cluster.partOf(0)!.shard as unknown as { onDrop(round: number, replica: number): void }).onDrop(dropped.round, dropped.replica);
        const { attempt } = cluster.control;
        session!.member.data({
          type: 2,
          codec: 0,
          flags: 0,
          attempt,
          term: 1,
          view: 1,
          round: 0,
          nodeLo: 0,
          nodeHi: 1,
          chunk: 0,
          length: 20,
          payloadChecksum: 0,
        });
      },
    );
  });
  expect(played.result.outcome).toBe('SUCCEEDED');
  const said = [
    'async-coordinator.contributionStale',
    'async-coordinator.nonFiniteStale',
    'async-shard.dropRepeated',
    'async-member.parametersStale',
  ];
  expect([...rowsTaken(played)]).toEqual(expect.arrayContaining(said));
});
