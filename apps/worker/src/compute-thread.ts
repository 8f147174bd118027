/**
 * The compute thread: owns the engine. It takes messages in order, works synchronously (tf.js operations block anyway) and
 * answers with contributions and gradient nodes. See compute-protocol.ts for who owns which memory.
 */
import { getHeapStatistics } from 'node:v8';
import { parentPort, workerData } from 'node:worker_threads';
import { GradientEncoder, codecOf } from '@paceline/codecs';
import { collectGarbage, createEngine, LeakDetector } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, createSchedule } from '@paceline/learning';
import { GRADIENT_ARENA_BYTES, GRADIENT_ARENA_SLACK_BYTES, GRADIENT_ARENA_VECTORS, isEncoded } from '@paceline/spec';
import { BatchLoader } from './batch-loader.js';
import {
  CELL_COMMITTED,
  CELL_PROGRESS,
  CELL_STOPPING,
  type ComputeInit,
  type ContributionMessage,
  type FromCompute,
  type ToCompute,
} from './compute-protocol.js';
import { LeakGuard } from './leak-guard.js';
import { RowsUnreadableError } from './loader-protocol.js';
import { ReplicaSteps } from './replica-steps.js';
import { AsyncSteps } from './async-steps.js';

const port = parentPort!;
const init = workerData as ComputeInit;
const cells = new Int32Array(init.cells);
const send = (message: FromCompute): void => port.postMessage(message);
const isStopping = (): boolean => Atomics.load(cells, CELL_STOPPING) === 1;

const { spec, data, description } = init;
const layout = createLayout(description);
const loader = await BatchLoader.open({ spec, data, settings: init.rowsSettings, isStopping });
const engine = await createEngine({ spec, ...init.engine, description, format: data.format, layout });
// A model that does not fit in was refused when its run was created (worker-memory.ts of libs/spec).
const gradients = Arena.create({
  initialBytes: layout.totalLength * 4 * GRADIENT_ARENA_VECTORS + GRADIENT_ARENA_SLACK_BYTES,
  maximumBytes: GRADIENT_ARENA_BYTES,
});
const isAsynchronous = spec.strategy.mode !== 'sync';
const generations = (isAsynchronous ? [0] : [0, 1]).map(
  (i) => new Float32Array(init.parameters, i * layout.totalLength * 4, layout.totalLength),
);

const codec = codecOf(spec.codec);
const chunks = layout.chunks.map(({ index, offset, length, section }) => ({ index, offset, length, isEncoded: section === 'trainable' }));
const schedule = createSchedule({
  examples: data.trainExamples,
  globalBatch: spec.globalBatch,
  dropRemainder: spec.dropRemainder,
  length: spec.length,
});
const examplesOf = (round: number): number => schedule.round(round).count;
const encoder = codec && new GradientEncoder(codec, gradients, chunks, spec.seed, spec.codec!.errorFeedback, spec.replicas, examplesOf);

/** The contribution of a leaf waits here when its node follows at once: one message says both. */
let contribution: ContributionMessage | undefined;
function contribute(round: number, replica: number, examples: number, sums: readonly number[], isNode: boolean): void {
  const message: ContributionMessage = { kind: 'contribution', round, replica, examples, sums };
  if (isNode) contribution = message;
  else send(message);
}

/** Hands a gradient on, as it is, or encoded where each is of one replica. */
function sendNode(round: number, lo: number, hi: number, pointer: number): void {
  const node = { kind: 'node', round, lo, hi, contribution } as const;
  contribution = undefined;
  if (!encoder) return send({ ...node, pointer });
  const sinceMs = spans.now();
  const { pointer: bytes, ...encoded } = encoder.encode(round, lo, pointer);
  spans.add('encode', sinceMs);
  gradients.free(pointer);
  send({ ...node, pointer: bytes, encoded });
}

