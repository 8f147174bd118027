/**
 * A run small enough that thousands go by in a minute, and real enough that its bits mean something: a handful of chunks of a few
 * float32, the real schedule, tree and optimizer, and a replica step whose sums depend on the order of addition and on every
 * weight. reference.ts computes the same run in a plain loop.
 */
import { Arena } from '@paceline/kernels';
import {
  createInitialValues,
  createOptimizer,
  createSchedule,
  exchangeOf,
  layoutHash,
  replicaRows,
  type Layout,
  type LayoutVariable,
  type Optimizer,
  type Schedule,
} from '@paceline/learning';
import {
  appliedByServers,
  runSpecSchema,
  roundsOf,
  stepsBefore,
  type CodecSpec,
  type ModelDescription,
  type OptimizerSpec,
  type RunData,
  type RunSpec,
} from '@paceline/spec';
import type { GradientShape, LocalShape } from './gradient-shape.js';
import type { Random } from '../world/random.js';
import type { AsyncShape } from './async-run.js';

/** Attempts that may be started anew, where a seed does not draw fewer. */
export const RESTARTS = 10;

export interface RunShape {
  readonly servers: number;
  readonly replicas: number;
  readonly chunks: readonly { readonly length: number; readonly section: 'trainable' | 'state' }[];
  /** A table that is exchanged by rows, behind the other trainable variables. */
  readonly table?: TableShape | undefined;
  /** Variables whose elements make whole rows of so many are matrices; without it all are vectors. */
  readonly columns?: number | undefined;
  readonly examples: number;
  readonly globalBatch: number;
  readonly rounds: number;
  readonly evalExamples: number;
  /** Examples that validations measure in place of the evaluation split. */
  readonly heldOutExamples?: number | undefined;
  /** Rounds between two checkpoints; 0 for none. */
  readonly checkpointEveryRounds: number;
  readonly optimizer: OptimizerSpec;
  /** Standby servers per shard. */
  readonly standby: 0 | 1;
  readonly gradient: GradientShape;
  /** `spec.strategy.startWorkers`. */
  readonly startWorkers?: number | undefined;
  /** Workers of any engine take part. */
  readonly engine?: 'mixed' | undefined;
  /** `spec.restarts`; RESTARTS without it. */
  readonly restarts?: number | undefined;
  /** Mode sync: when the run validates while it trains, and what follows. */
  readonly validation?: ValidationShape | undefined;
  /** Modes async and ssp; undefined is mode sync. */
  readonly items?: AsyncShape | undefined;
  readonly codec?: CodecSpec | undefined;
  /** Strategy local-update. */
  readonly local?: LocalShape | undefined;
  /** Strategy multi-worker-mirrored, or local-update with `workers`: the workers hold the shards, and there are no servers. */
  readonly isMirrored?: boolean | undefined;
  /** With multi-worker-mirrored: the fewest workers that it goes on with by itself. */
  readonly minWorkers?: number | undefined;
  readonly maxWorkers?: number | undefined;
}

export interface TableShape {
  readonly rows: number;
  readonly width: number;
  /** Rows that an example names. */
  readonly perReplica: number;
}

/** Rows of a table that lie in one chunk. */
const CHUNK_ROWS = 2;

export interface ValidationShape {
  readonly everyRounds: number;
  readonly patience: number;
  readonly restoreBest: boolean;
  /** The learning rate falls where the loss stands still. */
  readonly lowersRate: boolean;
}

/** Half of the runs that have something to measure validate. */
export function randomValidation(random: Random): ValidationShape | undefined {
  if (random.chance(0.5)) return undefined;
  return { everyRounds: random.int(1, 3), patience: random.int(0, 2), restoreBest: random.chance(0.6), lowersRate: random.chance(0.5) };
}

/** In some runs of mode sync: an optimizer that looks at whole variables, and does not go with every gradient; a moving average of the weights. */
export function randomRefinement(random: Random, optimizer: OptimizerSpec, gradient: GradientShape): OptimizerSpec {
  const layerwise: readonly OptimizerSpec[] = [
    { name: 'lamb', learningRate: 0.05, beta1: 0.9, beta2: 0.999, epsilon: 1e-7, weightDecay: 0.01 },
    { name: 'lars', learningRate: 0.5, momentum: 0.9, weightDecay: 0.01, trustCoefficient: 0.1, epsilon: 1e-7 },
  ];
  const { clipNorm, clipGlobalNorm, backupReplicas } = gradient;
  const isFree = clipNorm === undefined && clipGlobalNorm === undefined && backupReplicas === 0;
  const chosen = random.chance(0.25) && isFree ? random.pick(layerwise) : optimizer;
  if (random.chance(0.8)) return chosen;
  return { ...chosen, emaMomentum: 0.9, ...(random.chance(0.5) ? { emaOverwriteRounds: random.int(2, 4) } : {}) };
}

