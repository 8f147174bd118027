/**
 * The compute thread: owns the engine. It takes messages in order, works synchronously (tf.js operations block anyway) and
 * answers with contributions and gradient nodes. See compute-protocol.ts for who owns which memory.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { codecOf } from '@paceline/codecs';
import { createEngine, withSmallTables } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import { ARENA_MAXIMUM_BYTES } from '@paceline/kernels';
import { seatLayout } from '@paceline/hosting';
import { createLayout, createSchedule, exchangeOf, LocalUpdates, shardChunks, workerDescription } from '@paceline/learning';
import { backupReplicasOf, CODECS, movingRate, rateFactor, roundsOf, stepsBefore, type CodecSpec, type RunSpec } from '@paceline/spec';
import { BatchLoader } from './batch-loader.js';
import {
  CELL_BELLS,
  CELL_COMMITTED,
  CELL_PROGRESS,
  CELL_STOPPING,
  type ComputeInit,
  type ContributionMessage,
  type FromCompute,
  type ToCompute,
} from './compute-protocol.js';
import { evaluateBlocks } from './evaluate-blocks.js';
import { GradientMemory, gradientVectorsOf, LentVectors, type Vector, type VectorEncoder } from './gradient-memory.js';
import { LeakGuard } from './leak-guard.js';
import { leakOptions } from './leak-options.js';
import { handingOn, LocalReplicas } from './local-replicas.js';
import { ParameterLoads } from './parameter-loads.js';
import { ReplicaSteps, type ReplicaRounds, type StepOutputs } from './replica-steps.js';
import { SparseWork } from './sparse-work.js';
import { TableRows } from './table-rows.js';
import { addUp } from './thread-nodes.js';
import { ArrivedChunks } from './arrivals.js';
import { AsyncSteps } from './async-steps.js';
import { takeMessages } from './thread-messages.js';

/** At once. Replicas seldom move, so most of it is needed. */
const PREFETCHED_ROUNDS = 4;

const port = parentPort!;
const init = workerData as ComputeInit;
const cells = new Int32Array(init.cells);
const send = (message: FromCompute): void => port.postMessage(message);
const isStopping = (): boolean => Atomics.load(cells, CELL_STOPPING) === 1;

const { spec, data, description } = init;
const runLayout = createLayout(description);
const layout = seatLayout({ spec, model: description, data }, runLayout);
const loader = await BatchLoader.open({ spec, data, settings: init.rowsSettings, isStopping, threads: init.threads });
const tables =
  'dense' in layout
    ? new TableRows({
        run: runLayout,
        worker: layout,
        servers: init.servers,
        format: data.format,
        wants: (generation, group, ids) => send({ kind: 'wants', generation, group, ids }),
      })
    : undefined;
const built = tables
  ? {
      spec: withSmallTables(spec, data.format, description, ({ path }) => layout.variables.find((each) => each.path === path)!.shape[0]!),
      description: workerDescription(description, layout),
    }
  : { spec, description };
const engine = await createEngine({ ...built, ...init.engine, format: data.format, layout });
// The inner optimizer goes over whole vectors, so they lie in one arena. Of several threads each has its own for that.
const isLocal = spec.strategy.kind === 'local-update';
const lent = init.lent && new LentVectors(layout, init.lent);
const own =
  lent && !isLocal ? undefined : new GradientMemory(layout, gradientVectorsOf(spec, 1), isLocal ? ARENA_MAXIMUM_BYTES : undefined);
const gradients = lent ?? own!;
/** The part of this thread in the nodes that several threads add up. */
const ownChunks = shardChunks(layout, init.threads, init.thread);
const isAsynchronous = spec.strategy.mode !== 'sync';
const generations = (isAsynchronous ? [0] : [0, 1]).map(
  (i) => new Float32Array(init.parameters, i * layout.totalLength * 4, layout.totalLength),
);

