/**
 * How the compute threads of a seat take steps together (strategy tpu), without the main thread and without a message:
 *
 *     each computes its replicas ──> MET ──> each adds up and updates its chunks ──> MET ──> the next step
 *                                                      └─ where a norm is cut, all measure first ──> MET ─┘
 *
 * | memory | written by | what |
 * |---|---|---|
 * | MET | all | arrivals of threads at the places where all have to be; it only rises |
 * | NOT_FINITE | all | whether a sum of this round had NaN or infinity; the first thread clears it before a round's first step |
 * | nodes | each its own part | where the sums of its replicas lie in the arena, by node |
 * | measured | each for its chunks | squares of the sums, by variable and chunk |
 *
 * Everything else lies in the arena of the gradients: weights, the slots of the optimizer, and vectors for the nodes of each thread.
 */
import { spans } from '@paceline/exchange';
import { maximalNodes, replicaRows, type Node } from '@paceline/learning';
import type { PlacedNode, Vector } from './gradient-memory.js';
import { waitFor } from './waiting.js';

const MET = 0;
const NOT_FINITE = 1;
const CELLS = 2;

export interface ExecutionMemory {
  readonly cells: SharedArrayBuffer;
  readonly nodes: SharedArrayBuffer;
  /** Undefined where no norm is cut. */
  readonly measured: SharedArrayBuffer | undefined;
  /** Pointers into the arena: parameters and state, and the trainable section of each slot. */
  readonly weights: number;
  readonly slots: readonly number[];
  /** Vectors for the nodes of each thread. */
  readonly lent: readonly (readonly Vector[])[];
}

/** Which replicas each thread has: they are shared out as rows are. */
export const replicasOf = (replicas: number, threads: number, thread: number): number[] => {
  const { from, to } = replicaRows(replicas, threads, thread);
  return Array.from({ length: to - from }, (_, i) => from + i);
};

/** The nodes that each thread adds up by itself, ascending. */
export const nodesOf = (replicas: number, threads: number): Node[][] =>
  Array.from({ length: threads }, (_, thread) => maximalNodes(replicas, new Set(replicasOf(replicas, threads, thread))));

/** @param measures numbers that are measured in a step; 0 where no norm is cut */
export const executionCells = (
  replicas: number,
  threads: number,
  measures: number,
): Pick<ExecutionMemory, 'cells' | 'nodes' | 'measured'> => ({
  cells: new SharedArrayBuffer(CELLS * Int32Array.BYTES_PER_ELEMENT),
  nodes: new SharedArrayBuffer(nodesOf(replicas, threads).flat().length * Uint32Array.BYTES_PER_ELEMENT),
  measured: measures > 0 ? new SharedArrayBuffer(measures * Float64Array.BYTES_PER_ELEMENT) : undefined,
});

/** A thread has waited too long for the others. */
export class ExecutionStalledError extends Error {
  override readonly name = 'ExecutionStalledError';
  readonly code = 'EXECUTION_STALLED';
}

interface MeetingOptions {
  readonly replicas: number;
  readonly threads: number;
  readonly thread: number;
  readonly deadlineMs: number;
  /** A count that moves whenever a thread does. */
  readonly progress: () => number;
}

/** One thread's view of what all of them share. */
export class ExecutionCells {
  private readonly cells: Int32Array;
  private readonly places: Uint32Array;
  private readonly nodes: readonly (Node & { readonly thread: number })[];
  private meets = 0;

  constructor(
    { cells, nodes }: Pick<ExecutionMemory, 'cells' | 'nodes'>,
    private readonly options: MeetingOptions,
  ) {
    this.cells = new Int32Array(cells);
    this.places = new Uint32Array(nodes);
    this.nodes = nodesOf(options.replicas, options.threads).flatMap((own, thread) => own.map((node) => Object.assign({ thread }, node)));
  }

  /** Where the sum of an own node lies: others read it after the next meeting. */
  place({ lo, vector: [pointer] }: PlacedNode): void {
    this.places[this.nodes.findIndex((node) => node.lo === lo)] = pointer!;
  }

  /** The nodes of all threads, ascending, as they were placed before the last meeting. */
  placed(): PlacedNode[] {
    return this.nodes.map(({ lo, hi }, i) => ({ lo, hi, vector: [this.places[i]!] }));
  }

  /** Waits until all threads are here. @throws ExecutionStalledError */
  meet(): void {
    const { cells, options } = this;
    const { threads, deadlineMs, progress } = options;
    this.meets = (this.meets + 1) | 0;
    const target = Math.imul(this.meets, threads);
    if (((Atomics.add(cells, MET, 1) + 1) | 0) === target) {
      Atomics.notify(cells, MET);
      return;
    }
    const sinceMs = spans.now();
    const how = waitFor({ cells, cell: MET, target, deadlineMs, progress });
    if (how === 'stalled')
      throw new ExecutionStalledError(
        `it has waited ${deadlineMs} ms for the other threads, none of which moved: set a longer stepDeadlineMs`,
      );
    if (how === 'waited') spans.add('wait for threads', sinceMs);
  }

  foundNotFinite(): void {
    Atomics.store(this.cells, NOT_FINITE, 1);
  }

  clearNotFinite(): void {
    Atomics.store(this.cells, NOT_FINITE, 0);
  }

  get isFinite(): boolean {
    return Atomics.load(this.cells, NOT_FINITE) === 0;
  }
}