export function randomShape(random: Random): Omit<RunShape, 'gradient' | 'standby'> {
  const trainable = random.int(1, 5);
  const states = random.int(0, 1);
  const chunks = Array.from({ length: trainable + states }, (_, i) => ({
    length: random.int(1, 6),
    section: i < trainable ? ('trainable' as const) : ('state' as const),
  }));
  const replicas = random.int(1, 8);
  return {
    servers: random.int(1, 3),
    replicas,
    chunks,
    examples: random.int(5, 60),
    globalBatch: random.int(Math.max(3, replicas), 20),
    rounds: random.int(3, 9),
    evalExamples: random.pick([0, 400, 1200]),
    checkpointEveryRounds: random.pick([0, 1, 2, 3]),
    optimizer: random.pick<OptimizerSpec>([
      { name: 'sgd', learningRate: 0.1 },
      { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false },
      { name: 'adam', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
    ]),
  };
}

function strategyOf({ servers, standby, items, gradient, startWorkers, local, isMirrored, minWorkers, maxWorkers }: RunShape): object {
  const { backupReplicas } = gradient;
  if (isMirrored && local) return { kind: 'local-update', workers: servers, standby, ...local };
  if (isMirrored) return { kind: 'multi-worker-mirrored', workers: servers, standby, minWorkers, maxWorkers };
  const common = { servers, standby, backupReplicas, startWorkers };
  if (local) return { kind: 'local-update', ...common, ...local };
  const { mode = 'sync', stalenessBound, delayCompensation, stalenessScaledRate } = items ?? {};
  return {
    kind: 'parameter-server',
    mode,
    ...common,
    ...(items && { delayCompensation, stalenessScaledRate }),
    ...(mode === 'ssp' && { stalenessBound }),
  };
}

/** Spec and model as the api would have them, so that servers and workers are given what they are given in production. */
function specOf(shape: RunShape, stepDeadlineMs: number): RunSpec {
  const { items, gradient, checkpointEveryRounds, validation } = shape;
  const { nonFinite, clipNorm, clipGlobalNorm } = gradient;
  const parsed = runSpecSchema.safeParse({
    globalBatch: shape.globalBatch,
    replicas: shape.replicas,
    optimizer: shape.optimizer,
    ...(shape.engine && { engine: shape.engine }),
    ...(shape.table && { engine: 'wasm', embeddings: { kind: 'sparse' } }),
    ...(shape.codec && { codec: shape.codec }),
    length: { rounds: shape.rounds },
    stepDeadlineMs,
    restarts: shape.restarts ?? RESTARTS,
    seed: 1,
    strategy: strategyOf(shape),
    gradient: {
      nonFinite: items?.nonFinite ?? nonFinite,
      ...(clipNorm === undefined ? {} : { clipNorm }),
      ...(clipGlobalNorm === undefined ? {} : { clipGlobalNorm }),
    },
    ...(validation && {
      validation: { everyRounds: validation.everyRounds },
      earlyStopping: { patience: validation.patience, restoreBest: validation.restoreBest },
      ...(validation.lowersRate ? { reduceLROnPlateau: { patience: 1, factor: 0.5 } } : {}),
    }),
    checkpoint: {
      everySeconds: 0,
      final: checkpointEveryRounds > 0,
      ...(checkpointEveryRounds > 0 ? { everyRounds: checkpointEveryRounds } : {}),
    },
  });
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`);
  throw new Error(`no run can have this shape: ${faults.join('; ')}`);
}

/** Pairs of chunks make a variable, so that some lie on two servers; one chunk of state is one variable. */
function layoutOf({ chunks: shapes, columns = 1, table }: RunShape): Layout {
  const variables: LayoutVariable[] = [];
  const chunks: Chunk[] = [];
  let offset = 0;
  const addChunk = (section: Chunk['section'], length: number, of?: number): void => {
    chunks.push({ index: chunks.length, section, offset, length, ...(of === undefined ? {} : { table: of }) });
    offset += length;
  };
  const addTable = ({ rows, width }: TableShape): void => {
    const length = rows * width;
    variables.push({ path: 'table', shape: [rows, width], section: 'trainable', offset, length, rows: { input: 0 } });
    for (let row = 0; row < rows; row += CHUNK_ROWS) addChunk('trainable', Math.min(CHUNK_ROWS, rows - row) * width, variables.length - 1);
  };
  const firstState = shapes.findIndex(({ section }) => section === 'state');
  for (const [index, { length, section }] of shapes.entries()) {
    const last = variables.at(-1);
    if (table && index === firstState) addTable(table);
    if (section === 'trainable' && index % 2 === 1 && last) variables[variables.length - 1] = widened(last, length);
    else variables.push({ path: `v${variables.length}`, shape: [length], section, offset, length });
    addChunk(section, length);
  }
  if (table && firstState < 0) addTable(table);
  const isMatrix = ({ length, rows }: LayoutVariable): boolean => !rows && columns > 1 && length > columns && length % columns === 0;
  for (const [i, variable] of variables.entries())
    if (isMatrix(variable)) variables[i] = Object.assign({}, variable, { shape: [variable.length / columns, columns] });
  const stateLength = shapes.reduce((sum, { length, section }) => sum + (section === 'state' ? length : 0), 0);
  return { variables, trainableLength: offset - stateLength, stateLength, totalLength: offset, chunks };
}

type Chunk = Layout['chunks'][number];

const widened = (variable: LayoutVariable, by: number): LayoutVariable => ({
  ...variable,
  shape: [variable.length + by],
  length: variable.length + by,
});

/** Its rows are of no interest to servers and seats. */
export function dataOf({
  examples,
  evalExamples,
  heldOutExamples,
}: Pick<RunShape, 'examples' | 'evalExamples' | 'heldOutExamples'>): RunData {
  return {
    source: { kind: 'built-in', name: 'tiny' },
    format: { inputs: [{ name: 'input', shape: [1] }], targets: [{ name: 'a', kind: 'values', shape: [1] }], isWeighted: false },
    trainExamples: examples,
    evalExamples,
    ...(heldOutExamples === undefined ? {} : { heldOutExamples }),
    evaluateOn: 'test',
  };
}

function modelOf({ variables, trainableLength, stateLength }: Layout): ModelDescription {
  const initializer = { className: 'RandomUniform', config: { minval: -1, maxval: 1 } };
  return {
    variables: variables.map(({ path, shape, section, rows }) => ({
      path,
      shape: [...shape],
      section,
      initializer,
      ...(rows && { rows }),
    })),
    inputs: [{ name: 'input', shape: [1] }],
    outputs: [{ name: 'a', shape: [1] }],
    parameterCount: trainableLength,
    stateCount: stateLength,
  };
}

export class TinyRun {
  readonly spec: RunSpec;
  readonly model: ModelDescription;
  readonly layout: Layout;
  readonly layoutHash: string;
  /** Generation 0. */
  readonly initial: Float32Array;
  readonly schedule: Schedule;
  readonly optimizer: Optimizer;
  /** Whether a round exchanges a chunk, where it exchanges a part. */
  readonly isExchanged: ReturnType<typeof exchangeOf>;
  /** Replica gradients that are no numbers, by `round/replica`: the element, and what stands there. */
  readonly spoiled = new Map<string, { readonly element: number; readonly value: number }>();

  constructor(
    readonly shape: RunShape,
    stepDeadlineMs: number,
  ) {
    this.spec = specOf(shape, stepDeadlineMs);
    this.layout = layoutOf(shape);
    this.layoutHash = layoutHash(this.layout);
    this.model = modelOf(this.layout);
    this.initial = new Float32Array(this.layout.totalLength);
    createInitialValues(this.model, this.spec.seed).fill(0, this.initial);
    this.schedule = createSchedule({ ...roundsOf(this.spec, shape.examples), length: { rounds: shape.rounds } });
    this.isExchanged = exchangeOf(this.spec, this.layout);
    this.optimizer = createOptimizer(appliedByServers(this.spec).optimizer);
  }

  /** Steps of each replica in a round: one, but for local steps, of which the last round of an epoch may have fewer. */
  stepsIn(round: number): number {
    const { local, globalBatch } = this.shape;
    return local ? Math.min(local.localSteps, Math.ceil(this.schedule.round(round).count / globalBatch)) : 1;
  }

  /** Examples of a replica in one of the steps of a round. */
  stepExamples(round: number, replica: number, localStep: number): number {
    const { from, to } = replicaRows(this.replicaExamples(round, replica), this.stepsIn(round), localStep);
    return to - from;
  }

  replicaExamples(round: number, replica: number): number {
    const { from, to } = replicaRows(this.schedule.round(round).count, this.shape.replicas, replica);
    return to - from;
  }

  /** Rows of the table that a replica names in a round, ascending; none where it has no examples. */
  rowsOf(round: number, replica: number): number[] {
    const { table } = this.shape;
    if (!table || this.replicaExamples(round, replica) === 0) return [];
    const ids = Array.from({ length: table.perReplica }, (_, i) => (round * 3 + replica * 5 + i * (2 + replica)) % table.rows);
    return [...new Set(ids)].sort((a, b) => a - b);
  }

  /** Elements of the table. */
  get tableRange(): { readonly from: number; readonly to: number; readonly width: number } {
    const variable = this.layout.variables.find(({ rows }) => rows);
    return variable
      ? { from: variable.offset, to: variable.offset + variable.length, width: variable.shape[1]! }
      : { from: Infinity, to: Infinity, width: 1 };
  }

  /** Sums of the loss and its metric over rows of the evaluation split. They go up and down with the weights, but for those of a table. */
  measured(weights: Float32Array, from: number, to: number): [loss: number, errors: number, examples: number] {
    const table = this.tableRange;
    let mix = 0;
    for (const [i, weight] of weights.entries()) if (i < table.from || i >= table.to) mix += weight * (i + 1);
    return [(to - from) * (1 + Math.sin(mix * 3)) + to * 1e-6, to - from, to - from];
  }

  /** Puts what is no number into the gradient that a worker has computed, where that is spoiled. */
  spoil(round: number, replica: number, out: Float32Array): void {
    const spoiled = this.spoiled.get(`${round}/${replica}`);
    if (!spoiled) return;
    // Rows that nobody has named are not sent.
    const table = this.tableRange;
    out[spoiled.element >= table.from && spoiled.element < table.to ? 0 : spoiled.element] = spoiled.value;
  }

  /** The sum over these replicas has NaN or infinity, and the run leaves such rounds out. */
  isLeftOut(round: number, replicas: readonly number[]): boolean {
    if (this.spoiled.size === 0 || this.shape.gradient.nonFinite !== 'skip') return false;
    return replicas.some((replica) => this.spoiled.has(`${round}/${replica}`));
  }

  /** Sum gradient (and new state times examples) of one replica: a pure function, as docs/protocol.md §7.1 wants it. */
  step(weights: Float32Array, round: number, replica: number, out: Float32Array, localStep = 0): void {
    const count = this.stepExamples(round, replica, localStep);
    const number = stepsBefore(this.spec, round) + localStep;
    const { from, to, width } = this.tableRange;
    const named = new Set(this.rowsOf(round, replica));
    const isRead = (i: number): boolean => i < from || i >= to || named.has(Math.floor((i - from) / width));
    let mix = 0;
    for (const [i, weight] of weights.entries()) if (isRead(i)) mix += weight;
    for (let i = 0; i < out.length; i++)
      out[i] =
        count === 0 || !isRead(i)
          ? 0
          : Math.fround(Math.sin(i * 0.37 + replica * 1.9 + number * 0.71 + mix * 0.05) * (1 + replica) + weights[i]! * 0.01) * count;
  }
}

const arenas: Arena[] = [];

/** Arenas outlive a seed: instantiating kernels costs more than most runs. */
export function takeArena(): Arena {
  return arenas.pop() ?? Arena.create({ initialBytes: 1 << 20, maximumBytes: 16 << 20 });
}

let scratch: Arena | undefined;
const SCRATCH_BYTES = 8 << 20;

/** For what replicas compute with, which gives nothing back: another one before it is full. */
export function scratchArena(): Arena {
  if (!scratch || scratch.bytesInUse > SCRATCH_BYTES) scratch = Arena.create({ initialBytes: 1 << 20, maximumBytes: 4 * SCRATCH_BYTES });
  return scratch;
}

/** Only an arena of which nothing is in use may be used again; any other is left to the garbage collector. */
export function giveArena(arena: Arena): void {
  if (arena.bytesInUse === 0) arenas.push(arena);
}
