/**
 * What every distributed run must equal, bit for bit, written down as plainly as possible: one process, R replicas one after
 * the other, their gradients added by trees that are spelled out for each R, the optimizer in plain arithmetic.
 * It knows nothing of transports, shards, chunks, views or the tree code.
 */
import { createHash } from 'node:crypto';
import { ReferenceCodec } from './reference-codec.js';
import { ImageAugmenter, openDataset } from '@paceline/data';
import { createEngine, describeModel } from '@paceline/engine';
import {
  CounterStream,
  createLayout,
  createSchedule,
  initialValues,
  microBatches,
  permutedIndex,
  replicaRows,
  streamKey,
} from '@paceline/learning';
import type { RunSpec } from '@paceline/spec';

function plus(a: Float32Array, b: Float32Array): Float32Array {
  const sum = new Float32Array(a.length);
  for (let i = 0; i < sum.length; i++) sum[i] = a[i]! + b[i]!;
  return sum;
}

/** The reduction over replicas 0..R-1: split at the largest power of two below the size. */
const TREES: Record<number, (g: Float32Array[]) => Float32Array> = {
  1: (g) => g[0]!,
  2: (g) => plus(g[0]!, g[1]!),
  3: (g) => plus(plus(g[0]!, g[1]!), g[2]!),
  4: (g) => plus(plus(g[0]!, g[1]!), plus(g[2]!, g[3]!)),
  5: (g) => plus(plus(plus(g[0]!, g[1]!), plus(g[2]!, g[3]!)), g[4]!),
};

const f = Math.fround;
/** A slot whose size is below 2^-126 becomes 0. */
const orZero = (slot: number): number => (Math.abs(slot) < 2 ** -126 ? 0 : slot);

type Slots = [Float32Array, Float32Array];

/** The update of one element: its new weight from its weight and its gradient. Its slots are those of its index. */
type Update = (w: number, g: number, i: number) => number;

/** Update number t. What is the same for all elements is computed once: powers for each of them would take most of the time. */
export function updateOf(spec: RunSpec['optimizer'], t: number, [first, second]: Slots): Update {
  if (spec.name === 'sgd') {
    const rate = f(spec.learningRate);
    return (w, g) => f(w - f(rate * g));
  }
  if (spec.name === 'momentum') {
    const [rate, momentum, { nesterov }] = [f(spec.learningRate), f(spec.momentum), spec];
    return (w, g, i) => {
      const step = f(rate * g);
      const v = (first[i] = orZero(f(f(momentum * first[i]!) - step)));
      return nesterov ? f(w + f(f(momentum * v) - step)) : f(w + v);
    };
  }
  if (spec.name !== 'adam') throw new Error(`the reference has no ${spec.name}`);
  const { learningRate, beta1, beta2 } = spec;
  // Keras: the powers and alpha are float32 after each operation, and 1 − beta is a float64 that becomes one.
  const rest = (beta: number): number => f(1 - f(f(beta) ** t));
  const alpha = f(f(f(learningRate) * f(Math.sqrt(rest(beta2)))) / rest(beta1));
  const [rest1, rest2, epsilon] = [f(1 - beta1), f(1 - beta2), f(spec.epsilon)];
  return (w, g, i) => {
    const m = (first[i] = orZero(f(first[i]! + f(f(g - first[i]!) * rest1))));
    const v = (second[i] = orZero(f(second[i]! + f(f(f(g * g) - second[i]!) * rest2))));
    return f(w - f(f(m * alpha) / f(f(Math.sqrt(v)) + epsilon)));
  };
}

export interface ReferenceResult {
  readonly weightsSha256: string;
  /** The hash of the weights after each round: those of a run that ends with it. */
  readonly sha256AfterRounds: readonly string[];
  readonly weights: Float32Array;
  /** Mean loss of every round, before its update. */
  readonly losses: number[];
  /** Training rows in the order they were seen. */
  readonly rows: number[];
}

/** What the servers apply once per round, where replicas take local steps. */
function outerOf({ strategy, replicas }: RunSpec): RunSpec['optimizer'] {
  if (strategy.kind !== 'local-update') throw new Error('no local updates');
  const { outerOptimizer, outerLearningRate, outerMomentum, movingRate } = strategy;
  if (outerOptimizer === 'elastic') return { name: 'sgd', learningRate: movingRate === undefined ? 0.9 : movingRate * replicas };
  if (outerOptimizer === 'sgd') return { name: 'sgd', learningRate: outerLearningRate ?? 1 };
  const nesterov = outerOptimizer === 'nesterov';
  return { name: 'momentum', learningRate: outerLearningRate ?? 0.7, momentum: outerMomentum ?? 0.9, nesterov };
}