const schedule = createSchedule({ ...roundsOf(spec, data.trainExamples), length: spec.length });
const examplesOf = (round: number): number => schedule.round(round).count;
const encoderOf = (codecSpec: CodecSpec | undefined): VectorEncoder | undefined => {
  const codec = codecOf(codecSpec, layout);
  return codec && own!.encoder(codec, codecSpec!, { seed: spec.seed, replicas: spec.replicas, examplesOf });
};
let encoder = encoderOf(spec.codec);

/** With `codec: auto`: from the round of this step on. */
let picked: string | undefined;
function pick(codec: string | undefined): void {
  if (codec === picked) return;
  picked = codec;
  const kind = CODECS.find((name) => name === codec) ?? 'none';
  encoder = encoderOf({ kind, errorFeedback: false });
}

/** The contribution of a leaf waits here when its node follows at once: one message says both. */
let contribution: ContributionMessage | undefined;
function contribute(round: number, replica: number, examples: number, sums: readonly number[], isNode: boolean): void {
  const message: ContributionMessage = { kind: 'contribution', round, replica, examples, sums };
  if (isNode) contribution = message;
  else send(message);
}

/** Hands a gradient on, as it is, or encoded where each is of one replica. */
function sendNode(round: number, lo: number, hi: number, vector: Vector): void {
  const leaf = contribution;
  contribution = undefined;
  const node = { kind: 'node', round, lo, hi, contribution: leaf } as const;
  if (sparse) return send({ ...node, vector, groups: sparse.gradients(lo, hi, gradients.pieces(vector), gradients.parts) });
  if (!encoder) return send({ ...node, vector });
  const sinceMs = spans.now();
  const { vector: bytes, parts, lost } = encoder.encode(round, lo, vector);
  spans.add('encode', sinceMs);
  gradients.free(vector);
  send({ ...node, ...(leaf && { contribution: { ...leaf, lost } }), vector: bytes, encoded: parts });
}

const guard = new LeakGuard(
  engine,
  leakOptions(init.leakLimits, (leak) => send({ kind: 'leak', leak })),
);
const hasBackups = backupReplicasOf(spec.strategy) > 0;
const outputs: StepOutputs = {
  contribution: contribute,
  node: sendNode,
  progress: () => void Atomics.add(cells, CELL_PROGRESS, 1),
  isObsolete: (round) => Atomics.load(cells, CELL_COMMITTED) > round || isStopping(),
};
const local =
  spec.strategy.kind === 'local-update'
    ? new LocalReplicas({
        engine: guard,
        load: (weights) => loadWeights(weights),
        loader,
        updates: localUpdates(spec.strategy),
        stepsBefore: (round) => stepsBefore(spec, round),
        generation: (round) => generations[round & 1]!,
        outputs,
      })
    : undefined;
/** Several threads: what a replica has come to goes from the memory of its thread to that of all. */
const handedOn: ReplicaRounds | undefined = local && lent && handingOn(local, own!, lent);
const sparse = tables && new SparseWork({ tables, loader, engine, vectors: generations, outputs, isStopping, send });
const steps = new ReplicaSteps(
  guard,
  sparse ?? loader,
  gradients,
  spec.replicas,
  () => hasBackups || encoder !== undefined,
  outputs,
  handedOn ?? local,
);

const items = new AsyncSteps(guard, loader, gradients, layout, generations[0]!, {
  contribution: contribute,
  node: sendNode,
  nonFinite: (round, replica) => send({ kind: 'non-finite', round, replica }),
  progress: () => void Atomics.add(cells, CELL_PROGRESS, 1),
});

function localUpdates({ localSteps, innerState }: Extract<RunSpec['strategy'], { kind: 'local-update' }>): LocalUpdates {
  const { optimizer, gradient: clip, freeze, learningRate, globalBatch } = spec;
  const factor = rateFactor(learningRate, { globalBatch, ...schedule });
  const keepsSlots = innerState === 'keep';
  return new LocalUpdates({
    arena: own!.onlyArena,
    layout,
    optimizer,
    clip,
    freeze,
    keepsSlots,
    movingRate: movingRate(spec),
    isExchanged: exchangeOf(spec, layout),
    localSteps,
    rateFactor: factor,
  });
}

