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

const plus = (a: Float32Array, b: Float32Array): Float32Array => a.map((value, i) => value + b[i]!);

/** The reduction over replicas 0..R-1: split at the largest power of two below the size. */
const TREES: Record<number, (g: Float32Array[]) => Float32Array> = {
  1: (g) => g[0]!,
  2: (g) => plus(g[0]!, g[1]!),
  3: (g) => plus(plus(g[0]!, g[1]!), g[2]!),
  4: (g) => plus(plus(g[0]!, g[1]!), plus(g[2]!, g[3]!)),
  5: (g) => plus(plus(plus(g[0]!, g[1]!), plus(g[2]!, g[3]!)), g[4]!),
};

const f = Math.fround;

/** One update of element w with gradient g; returns the new w. m and v are the slots of the element. */
function update(spec: RunSpec['optimizer'], t: number, w: number, g: number, slots: [Float32Array, Float32Array], i: number): number {
  if (spec.name === 'sgd') return f(w - f(f(spec.learningRate) * g));
  if (spec.name === 'momentum') {
    const step = f(f(spec.learningRate) * g);
    const v = (slots[0][i] = f(f(f(spec.momentum) * slots[0][i]!) - step));
    return spec.nesterov ? f(w + f(f(f(spec.momentum) * v) - step)) : f(w + v);
  }
  if (spec.name !== 'adam') throw new Error(`the reference has no ${spec.name}`);
  const { learningRate, beta1, beta2, epsilon } = spec;
  const alpha = f((learningRate * Math.sqrt(1 - beta2 ** t)) / (1 - beta1 ** t));
  const m = (slots[0][i] = f(slots[0][i]! + f(f(g - slots[0][i]!) * f(1 - f(beta1)))));
  const v = (slots[1][i] = f(slots[1][i]! + f(f(f(g * g) - slots[1][i]!) * f(1 - f(beta2)))));
  return f(w - f(f(m * alpha) / f(f(Math.sqrt(v)) + f(epsilon))));
}

export interface ReferenceResult {
  readonly weightsSha256: string;
  readonly weights: Float32Array;
  /** Mean loss of every round, before its update. */
  readonly losses: number[];
  /** Training rows in the order they were seen. */
  readonly rows: number[];
}

export async function trainReference(spec: RunSpec): Promise<ReferenceResult> {
  const { train, format } = await openDataset(spec.dataset);
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });
  const schedule = createSchedule({
    examples: train.count,
    globalBatch: spec.globalBatch,
    dropRemainder: spec.dropRemainder,
    length: spec.length,
  });
  const inputShape = format.inputs[0]!.shape;
  const width = inputShape.reduce((product, n) => product * n, 1);
  const weights = new Float32Array(layout.totalLength);
  layout.variables.forEach(({ offset, length }, i) =>
    initialValues(description.variables[i]!, spec.seed, 0, length, weights.subarray(offset, offset + length)),
  );
  const slots: [Float32Array, Float32Array] = [new Float32Array(layout.trainableLength), new Float32Array(layout.trainableLength)];
  const codec = spec.codec && new ReferenceCodec(spec.codec, spec.seed, layout.chunks);
  const losses: number[] = [];
  const seen: number[] = [];
  for (let round = 0; round < schedule.totalRounds; round++) {
    const { epoch, first, count } = schedule.round(round);
    engine.load(weights);
    let loss = 0;
    const gradients = Array.from({ length: spec.replicas }, (_, replica) => {
      const out = new Float32Array(layout.totalLength);
      const { from, to } = replicaRows(count, spec.replicas, replica);
      const rows = Int32Array.from({ length: to - from }, (_, i) => permutedIndex(spec.seed, epoch, train.count, first + from + i));
      seen.push(...rows);
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
      if (batches.length > 0) loss += engine.step({ round, replica, batches, out }).metricSums[0]!;
      return codec ? codec.decoded(out, round, replica, count) : out;
    });
    losses.push(loss / count);
    const sum = TREES[spec.replicas]!(gradients);
    const scale = f(1 / count);
    for (let i = 0; i < layout.totalLength; i++) {
      const g = f(sum[i]! * scale);
      weights[i] = i < layout.trainableLength ? update(spec.optimizer, round + 1, weights[i]!, g, slots, i) : g;
    }
  }
  engine.dispose();
  const weightsSha256 = createHash('sha256').update(new Uint8Array(weights.buffer)).digest('hex');
  return { weightsSha256, weights, losses, rows: seen };
}
