/**
 * What a simulated run of mode sync does beyond a gradient for each replica: a codec on the way there and back, local steps, shards on the workers. A
 * seed draws it from streams of its own, so a seed that draws none of it means what it would mean without.
 */
import { VALUE_KINDS, keepsRest, type CodecSpec } from '@paceline/spec';
import type { Random } from '../world/random.js';
import { STREAMING } from './gradient-shape.js';
import type { RunShape } from './tiny-run.js';

/** Replicas keep something from one round to the next where they are computed: which worker computed them decides the bits. */
export const keepsOfReplicas = ({ codec, local }: Pick<RunShape, 'codec' | 'local'>): boolean =>
  (codec !== undefined && keepsRest(codec)) ||
  local?.innerState === 'keep' ||
  local?.outerOptimizer === 'elastic' ||
  local?.fragments !== undefined;

/** What replicas keep goes with rounds that take all that was sent. */
const mayKeep = ({ gradient: { backupReplicas, nonFinite }, items }: Pick<RunShape, 'gradient' | 'items'>): boolean =>
  !items && backupReplicas === 0 && nonFinite !== 'skip';

/** Norms are taken of whole variables, before any of them changes. */
const takesNorms = ({ optimizer: { name }, gradient: { clipNorm, clipGlobalNorm } }: Pick<RunShape, 'optimizer' | 'gradient'>): boolean =>
  name === 'lamb' || name === 'lars' || clipNorm !== undefined || clipGlobalNorm !== undefined;

const MANY = { chunks: 24, servers: 5, replicas: 16 };

/** A part of the runs is larger than the others: in chunks, in servers, or in replicas. */
export function widened(random: Random, shape: RunShape): RunShape {
  const { chunks, servers, replicas, globalBatch } = shape;
  const [hasChunks, hasServers, hasReplicas] = [random.chance(0.25), random.chance(0.15), random.chance(0.15)];
  const more = Array.from({ length: random.int(6, MANY.chunks) }, () => ({ length: random.int(1, 6), section: 'trainable' as const }));
  const wide = hasReplicas ? random.int(replicas, MANY.replicas) : replicas;
  return {
    ...shape,
    chunks: hasChunks ? [...more, ...chunks.filter(({ section }) => section === 'state')] : chunks,
    servers: hasServers ? random.int(servers, MANY.servers) : servers,
    replicas: wide,
    globalBatch: Math.max(globalBatch, wide),
  };
}

/** In a part of the runs. Chunks are short here, so the shares that are sent are large. */
export function randomCodec(random: Random, { optimizer, gradient, items }: Pick<RunShape, 'optimizer' | 'gradient' | 'items'>) {
  if (random.chance(0.6)) return undefined;
  const kind = random.pick(['none', 'fp16', 'bf16', 'int8', 'int4', 'int2', 'sign', 'top-k', 'threshold', 'random-k', 'dgc'] as const);
  const [wantsFeedback, density] = [random.chance(0.6), random.pick([0.1, 0.25, 0.5])];
  const parameters = random.pick([undefined, undefined, 'fp16', 'bf16', 'int8'] as const);
  const keeps = mayKeep({ gradient, items });
  if (kind === 'dgc' && (!keeps || optimizer.name !== 'sgd')) return undefined;
  const values = random.pick(VALUE_KINDS);
  const errorFeedback = wantsFeedback && keeps && kind !== 'none' && kind !== 'dgc';
  const isSparse = kind === 'top-k' || kind === 'random-k' || kind === 'threshold';
  return {
    kind,
    errorFeedback,
    // By what is drawn already.
    ...(errorFeedback && density === 0.25 ? { feedbackRule: 'ef21' as const } : {}),
    ...(kind === 'threshold' ? { threshold: random.pick([0.1, 0.5, 2]) } : {}),
    ...(['top-k', 'random-k'].includes(kind) ? { density } : {}),
    ...(isSparse && values !== 'float32' ? { values } : {}),
    ...(kind === 'dgc' ? { density: Math.min(density, 0.25), warmupRounds: random.pick([0, 3]), momentum: 0.9 } : {}),
    ...(parameters && !items ? { parameters } : {}),
  } satisfies CodecSpec;
}

