/**
 * A run small enough that thousands go by in a minute, and real enough that its bits mean something: a handful of chunks of a few
 * float32, the real schedule, tree and optimizer, and a replica step whose sums depend on the order of addition and on every
 * weight. `Reference` computes the same run in a plain loop, undisturbed: what any disturbed one must arrive at (I8).
 */
import { Arena } from '@paceline/kernels';
import { createOptimizer, createSchedule, replicaRows, split, type Layout, type Optimizer, type Schedule } from '@paceline/learning';
import type { OptimizerSpec } from '@paceline/spec';
import type { Random } from './random.js';

export interface RunShape {
  readonly servers: number;
  readonly replicas: number;
  readonly chunks: readonly { readonly length: number; readonly section: 'trainable' | 'state' }[];
  readonly examples: number;
  readonly globalBatch: number;
  readonly rounds: number;
  readonly evalExamples: number;
  /** Rounds between two checkpoints; 0 for none. */
  readonly cutEveryRounds: number;
  readonly optimizer: OptimizerSpec;
}

export function randomShape(random: Random): RunShape {
  const trainable = random.int(1, 5);
  const states = random.int(0, 1);
  const chunks = Array.from({ length: trainable + states }, (_, i) => ({
    length: random.int(1, 6),
    section: i < trainable ? ('trainable' as const) : ('state' as const),
  }));
  return {
    servers: random.int(1, 3),
    replicas: random.int(1, 8),
    chunks,
    examples: random.int(5, 60),
    globalBatch: random.int(3, 20),
    rounds: random.int(3, 9),
    evalExamples: random.pick([0, 400, 1200]),
    cutEveryRounds: random.pick([0, 1, 2, 3]),
    optimizer: random.pick<OptimizerSpec>([
      { name: 'sgd', learningRate: 0.1 },
      { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false },
      { name: 'adam', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
    ]),
  };
}

export class TinyRun {
  readonly layout: Layout;
  readonly schedule: Schedule;
  readonly optimizer: Optimizer;

  constructor(readonly shape: RunShape) {
    let offset = 0;
    const chunks = shape.chunks.map(({ length, section }, index) => {
      const chunk = { index, section, offset, length };
      offset += length;
      return chunk;
    });
    const stateLength = shape.chunks.reduce((sum, { length, section }) => sum + (section === 'state' ? length : 0), 0);
    this.layout = { variables: [], trainableLength: offset - stateLength, stateLength, totalLength: offset, chunks };
    this.schedule = createSchedule({
      examples: shape.examples,
      globalBatch: shape.globalBatch,
      dropRemainder: false,
      length: { rounds: shape.rounds },
    });
    this.optimizer = createOptimizer(shape.optimizer);
  }

  replicaExamples(round: number, replica: number): number {
    const { from, to } = replicaRows(this.schedule.round(round).count, this.shape.replicas, replica);
    return to - from;
  }

  initialValue(element: number): number {
    return Math.fround(Math.sin(element * 1.7 + 0.3));
  }

  /** Sum gradient (and new state times examples) of one replica: a pure function, as ROUNDS §2 wants it. */
  step(weights: Float32Array, round: number, replica: number, out: Float32Array): void {
    const count = this.replicaExamples(round, replica);
    let mix = 0;
    for (const weight of weights) mix += weight;
    for (let i = 0; i < out.length; i++)
      out[i] =
        count === 0
          ? 0
          : Math.fround(Math.sin(i * 0.37 + replica * 1.9 + round * 0.71 + mix * 0.05) * (1 + replica) + weights[i]! * 0.01) * count;
  }
}

const arenas: Arena[] = [];

/** Arenas outlive a seed: instantiating kernels costs more than most runs. */
export function takeArena(): Arena {
  return arenas.pop() ?? Arena.create({ initialBytes: 1 << 20, maximumBytes: 16 << 20 });
}

/** Only an arena of which nothing is in use may be used again; any other is left to the garbage collector. */
export function giveArena(arena: Arena): void {
  if (arena.bytesInUse === 0) arenas.push(arena);
}

/** The undisturbed run, generation by generation. */
export class Reference {
  private readonly generations: Float32Array[] = [];
  private readonly slots: Float32Array[];

  constructor(private readonly run: TinyRun) {
    const { layout, optimizer } = run;
    this.generations.push(Float32Array.from({ length: layout.totalLength }, (_, i) => run.initialValue(i)));
    this.slots = optimizer.slots.map(({ initialValue }) => new Float32Array(layout.totalLength).fill(initialValue));
  }

  generation(k: number): Float32Array {
    while (this.generations.length <= k) this.advance();
    return this.generations[k]!;
  }

  /** True when `values` are bit for bit the chunk of generation k. */
  holds(k: number, chunk: { readonly offset: number; readonly length: number }, values: Float32Array): boolean {
    const expected = this.generation(k);
    const a = new Uint32Array(expected.buffer, chunk.offset * 4, chunk.length);
    const b = new Uint32Array(values.buffer, values.byteOffset, chunk.length);
    for (let i = 0; i < chunk.length; i++) if (a[i] !== b[i]) return false;
    return true;
  }

  private advance(): void {
    const { run, slots } = this;
    const { layout, optimizer, shape, schedule } = run;
    const round = this.generations.length - 1;
    const weights = this.generations[round]!;
    const sum = (lo: number, hi: number): Float32Array => {
      if (hi - lo === 1) {
        const out = new Float32Array(weights.length);
        run.step(weights, round, lo, out);
        return out;
      }
      const middle = split(lo, hi);
      const left = sum(lo, middle);
      const right = sum(middle, hi);
      for (let i = 0; i < left.length; i++) left[i]! += right[i]!;
      return left;
    };
    const total = sum(0, shape.replicas);
    const gradScale = Math.fround(1 / schedule.round(round).count);
    const arena = takeArena();
    const length = layout.totalLength;
    const place = (values: Float32Array): number => {
      const pointer = arena.alloc(length * 4);
      arena.f32(pointer, length).set(values);
      return pointer;
    };
    const pointers = { paramIn: place(weights), paramOut: place(weights), grad: place(total), slots: slots.map(place) };
    if (layout.trainableLength > 0)
      optimizer.apply(arena.kernels, { ...pointers, count: layout.trainableLength, step: round + 1, gradScale });
    const next = Float32Array.from(arena.f32(pointers.paramOut, length));
    for (let i = layout.trainableLength; i < length; i++) next[i] = Math.fround(total[i]! * gradScale);
    slots.forEach((slot, i) => slot.set(arena.f32(pointers.slots[i]!, length)));
    for (const pointer of [pointers.paramIn, pointers.paramOut, pointers.grad, ...pointers.slots]) arena.free(pointer);
    giveArena(arena);
    this.generations.push(next);
  }
}
