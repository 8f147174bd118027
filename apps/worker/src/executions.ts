/**
 * What the main thread does where the threads of a seat take all steps of a round by themselves (strategy tpu): it sets up the memory that they share, starts a round, and hands
 * the weights on as the one node of the run. The shard, which is in this process too, takes the slots of the optimizer from there.
 *
 *     shard ── slots, where the threads do not have them ──> threads ── a round ──> weights ──> shard, which copies the slots before the next round begins
 *
 * The slots of the shard are those of the last whole round. The threads begin with these, in their first round and after one that was not finite.
 */
import type { AppliedSlots, ParameterStore } from '@paceline/hosting';
import { Arena } from '@paceline/kernels';
import { createLayout, measures, type Layout } from '@paceline/learning';
import { optimizerSlots, type RunSpec } from '@paceline/spec';
import type { ToCompute } from './compute-protocol.js';
import { executionCells, replicasOf, type ExecutionMemory } from './execution-cells.js';
import type { GradientMemory, PlacedNode, Vector } from './gradient-memory.js';
import { vectorsFor } from './thread-nodes.js';

/** The shard of the run in this process; undefined when it is gone. */
type OwnShard = Pick<ParameterStore, 'applied' | 'readSlots' | 'takeSlots'>;
export type OwnStore = () => OwnShard | undefined;

export interface ExecutionsOptions {
  readonly threads: number;
  readonly replicas: number;
  readonly memory: GradientMemory;
  readonly execution: ExecutionMemory;
  readonly layout: Pick<Layout, 'trainableLength'>;
  readonly store: OwnStore;
  post(thread: number, message: ToCompute): void;
  node(round: number, node: PlacedNode): void;
}

/** Memory for the threads of a seat. @throws ArenaFullError */
export function executionMemory(
  { replicas, optimizer, gradient }: Pick<RunSpec, 'replicas' | 'optimizer' | 'gradient'>,
  layout: ReturnType<typeof createLayout>,
  memory: GradientMemory,
  threads: number,
): ExecutionMemory {
  const { onlyArena: arena } = memory;
  const cutsNorms = gradient.clipNorm !== undefined || gradient.clipGlobalNorm !== undefined;
  const slot = (): number => arena.alloc(layout.trainableLength * Float32Array.BYTES_PER_ELEMENT);
  const lent = (thread: number): Vector[] =>
    Array.from({ length: vectorsFor(replicas, replicasOf(replicas, threads, thread)) }, () => memory.alloc());
  return {
    ...executionCells(replicas, threads, cutsNorms ? measures(layout, optimizer) : 0),
    weights: memory.alloc()[0]!,
    slots: optimizerSlots(optimizer).map(slot),
    lent: Array.from({ length: threads }, (_, thread) => lent(thread)),
  };
}

export class Executions implements AppliedSlots {
  private readonly arena: Arena;
  /** Where the weights of the present round come to lie. */
  private out: Vector | undefined;
  /** Whose slots the threads have, after the round before `next`. */
  private shard: OwnShard | undefined;
  private next = -1;

  constructor(private readonly options: ExecutionsOptions) {
    this.arena = options.memory.onlyArena;
  }

  /** @throws ArenaFullError, and Error when the shard is gone */
  step(round: number): void {
    const { threads, memory, post } = this.options;
    if (this.shard && round === this.next) this.shard.takeSlots();
    else this.shard = this.begin();
    this.next = round + 1;
    this.out = memory.alloc();
    for (let thread = 0; thread < threads; thread++) post(thread, { kind: 'step', round, replicas: [], free: [], lent: [this.out] });
  }

  /** The threads have taken all steps of a round. */
  executed(round: number, isFinite: boolean): void {
    const { replicas, node } = this.options;
    if (!isFinite) this.shard = undefined; // a round that is left out has left slots that are of no use
    node(round, { lo: 0, hi: replicas, vector: this.out! });
    this.out = undefined;
  }

  copySlot(slot: number, from: number, into: Float32Array): void {
    into.set(this.slot(slot).subarray(from, from + into.length));
  }

  /** The threads get the slots of the shard. */
  private begin(): OwnShard {
    const shard = this.options.store();
    if (!shard) throw new Error('the shard of the run is not in this process any more');
    shard.readSlots((slot, from, values) => this.slot(slot).set(values, from));
    shard.applied = this;
    return shard;
  }

  private slot(index: number): Float32Array {
    const { execution, layout } = this.options;
    return this.arena.f32(execution.slots[index]!, layout.trainableLength);
  }
}