const COLUMNS = 4;

/** In a few of the runs: power-sgd, with matrices that are worth it, and that chunks cut in the middle of a row. Small ones stay as they are. */
export function withPowerSgd(random: Random, shape: RunShape): RunShape {
  if (random.chance(0.9) || !mayKeep(shape)) return shape;
  const parameters = random.pick([undefined, undefined, 'fp16', 'bf16', 'int8'] as const);
  const { chunks } = shape;
  // Pairs of chunks make a variable.
  const cut = (i: number): number => (i % 2 === 1 ? -2 : chunks[i + 1]?.section === 'trainable' ? 2 : 0);
  return {
    ...shape,
    codec: { kind: 'power-sgd', errorFeedback: false, ...(parameters && { parameters }) },
    columns: COLUMNS,
    chunks: chunks.map(({ length, section }, i) => ({ section, length: section === 'trainable' ? COLUMNS * length + cut(i) : length })),
  };
}

/** In a few of the runs: a table that is exchanged by rows. */
export function withTable(random: Random, shape: RunShape): RunShape {
  const { codec, local, isMirrored, optimizer } = shape;
  if (random.chance(0.75) || !mayKeep(shape) || takesNorms(shape) || codec || local || isMirrored) return shape;
  const { emaMomentum: _, emaOverwriteRounds: __, ...plain } = optimizer;
  const table = { rows: random.int(3, 9), width: random.int(1, 3), perReplica: random.int(1, 3) };
  return { ...shape, table, standby: 0, startWorkers: undefined, optimizer: plain as RunShape['optimizer'] };
}

/** A shape with local steps, and what they go with. */
export function withLocalSteps(random: Random, shape: RunShape): RunShape {
  const localSteps = random.int(1, 4);
  const { optimizer, gradient, codec, validation } = shape;
  const innerState = random.chance(0.4) && gradient.backupReplicas === 0 ? 'keep' : 'reset';
  const drawn = random.pick(['sgd', 'momentum', 'nesterov'] as const);
  // In half of the runs whose replicas keep slots they keep weights too, and in those alone: this draws no further number.
  const isElastic = innerState === 'keep' && localSteps % 2 === 0 && (!codec || !keepsRest(codec));
  const outerOptimizer = isElastic ? 'elastic' : drawn;
  const { emaMomentum: _, emaOverwriteRounds: __, ...inner } = optimizer;
  const mayBegin = outerOptimizer === 'sgd' && (innerState === 'keep' || inner.name === 'sgd') && shape.rounds > 3;
  const parts = shape.chunks.filter(({ section }) => section === 'trainable').length;
  const mayCut = innerState === 'keep' && (drawn === 'momentum' || drawn === 'nesterov') && !isElastic && !codec && shape.standby === 0;
  // By what is drawn already, so that seeds mean what they meant.
  const local = {
    localSteps,
    outerOptimizer,
    innerState,
    ...(mayCut && parts > 1 && { fragments: 2 + (shape.examples % (parts - 1)) }),
    ...(mayBegin && { syncSteps: 1 + (shape.examples % 3) }),
  } as const;
  const adam = { name: 'adam', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 } as const;
  return {
    ...shape,
    local,
    examples: Math.max(shape.examples, shape.globalBatch * localSteps),
    optimizer: inner.name === 'lamb' || inner.name === 'lars' ? adam : (inner as RunShape['optimizer']),
    ...(innerState === 'keep' ? { gradient: STREAMING, validation: undefined } : {}),
    ...(codec?.kind === 'dgc' ? { codec: undefined } : {}),
    ...(validation && innerState === 'reset' ? { validation: { ...validation, lowersRate: false } } : {}),
  };
}

/** The same without parameter servers: its workers hold the shards. */
export function mirrored(shape: RunShape): RunShape {
  const { servers, standby, gradient } = shape;
  return {
    ...shape,
    isMirrored: true,
    replicas: Math.max(shape.replicas, servers),
    globalBatch: Math.max(shape.globalBatch, servers),
    standby: servers > 1 ? standby : 0,
    gradient: { ...gradient, backupReplicas: 0 },
    startWorkers: undefined,
  };
}
