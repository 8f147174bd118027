/**
 * The compute thread: owns the engine. It takes messages in order, works synchronously (tf.js operations block anyway) and
 * answers with contributions and gradient nodes. See compute-protocol.ts for who owns which memory.
 */
import { getHeapStatistics } from 'node:v8';
import { parentPort, workerData } from 'node:worker_threads';
import { openDataset } from '@paceline/data';
import { collectGarbage, createEngine, LeakDetector } from '@paceline/engine';
import { Arena } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { GRADIENT_ARENA_BYTES, GRADIENT_ARENA_SLACK_BYTES, GRADIENT_ARENA_VECTORS } from '@paceline/spec';
import { BatchLoader } from './batch-loader.js';
import { BatchPlan } from './batch-plan.js';
import { CELL_COMMITTED, CELL_PROGRESS, CELL_STOPPING, type ComputeInit, type FromCompute, type ToCompute } from './compute-protocol.js';
import { LeakGuard } from './leak-guard.js';
import { ReplicaSteps } from './replica-steps.js';
import { TokenSteps } from './token-steps.js';

const EVALUATION_BATCH = 500;

const port = parentPort!;
const init = workerData as ComputeInit;
const cells = new Int32Array(init.cells);
const send = (message: FromCompute): void => port.postMessage(message);
const isStopping = (): boolean => Atomics.load(cells, CELL_STOPPING) === 1;

const { spec, description } = init;
const layout = createLayout(description);
const dataset = await openDataset(spec.dataset);
const engine = await createEngine({ spec, ...init.engine, description, layout });
// A model that does not fit in was refused when its run was created (worker-memory.ts of libs/spec).
const gradients = Arena.create({
  initialBytes: layout.totalLength * 4 * GRADIENT_ARENA_VECTORS + GRADIENT_ARENA_SLACK_BYTES,
  maximumBytes: GRADIENT_ARENA_BYTES,
});
const exampleLength = description.inputShape.reduce((product, n) => product * n, 1);
const plan = new BatchPlan({ spec, examples: dataset.train.count, exampleLength });
const loader = new BatchLoader(plan, dataset, Math.min(2 * spec.replicas, 16));
const isAsynchronous = spec.strategy.mode !== 'sync';
const generations = (isAsynchronous ? [0] : [0, 1]).map(
  (i) => new Float32Array(init.parameters, i * layout.totalLength * 4, layout.totalLength),
);

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
const steps = new ReplicaSteps(guard, loader, gradients, layout.totalLength, spec.replicas, spec.strategy.backupReplicas > 0, {
  contribution: (round, replica, examples, sums) => send({ kind: 'contribution', round, replica, examples, sums }),
  node: (round, lo, hi, pointer) => send({ kind: 'node', round, lo, hi, pointer }),
  progress: () => void Atomics.add(cells, CELL_PROGRESS, 1),
  isObsolete: (round) => Atomics.load(cells, CELL_COMMITTED) > round || isStopping(),
});

const tokens = new TokenSteps(guard, loader, gradients, layout, generations[0]!, {
  contribution: (round, replica, examples, sums) => send({ kind: 'contribution', round, replica, examples, sums }),
  node: (round, lo, hi, pointer) => send({ kind: 'node', round, lo, hi, pointer }),
  nonFinite: (round, replica) => send({ kind: 'non-finite', round, replica }),
  progress: () => void Atomics.add(cells, CELL_PROGRESS, 1),
});

let loaded = -1;
function load(generation: number): void {
  if (isAsynchronous) return engine.load(generations[0]!); // it changes without a number
  if (loaded === generation) return;
  engine.load(generations[generation & 1]!);
  loaded = generation;
}

function evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
  load(generation);
  for (const { from, to } of blocks) {
    const sums = engine.metricNames.map(() => 0);
    let examples = 0;
    for (let at = from; at < to; at += EVALUATION_BATCH) {
      if (isStopping()) return;
      const count = Math.min(EVALUATION_BATCH, to - at);
      const x = new Float32Array(count * exampleLength);
      const y = new Int32Array(count);
      dataset.evaluation.gather(
        Int32Array.from({ length: count }, (_, i) => at + i),
        0,
        count,
        x,
        y,
      );
      const result = engine.evaluate({ x, y, count });
      examples += result.count;
      result.metricSums.forEach((value, i) => (sums[i]! += value));
      Atomics.add(cells, CELL_PROGRESS, 1);
    }
    send({ kind: 'evaluated', generation, from, to, examples, sums });
  }
}

function handle(message: ToCompute): void {
  if (isStopping() && message.kind !== 'stop') return;
  switch (message.kind) {
    case 'free':
      return gradients.free(message.pointer);
    case 'step':
      if (Atomics.load(cells, CELL_COMMITTED) > message.round) return;
      load(message.round);
      loader.forget(message.round);
      loader.prefetch(message.round + 1, message.replicas); // it is loaded while this round is computed
      steps.run(message.round, message.replicas);
      loader.prefetch(message.round + 1, message.replicas); // what had no free slot
      return guard.afterRound();
    case 'token':
      load(message.token.round);
      tokens.run(message.token, message.next);
      return guard.afterRound();
    case 'evaluate':
      return evaluate(message.generation, message.blocks);
    case 'stop':
      engine.dispose();
      void loader.stop();
      return port.close();
  }
}

port.on('message', (message: ToCompute) => {
  try {
    handle(message);
  } catch (error) {
    const round = message.kind === 'step' ? message.round : message.kind === 'token' ? message.token.round : -1;
    send({
      kind: 'failed',
      code: (error as Error).name.slice(0, 100),
      message: (error as Error).message,
      round: Math.max(round, 0),
      replica: -1,
    });
  }
});
send({ kind: 'ready', fingerprint: engine.fingerprint, devices: engine.devices, gradients: gradients.memory });
