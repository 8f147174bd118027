/**
 * What the main thread does where the threads of a seat take all steps of a round by themselves (strategy tpu): it sets up the memory that they share, starts a round, and hands
 * the weights on as the one node of the run. The shard, which is in this process too, takes the slots of the optimizer from there.
 *
 *     shard ── slots, where the threads do not have them ──> threads ── a round ──> weights ──> shard, which copies the slots before the next round begins
 *
 *     IDLE ── step(k) ──> RUNNING k ── step(k+1): k is committed by what another seat has sent ──> RUNNING k, k+1 waits
 *                            └── every thread has executed k ──> its node is told; IDLE, or RUNNING k+1
 *
 * Threads go on with their slots where the shard has taken those of the round before. Otherwise they begin with the slots of the shard: in their first round, after a round that was
 * left out, and where a round is computed once more.
 */
import type { AppliedRounds, AppliedSlots } from '@paceline/hosting';
import { createLayout, measures, type Layout } from '@paceline/learning';
import { optimizerSlots, type RunSpec } from '@paceline/spec';
import type { ToCompute } from './compute-protocol.js';
import { executionCells, replicasOf, type ExecutionMemory } from './execution-cells.js';
import type { GradientMemory, PlacedNode, Vector } from './gradient-memory.js';
import { vectorsFor } from './thread-nodes.js';

/** The shard of the run in this process; undefined when it is gone. */
export type OwnShard = () => AppliedRounds | undefined;

/** The shard of the run is not in this process any more: the attempt is over. */
export class ShardGoneError extends Error {
  override readonly name = 'ShardGoneError';
  readonly code = 'SHARD_GONE';
}

export interface ExecutionsOptions {
  readonly threads: number;
  readonly replicas: number;
  readonly memory: GradientMemory;
  readonly execution: ExecutionMemory;
  readonly layout: Pick<Layout, 'trainableLength'>;
  readonly shard: OwnShard;
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

/** Slots in vectors, where they lie. */
class SlotVectors implements AppliedSlots {
  constructor(private readonly vectors: () => readonly Float32Array[]) {}

  copySlot(slot: number, from: number, into: Float32Array): void {
    into.set(this.vectors()[slot]!.subarray(from, from + into.length));
  }

  copied(): AppliedSlots {
    const copies = this.vectors().map((vector) => vector.slice());
    return new SlotVectors(() => copies);
  }
}

export class Executions {
  private readonly slots: SlotVectors;
  /** The shard whose slots the threads have, once they have ended the round before `next`. */
  private shard: AppliedRounds | undefined;
  private next = -1;
  /** The shard that takes the slots of these threads. */
  private taker: AppliedRounds | undefined;
  private running:
    | { readonly round: number; readonly out: Vector; readonly shard: AppliedRounds; done: number; isFinite: boolean }
    | undefined;
  /** It begins when the threads have ended the present round. */
  private waiting: number | undefined;

  constructor(private readonly options: ExecutionsOptions) {
    const { memory, execution, layout } = options;
    const { onlyArena: arena } = memory;
    // The views of a memory that has grown are of no use: made anew.
    this.slots = new SlotVectors(() => execution.slots.map((pointer) => arena.f32(pointer, layout.trainableLength)));
  }

  /** @throws ArenaFullError, ShardGoneError */
  step(round: number): void {
    if (this.running) this.waiting = round;
    else this.start(round);
  }

  /** A thread has taken all steps of a round. @throws ArenaFullError, ShardGoneError where another round has waited for that */
  executed(round: number, isFinite: boolean): void {
    const { running, waiting, options } = this;
    if (running?.round !== round) return;
    running.isFinite &&= isFinite;
    if (++running.done < options.threads) return;
    this.running = undefined;
    this.waiting = undefined;
    if (running.isFinite) {
      this.taker = running.shard;
      running.shard.end(round, this.slots);
    } else this.shard = undefined;
    options.node(round, { lo: 0, hi: options.replicas, vector: running.out });
    if (waiting !== undefined) this.start(waiting);
  }

  /** The seat has ended. The memory of the threads is not held by the shard afterwards. */
  stop(): void {
    this.taker?.release(this.slots);
    this.taker = undefined;
    this.shard = undefined;
    this.waiting = undefined;
    this.running = undefined; // what threads still say is of no use
  }

  private start(round: number): void {
    const { threads, memory, post } = this.options;
    const shard = this.options.shard();
    if (!shard) throw new ShardGoneError('the shard of the run is not in this process any more');
    if (shard !== this.shard || round !== this.next || !shard.takeSlots(round)) this.begin(shard, round);
    this.shard = shard;
    this.next = round + 1;
    const out = memory.alloc();
    this.running = { round, out, shard, done: 0, isFinite: true };
    for (let thread = 0; thread < threads; thread++) post(thread, { kind: 'step', round, replicas: [], free: [], lent: [out] });
  }

  /** The threads get the slots that the round begins with. */
  private begin(shard: AppliedRounds, round: number): void {
    shard.release(this.slots); // they are written to
    const { execution, layout, memory } = this.options;
    const slotOf = (slot: number): Float32Array => memory.onlyArena.f32(execution.slots[slot]!, layout.trainableLength);
    shard.readSlots(round, (slot, from, values) => slotOf(slot).set(values, from));
  }
}
