/**
 * A run small enough that thousands go by in a minute, and real enough that its bits mean something: a handful of chunks of a few
 * float32, the real schedule, tree and optimizer, and a replica step whose sums depend on the order of addition and on every
 * weight. reference.ts computes the same run in a plain loop.
 */
import { Arena } from '@paceline/kernels';
import { createOptimizer, createSchedule, replicaRows, type Layout, type Optimizer, type Schedule } from '@paceline/learning';
import type { OptimizerSpec } from '@paceline/spec';
import type { GradientShape } from './gradient-shape.js';
import type { Random } from './random.js';
import type { TokenShape } from './token-run.js';

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
  readonly gradient: GradientShape;
  /** Modes async and ssp; undefined is mode sync. */
  readonly tokens?: TokenShape | undefined;
}

export function randomShape(random: Random): Omit<RunShape, 'gradient'> {
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
  /** Replica gradients that are no numbers, by `round/replica`: the element, and what stands there. */
  readonly spoiled = new Map<string, { readonly element: number; readonly value: number }>();

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

  /** What a worker computes: as `step`, with what was spoiled. */
  workerStep(weights: Float32Array, round: number, replica: number, out: Float32Array): void {
    this.step(weights, round, replica, out);
    const spoiled = this.spoiled.get(`${round}/${replica}`);
    if (spoiled) out[spoiled.element] = spoiled.value;
  }

  /** The sum over these replicas has NaN or infinity, and the run leaves such rounds out. */
  isLeftOut(round: number, replicas: readonly number[]): boolean {
    if (this.spoiled.size === 0 || this.shape.gradient.nonFinite !== 'skip') return false;
    return replicas.some((replica) => this.spoiled.has(`${round}/${replica}`));
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
