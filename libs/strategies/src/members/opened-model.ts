/** A model as the group thread has it: how its vectors are exchanged, and where they lie. */
import { AllReducePlan, type Packing } from '@paceline/collectives';
import { Arena } from '@paceline/kernels';
import { slotRange, type BatchBuffers, type Share } from '../threads/protocol.js';
import { LowRankExchange } from './low-rank-exchange.js';
import { LOW_RANK, packedSums } from './packed-sums.js';
import type { GroupInit, SharedModel } from './protocol.js';

export interface Opened {
  readonly shared: SharedModel;
  readonly plan: AllReducePlan;
  /** Where sums travel as a low rank, in place of the plan. */
  readonly lowRank: LowRankExchange | undefined;
  /** Where replicas exchange a fragment at a time: how, and the sums of this process's nodes. */
  readonly fragments: readonly { readonly plan: AllReducePlan; readonly nodes: readonly Float32Array[]; readonly result: Float32Array }[];
  /** Sums of this process's nodes. */
  readonly nodes: readonly Float32Array[];
  readonly result: Float32Array;
  readonly parameters: Float32Array;
  /** Slots of the optimizer, for all parameters or for this process's part. */
  readonly slots: readonly Float32Array[];
  readonly header: Float64Array;
  readonly losses: Float64Array;
  buffers: BatchBuffers | undefined;
}
/** Of the members that are left. */
interface Place {
  readonly members: number;
  readonly self: number;
  readonly share: Share;
  readonly hosts: readonly string[];
  readonly init: Pick<GroupInit, 'codec' | 'rank' | 'seed'>;
}

export function opened(shared: SharedModel, { members, self, share, hosts, init }: Place): Opened {
  const { memory, totalLength, trainableLength } = shared;
  const arena = Arena.attach(memory.arena);
  // Exchanges of a model follow each other, so they have the same scratch.
  const planOf = (length: number, packing?: Packing): AllReducePlan => {
    let free = memory.scratch;
    return new AllReducePlan({
      members,
      self,
      replicas: share.replicas,
      length,
      topology: shared.topology,
      hosts,
      isSharded: memory.own !== undefined,
      ...(packing && { packing }),
      allocate: (elements) => {
        const at = free;
        free += elements * 4;
        return arena.f32(at, elements);
      },
      // All of them are views of the arena, so their place in it is their pointer.
      add: (into, from) => arena.kernels.add(into.byteOffset, from.byteOffset, into.length),
    });
  };
  const fragmentOf = (length: number) => {
    const vectors = memory.local!.fragments.map((pointer) => arena.f32(pointer, length));
    return { plan: planOf(length), nodes: share.nodes.map(({ lo }) => vectors[lo - share.from]!), result: vectors[0]! };
  };
  const packing = init.codec === LOW_RANK ? undefined : packedSums(init.codec, init.seed, trainableLength, arena);
  const lowRankOf = (): LowRankExchange => {
    const { variables, topology } = shared;
    const { rank, seed } = init;
    return new LowRankExchange({ members, self, topology, hosts, variables, length: totalLength, rank, seed });
  };
  return {
    shared,
    plan: planOf(totalLength, packing),
    lowRank: init.codec === LOW_RANK ? lowRankOf() : undefined,
    fragments: shared.fragments.map(fragmentOf),
    nodes: share.nodes.map(({ lo }) => arena.f32(memory.gradients[lo - share.from]!, totalLength)),
    result: arena.f32(memory.gradients[0]!, totalLength),
    parameters: arena.f32(memory.parameters, totalLength),
    slots: memory.slots.map((pointer) => arena.f32(pointer, slotRange(memory.own, trainableLength).length)),
    header: new Float64Array(memory.header),
    losses: new Float64Array(memory.losses),
    buffers: undefined,
  };
}