/** Undefined where tables are exchanged by rows: arrivals count the chunks of the run, of which the vector here has a part. */
const loads = tables
  ? undefined
  : new ParameterLoads({ engine, layout, vectors: generations, arrived: new ArrivedChunks(init.arrivals, layout.chunks.length) });
/** The generation after that of the last step; −1 where nothing of it may be loaded before it is asked for. */
let following = -1;

function loadWeights(weights: Float32Array): void {
  loads?.forget();
  engine.load(weights);
}

/** Loads a chunk of the next generation, if one has come. */
function loadAhead(): boolean {
  if (!loads || following < 0) return false;
  const sinceMs = spans.now();
  const isLoaded = loads.loadAhead(following);
  if (isLoaded) spans.add('load parameters', sinceMs);
  return isLoaded;
}

/** @returns false where another generation has begun to take its place */
function load(generation: number): boolean {
  if (isAsynchronous) {
    engine.load(generations[0]!); // it changes without a number
    return true;
  }
  const sinceMs = spans.now();
  const isWhole = loads!.load(generation); // with tables SparseWork takes steps and evaluations
  spans.add('load parameters', sinceMs);
  return isWhole;
}

function evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
  evaluateBlocks(generation, blocks, { engine, loader, load: () => load(generation), send, progress: outputs.progress, isStopping });
}

function step({ round, replicas, codec }: Extract<ToCompute, { kind: 'step' }>): void {
  if (Atomics.load(cells, CELL_COMMITTED) > round) return;
  pick(codec);
  if (!local) {
    if (!load(round)) return; // the round is over
    following = round + 1;
  }
  loader.forget(round);
  loader.prefetch(round + 1, replicas, 0, local ? 1 : PREFETCHED_ROUNDS); // they are loaded while this round is computed
  steps.run(round, replicas);
  loader.prefetch(round + 1, replicas); // what had no free slot
  guard.afterRound();
}

/** Copies what a round has left of replicas: it stays as it is here while it is sent. */
function sendResiduals(round: number, replicas: readonly number[]): void {
  const residuals = replicas.flatMap((replica) => {
    const values = encoder?.residual(round, replica);
    return values ? [{ replica, values }] : [];
  });
  port.postMessage(
    { kind: 'residuals', round, residuals } satisfies FromCompute,
    residuals.map(({ values }) => values.buffer),
  );
}

function handle(message: ToCompute): void {
  if (isStopping() && message.kind !== 'stop') return;
  if (
    sparse?.takes(message, (round, replicas) => {
      spans.mark(round);
      steps.run(round, replicas);
      guard.afterRound();
    })
  )
    return;
  switch (message.kind) {
    case 'free':
      return message.vectors.forEach((vector) => gradients.free(vector));
    case 'step':
      for (const vector of message.free) gradients.free(vector);
      lent?.lend(message.lent ?? []);
      step(message);
      if (lent) send({ kind: 'stepped', vectors: lent.giveBack() });
      return;
    case 'sum':
      addUp(message.nodes, ownChunks, gradients);
      Atomics.add(cells, CELL_PROGRESS, 1);
      return send({ kind: 'summed', sum: message.sum });
    case 'item':
      load(message.item.round);
      items.run(message.item, message.next);
      return guard.afterRound();
    case 'read-residuals':
      return sendResiduals(message.round, message.replicas);
    case 'take-residual':
      return encoder?.takeResidual(message.round, message.replica, message.values);
    case 'rows':
    case 'flow':
      return; // it has no tables, and no stage
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

takeMessages(port, {
  handle,
  send,
  isStopping,
  bell: { cells, cell: CELL_BELLS + init.thread },
  ahead: loadAhead,
});
send({
  kind: 'ready',
  fingerprint: engine.fingerprint,
  devices: engine.devices,
  gradients: lent ? undefined : { memories: own!.memories, parts: own!.parts },
});