export async function trainReference(spec: RunSpec): Promise<ReferenceResult> {
  const { train, format } = await openDataset(spec.dataset);
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });
  const local = spec.strategy.kind === 'local-update' ? spec.strategy : undefined;
  const mostSteps = local?.localSteps ?? 1;
  const { globalBatch, dropRemainder, length } = spec;
  const first = local?.syncSteps ? { rounds: local.syncSteps, globalBatch } : undefined;
  const schedule = createSchedule({ examples: train.count, globalBatch: globalBatch * mostSteps, dropRemainder, length, first });
  const inputShape = format.inputs[0]!.shape;
  const width = inputShape.reduce((product, n) => product * n, 1);
  const weights = new Float32Array(layout.totalLength);
  layout.variables.forEach(({ offset, length }, i) =>
    initialValues(description.variables[i]!, spec.seed, 0, length, weights.subarray(offset, offset + length)),
  );
  const newSlots = (): Slots => [new Float32Array(layout.trainableLength), new Float32Array(layout.trainableLength)];
  const slots = newSlots();
  const codec = spec.codec && new ReferenceCodec(spec.codec, spec.seed, spec.replicas, layout.chunks);
  const losses: number[] = [];
  const sha256AfterRounds: string[] = [];
  const seen: number[] = [];
  let loss = 0;

  /** The gradient over these rows at the weights that the engine has. @param draw the number of the round for random layers */
  const gradientOf = (rows: Int32Array, epoch: number, draw: number, replica: number): Float32Array => {
    const out = new Float32Array(layout.totalLength);
    const batches = microBatches({ from: 0, to: rows.length }, spec.strategy.accumulate).map((part) => {
      const x = new Float32Array((part.to - part.from) * width);
      const y = new Float32Array(part.to - part.from);
      train.gather(rows, part.from, part.to, { inputs: [x], targets: [y], weights: undefined });
      if (spec.augmentation) {
        const augmenter = new ImageAugmenter(spec.augmentation, inputShape);
        rows.subarray(part.from, part.to).forEach((row, i) => {
          augmenter.apply(x.subarray(i * width, (i + 1) * width), new CounterStream(streamKey('augmentation', spec.seed, epoch, row)));
        });
      }
      return { inputs: [x], targets: [y], count: y.length };
    });
    if (batches.length > 0) loss += engine.step({ round: draw, replica, batches, out }).metricSums[0]!;
    return out;
  };

  /** The weights with a gradient applied, and state as it has become. */
  const applied = (
    optimizer: RunSpec['optimizer'],
    t: number,
    from: Float32Array,
    sum: Float32Array,
    count: number,
    own: Slots,
    isMoved = (_: number): boolean => true,
  ) => {
    const scale = f(1 / count);
    const update = updateOf(optimizer, t, own);
    const to = new Float32Array(from.length);
    for (let i = 0; i < to.length; i++) {
      const g = f(sum[i]! * scale);
      to[i] = i >= layout.trainableLength ? g : isMoved(i) ? update(from[i]!, g, i) : from[i]!;
    }
    return to;
  };

  /** Steps of each replica so far, and its slots, where it keeps them. */
  const kept = new Map<number, { t: number; readonly own: Slots }>();
  /** With elastic averaging: the weights that each replica goes on with. */
  const ownWeights = new Map<number, Float32Array>();
  const alpha = f(local?.movingRate ?? 0.9 / spec.replicas);
  const { syncSteps = 0 } = local ?? {};
  /** Number of the first step of a round for random layers. */
  const drawOf = (round: number): number => (round < syncSteps ? round : syncSteps + (round - syncSteps) * mostSteps);
  /** With fragments: whether a round exchanges the element. */
  const chunkOf = layout.chunks.flatMap(({ length }, chunk) => Array.from({ length }, () => chunk));
  const isExchanged = (round: number, i: number): boolean => chunkOf[i]! % (local?.fragments ?? 1) === round % (local?.fragments ?? 1);
  /** What a replica sends after the local steps of a round: the difference of its weights times its examples. */
  const outerGradient = (rows: Int32Array, epoch: number, round: number, replica: number, steps: number): Float32Array => {
    const inner = (local?.innerState === 'keep' && kept.get(replica)) || { t: 0, own: newSlots() };
    kept.set(replica, inner);
    let at: Float32Array = weights.slice();
    if (local?.outerOptimizer === 'elastic' || local?.fragments)
      ownWeights.get(replica)?.forEach((w, i) => (at[i] = local.fragments && isExchanged(round - 1, i) ? at[i]! : w));
    for (let step = 0; step < steps; step++) {
      const part = rows.subarray(Math.floor((step * rows.length) / steps), Math.floor(((step + 1) * rows.length) / steps));
      if (part.length === 0) continue;
      engine.load(at);
      const gradient = gradientOf(part, epoch, drawOf(round) + step, replica);
      at = applied(spec.optimizer, ++inner.t, at, gradient, part.length, inner.own);
    }
    ownWeights.set(
      replica,
      at.slice(0, layout.trainableLength).map((w, i) => (local?.fragments ? w : f(w + f(f(weights[i]! - w) * alpha)))),
    );
    return at.map((w, i) => f((i < layout.trainableLength ? f(weights[i]! - w) : w) * rows.length));
  };

  for (let round = 0; round < schedule.totalRounds; round++) {
    const { epoch, first, count } = schedule.round(round);
    const steps = Math.min(mostSteps, Math.ceil(count / spec.globalBatch));
    engine.load(codec ? codec.published(weights, round) : weights);
    loss = 0;
    const gradients = Array.from({ length: spec.replicas }, (_, replica) => {
      const { from, to } = replicaRows(count, spec.replicas, replica);
      const rows = Int32Array.from({ length: to - from }, (_, i) => permutedIndex(spec.seed, epoch, train.count, first + from + i));
      seen.push(...rows);
      const out = local ? outerGradient(rows, epoch, round, replica, steps) : gradientOf(rows, epoch, round, replica);
      return codec ? codec.decoded(out, round, replica, count) : out;
    });
    losses.push(loss / count);
    const optimizer = local ? outerOf(spec) : spec.optimizer;
    const sum = TREES[spec.replicas]!(gradients);
    const gradient = codec ? codec.estimated(sum, count, layout.trainableLength) : sum;
    weights.set(applied(optimizer, round + 1, weights, gradient, count, slots, (i) => isExchanged(round, i)));
    sha256AfterRounds.push(createHash('sha256').update(new Uint8Array(weights.buffer)).digest('hex'));
  }
  engine.dispose();
  return { weightsSha256: sha256AfterRounds.at(-1)!, sha256AfterRounds, weights, losses, rows: seen };
}