const guard = new LeakGuard(engine, {
  detector: new LeakDetector(init.leakLimits),
  limits: init.leakLimits,
  collect: collectGarbage,
  rssBytes: () => process.memoryUsage.rss(),
  heapBytes: () => {
    const { used_heap_size, external_memory } = getHeapStatistics();
    return used_heap_size + external_memory;
  },
  found: (leak) => send({ kind: 'leak', leak }),
});
const leavesOnly = spec.strategy.backupReplicas > 0 || isEncoded(spec);
const steps = new ReplicaSteps(guard, loader, gradients, layout.totalLength, spec.replicas, leavesOnly, {
  contribution: contribute,
  node: sendNode,
  progress: () => void Atomics.add(cells, CELL_PROGRESS, 1),
  isObsolete: (round) => Atomics.load(cells, CELL_COMMITTED) > round || isStopping(),
});

const items = new AsyncSteps(guard, loader, gradients, layout, generations[0]!, {
  contribution: contribute,
  node: sendNode,
  nonFinite: (round, replica) => send({ kind: 'non-finite', round, replica }),
  progress: () => void Atomics.add(cells, CELL_PROGRESS, 1),
});

let loaded = -1;
function load(generation: number): void {
  if (isAsynchronous) return engine.load(generations[0]!); // it changes without a number
  if (loaded === generation) return;
  const sinceMs = spans.now();
  engine.load(generations[generation & 1]!);
  spans.add('load parameters', sinceMs);
  loaded = generation;
}

function evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
  load(generation);
  const most = loader.evaluationExamples;
  const parts = blocks.flatMap((block) =>
    Array.from({ length: Math.ceil((block.to - block.from) / most) }, (_, i) => {
      const from = block.from + i * most;
      return { block, from, to: Math.min(from + most, block.to) };
    }),
  );
  let [sums, examples] = [engine.metricNames.map(() => 0), 0];
  for (const [i, { block, from, to }] of parts.entries()) {
    if (isStopping()) return;
    const batch = loader.takeEvaluation(from, to);
    const next = parts[i + 1];
    if (next) loader.prefetchEvaluation(next.from, next.to);
    const result = engine.evaluate(batch);
    loader.releaseEvaluation(from, to);
    examples += result.count;
    result.metricSums.forEach((value, m) => (sums[m]! += value));
    Atomics.add(cells, CELL_PROGRESS, 1);
    if (to < block.to) continue;
    send({ kind: 'evaluated', generation, from: block.from, to: block.to, examples, sums });
    [sums, examples] = [engine.metricNames.map(() => 0), 0];
  }
}

function handle(message: ToCompute): void {
  if (isStopping() && message.kind !== 'stop') return;
  switch (message.kind) {
    case 'free':
      return message.pointers.forEach((pointer) => gradients.free(pointer));
    case 'step':
      for (const pointer of message.free) gradients.free(pointer);
      if (Atomics.load(cells, CELL_COMMITTED) > message.round) return;
      load(message.round);
      loader.forget(message.round);
      loader.prefetch(message.round + 1, message.replicas); // it is loaded while this round is computed
      steps.run(message.round, message.replicas);
      loader.prefetch(message.round + 1, message.replicas); // what had no free slot
      return guard.afterRound();
    case 'item':
      load(message.item.round);
      items.run(message.item, message.next);
      return guard.afterRound();
    case 'trace':
      if (message.isOn) return spans.start();
      return send({ kind: 'traced', recording: spans.stop() });
    case 'evaluate':
      return evaluate(message.generation, message.blocks);
    case 'stop':
      engine.dispose();
      void loader.stop();
      return port.close();
  }
}

let restsSinceMs = 0;
port.on('message', (message: ToCompute) => {
  if (message.kind === 'step') spans.mark(message.round);
  spans.add('wait', restsSinceMs);
  const sinceMs = spans.now();
  try {
    handle(message);
    if (message.kind === 'step') spans.add('step', sinceMs);
    restsSinceMs = spans.now();
  } catch (error) {
    if (isStopping()) return;
    const { name, message: why } = error as Error;
    const round = message.kind === 'step' ? message.round : message.kind === 'item' ? message.item.round : -1;
    send({
      kind: 'failed',
      code: (error instanceof RowsUnreadableError ? error.code : name).slice(0, 100),
      message: why,
      round: Math.max(round, 0),
      replica: -1,
    });
  }
});
send({ kind: 'ready', fingerprint: engine.fingerprint, devices: engine.devices, gradients: gradients.memory });
