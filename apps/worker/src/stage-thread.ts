/**
 * A compute thread that has one stage of the model (strategy model-parallel). It takes messages as compute-thread.ts does, and works on them synchronously; while it
 * does, it waits for the stages beside it in shared memory (stage-flow.ts).
 */
import { parentPort, workerData } from 'node:worker_threads';
import { createStageEngine, type Batch } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import { createLayout } from '@paceline/learning';
import { stageCutsOf } from '@paceline/spec';
import { BatchLoader, evaluationExamples, evaluationParts, type EvaluationPart } from './batch-loader.js';
import { BatchPlan } from './batch-plan.js';
import {
  CELL_COMMITTED,
  CELL_PROGRESS,
  type ComputeInit,
  type ContributionMessage,
  type FromCompute,
  type ToCompute,
} from './compute-protocol.js';
import { LentVectors, rangesOf } from './gradient-memory.js';
import { LeakWatch } from './leak-guard.js';
import { leakOptions } from './leak-options.js';
import { StageFlow } from './stage-flow.js';
import { StageSteps } from './stage-steps.js';
import { takeMessages } from './thread-messages.js';

/** At once. Replicas seldom move, so most of it is needed. */
const PREFETCHED_ROUNDS = 4;
/** The first stage and the last one read rows as a rule, and share the bound on their memory. */
const LOADERS = 2;
/** Share of the step deadline after which a stage says what it waits for: after the loader would have, and before the worker is declared lost. */
const WAIT_SHARE = 0.9;

const port = parentPort!;
const init = workerData as ComputeInit;
const cells = new Int32Array(init.cells);
const send = (message: FromCompute): void => port.postMessage(message);
const progress = (): void => void Atomics.add(cells, CELL_PROGRESS, 1);

const { spec, data, description, thread: stage, threads: stages } = init;
const layout = createLayout(description);
const { backend } = init.engine;
const engine = await createStageEngine({ spec, format: data.format, layout, cuts: stageCutsOf(spec.strategy)!, index: stage, backend });
const isLast = stage === stages - 1;
const plan = new BatchPlan({ spec, examples: data.trainExamples, heldOutExamples: data.heldOutExamples, format: data.format });
/** A stage that reads no input needs no augmented one. */
const read = engine.fields.length > 0 ? spec : Object.assign({}, spec, { augmentation: undefined });
const loader =
  isLast || engine.fields.length > 0
    ? await BatchLoader.open({ spec: read, data, settings: init.rowsSettings, sharers: LOADERS })
    : undefined;
const gradients = new LentVectors(layout, init.lent!);
const own = rangesOf(layout, engine.stage.variables);
const generations = [0, 1].map((i) => new Float32Array(init.parameters, i * layout.totalLength * 4, layout.totalLength));
const evaluationRows = evaluationExamples(data);

const guard = new LeakWatch(
  engine,
  leakOptions(init.leakLimits, (leak) => send({ kind: 'leak', leak })),
);

/** A contribution waits here when its node follows at once: one message says both. */
let contribution: ContributionMessage | undefined;
let flow: StageFlow;
let steps: StageSteps;

function begin({ memory, sizes }: Extract<ToCompute, { kind: 'flow' }>): void {
  flow = new StageFlow(memory, Object.assign({ deadlineMs: spec.stepDeadlineMs * WAIT_SHARE }, sizes), stage, () =>
    Atomics.load(cells, CELL_PROGRESS),
  );
  steps = new StageSteps({
    engine,
    flow,
    loader,
    plan,
    gradients,
    own,
    stage,
    stages,
    replicas: spec.replicas,
    load,
    outputs: {
      contribution: (round, replica, examples, sums, isNode) => {
        const message: ContributionMessage = { kind: 'contribution', round, replica, examples, sums };
        if (isNode) contribution = message;
        else send(message);
      },
      node: (round, lo, hi, vector) => {
        send({ kind: 'node', round, lo, hi, vector, contribution });
        contribution = undefined;
      },
      progress,
      isObsolete: (round) => Atomics.load(cells, CELL_COMMITTED) > round,
    },
  });
}

let loaded = -1;
function load(generation: number): void {
  if (loaded === generation) return;
  const sinceMs = spans.now();
  engine.load(generations[generation & 1]!);
  spans.add('load parameters', sinceMs);
  loaded = generation;
}

function step({ round, replicas, lent }: Extract<ToCompute, { kind: 'step' }>): void {
  gradients.lend(lent ?? []);
  loader?.forget(round);
  if (Atomics.load(cells, CELL_COMMITTED) <= round) {
    loader?.prefetch(round, replicas);
    loader?.prefetch(round + 1, replicas, 0, PREFETCHED_ROUNDS); // they are loaded while this round is computed
  }
  const run = (): void => steps.run(round, replicas);
  guard.watch(run, () => engine.traced(run));
  loader?.prefetch(round + 1, replicas); // what had no free slot
  send({ kind: 'stepped', vectors: gradients.giveBack() });
  guard.afterRound();
}

function evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
  load(generation);
  const parts = evaluationParts(blocks, evaluationRows);
  let sums = engine.metricNames.map(() => 0);
  flow.begin(parts.length);
  for (const [i, part] of parts.entries()) {
    const next = parts[i + 1];
    evaluatePart(i, part, next).forEach((value, m) => (sums[m]! += value));
    progress();
    const { block, to } = part;
    if (to < block.to) continue;
    send({ kind: 'evaluated', generation, from: block.from, to: block.to, examples: block.to - block.from, sums });
    sums = engine.metricNames.map(() => 0);
  }
  flow.end();
}

function evaluatePart(part: number, { from, to }: EvaluationPart, next: EvaluationPart | undefined): Float64Array {
  flow.comes(part);
  if (!isLast) flow.hasRoom(part);
  const rows = loader?.takeEvaluation(from, to);
  if (next) loader?.prefetchEvaluation(next.from, next.to);
  const count = to - from;
  const received = stage > 0 ? [flow.evaluated(stage - 1, part, count)] : [];
  const batch: Batch = {
    inputs: [...received, ...engine.fields.map((field) => rows!.inputs[field]!)],
    targets: rows?.targets ?? [],
    weights: rows?.weights,
    count,
  };
  const sums = engine.evaluate(batch, isLast ? undefined : flow.evaluated(stage, part, count));
  loader?.releaseEvaluation(from, to);
  flow.returned(part);
  flow.passed(part);
  return sums;
}

function handle(message: ToCompute): void {
  switch (message.kind) {
    case 'flow':
      return begin(message);
    case 'step':
      return step(message);
    case 'evaluate':
      return evaluate(message.generation, message.blocks);
    case 'trace':
      if (message.isOn) return spans.start();
      return send({ kind: 'traced', recording: spans.stop() });
    default:
      throw new Error(`a stage does not take ${message.kind}: the spec is refused where a run needs it`);
  }
}

takeMessages(port, { handle, send });
const { layers, passed } = engine.stage;
send({
  kind: 'ready',
  fingerprint: engine.fingerprint,
  devices: engine.devices,
  gradients: undefined,
  stage: { layers, width: passed?.reduce((a, b) => a * b, 1), rows: plan.maxExamples, evaluationRows },
});
