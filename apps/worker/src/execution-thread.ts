/**
 * A compute thread that takes several steps in a round, together with the others of its seat (strategy tpu). It takes messages as compute-thread.ts does, and works on them
 * synchronously; in a round it waits for the other threads in shared memory (execution-cells.ts).
 */
import { parentPort, workerData } from 'node:worker_threads';
import { createEngine } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, createSchedule, shardChunks, SharedUpdates } from '@paceline/learning';
import { rateFactor, roundsOf } from '@paceline/spec';
import { BatchLoader } from './batch-loader.js';
import { CELL_PROGRESS, CELL_STOPPING, type ComputeInit, type FromCompute, type ToCompute } from './compute-protocol.js';
import { evaluateBlocks } from './evaluate-blocks.js';
import { ExecutionCells, replicasOf } from './execution-cells.js';
import { ExecutionSteps } from './execution-steps.js';
import { LentVectors } from './gradient-memory.js';
import { LeakGuard } from './leak-guard.js';
import { leakOptions } from './leak-options.js';
import { takeMessages } from './thread-messages.js';

/** Share of the step deadline after which a thread says what it waits for: after the loader would have, and before the worker is declared lost. */
const WAIT_SHARE = 0.9;

const port = parentPort!;
const init = workerData as ComputeInit;
const cells = new Int32Array(init.cells);
const send = (message: FromCompute): void => port.postMessage(message);
const isStopping = (): boolean => Atomics.load(cells, CELL_STOPPING) === 1;
const progress = (): void => void Atomics.add(cells, CELL_PROGRESS, 1);

const { spec, data, description, thread, threads } = init;
const memory = init.execution!;
const layout = createLayout(description);
const loader = await BatchLoader.open({ spec, data, settings: init.rowsSettings, isStopping, threads });
const engine = await createEngine({ spec, description, ...init.engine, format: data.format, layout });
const guard = new LeakGuard(
  engine,
  leakOptions(init.leakLimits, (leak) => send({ kind: 'leak', leak })),
);
const generations = [0, 1].map((i) => new Float32Array(init.parameters, i * layout.totalLength * 4, layout.totalLength));
const arena = Arena.attach(init.lent!.memories[0]!);
const gradients = new LentVectors(layout, init.lent!);
gradients.lend(memory.lent[thread]!);

const schedule = createSchedule({ ...roundsOf(spec, data.trainExamples), length: spec.length });
const { optimizer, gradient: clip, freeze, learningRate, globalBatch, replicas } = spec;
const [chunks, own] = [shardChunks(layout, threads, thread), replicasOf(replicas, threads, thread)];
const measured = memory.measured && new Float64Array(memory.measured);
const steps = new ExecutionSteps({
  spec,
  examples: data.trainExamples,
  engine: guard,
  load: (weights) => loadWeights(weights),
  loader,
  layout,
  arena,
  gradients,
  memory,
  cells: new ExecutionCells(memory, {
    replicas,
    threads,
    thread,
    deadlineMs: spec.stepDeadlineMs * WAIT_SHARE,
    progress: () => Atomics.load(cells, CELL_PROGRESS),
  }),
  updates: new SharedUpdates({ arena, layout, chunks, optimizer, clip, freeze, measured, weights: memory.weights, slots: memory.slots }),
  isMeasured: measured !== undefined,
  rateFactor: rateFactor(learningRate, { globalBatch, ...schedule }),
  replicas: own,
  chunks,
  isFirst: thread === 0,
  contribution: send,
  progress,
});

/** The generation that the engine has; −1 when it has weights between two of them. */
let loaded = -1;
function loadWeights(weights: Float32Array): void {
  loaded = -1;
  engine.load(weights);
}

function execute({ round, lent }: Extract<ToCompute, { kind: 'step' }>): void {
  loader.forget(round);
  loader.prefetchSteps(round, own, 0);
  const isFinite = steps.execute(round, generations[round & 1]!, lent![0]!);
  send({ kind: 'executed', round, isFinite });
  guard.afterRound();
}

function evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
  const load = (): boolean => {
    if (loaded !== generation) engine.load(generations[generation & 1]!);
    loaded = generation;
    return true;
  };
  evaluateBlocks(generation, blocks, { engine, loader, load, send, progress, isStopping });
}

function handle(message: ToCompute): void {
  switch (message.kind) {
    case 'step':
      return execute(message);
    case 'evaluate':
      return evaluate(message.generation, message.blocks);
    case 'trace':
      if (message.isOn) return spans.start();
      return send({ kind: 'traced', recording: spans.stop() });
    default:
      throw new Error(`a thread of strategy tpu does not take ${message.kind}: the spec is refused where a run needs it`);
  }
}

takeMessages(port, { handle, send });
send({ kind: 'ready', fingerprint: engine.fingerprint, devices: engine.devices, gradients: undefined });
