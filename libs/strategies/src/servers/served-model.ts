/** One model in a worker: its engines in the compute threads, and the memory where rows come and gradients are added up. */
import { type Range, rangeOf, TreeSum } from '@paceline/collectives';
import type { Kernels } from '@paceline/kernels';
import { createLayout, replicaRows, type Layout } from '@paceline/learning';
import { fieldLength } from '@paceline/spec';
import { PREDICT, STEP } from '../threads/cells.js';
import { placed } from '../threads/model-memory.js';
import {
  COUNT,
  RATE,
  ROWS_AT_ONCE,
  STEP_NUMBER,
  VERSION,
  type BatchBuffers,
  type FromThread,
  type ModelMemory,
} from '../threads/protocol.js';
import type { ThreadPool } from '../threads/thread-pool.js';
import { keepsRest, packedSums } from '../members/packed-sums.js';
import { GroupSums, type Below } from './group-sums.js';
import { PackedRange } from './packed-range.js';
import { answered, bytesOf, jsonNumber, type Predict, type Step, type Stepped, type WorkerPlan } from './messages.js';

type Kind = 'inputs' | 'targets' | 'outputs';

/** What goes to a server. */
interface Packed {
  readonly range: PackedRange;
  /** By node. */
  readonly messages: readonly Uint8Array[];
  /** What the sums before have left out, where the codec keeps it. */
  readonly rests: readonly (Float32Array | undefined)[];
  /** Examples of the step that has left it. */
  keptCount: number;
  /** The round of which the sums and messages are still here: what they have left is kept when the round counts. */
  sent: { readonly round: number; readonly count: number } | undefined;
}

const LINE_BYTES = 64;
const aligned = (bytes: number): number => Math.ceil(bytes / LINE_BYTES) * LINE_BYTES;

export class ServedModel {
  readonly layout: Layout;
  /** The parameters that are here. */
  generation = -1;
  /** The variables that are trained: all but the frozen ones. */
  trained: readonly Range[];
  private readonly parameters: Float32Array;
  private readonly sums: readonly Float32Array[];
  /** In a group: what comes of the workers below. */
  readonly below: GroupSums | undefined;
  /** Where their sums are copied to be added, by worker and node. */
  private readonly belowVectors: readonly (readonly Float32Array[])[];
  /** In a group: the sums with those of the workers below, by server and node of the group. */
  private readonly wholes = new Map<number, readonly Float32Array[]>();
  /** With a codec: the range of each server, and a message for each node. */
  private readonly packed: readonly Packed[] | undefined;
  private readonly kernels: Kernels;
  /** Examples of the present step. */
  private count = 0;
  private readonly header: Float64Array;
  private readonly losses: Float64Array;
  private readonly floats: Readonly<Record<Kind, readonly number[]>>;
  private buffers: BatchBuffers | undefined;
  private capacity = 0;

  constructor(
    private readonly pool: ThreadPool,
    private readonly model: number,
    private readonly plan: WorkerPlan,
    private readonly servers: number,
  ) {
    const { description, share, format, codec } = plan;
    this.layout = createLayout(description);
    this.trained = [{ offset: 0, length: this.layout.trainableLength }];
    const packing = packedSums(codec.kind, codec.seed, this.layout.trainableLength, () => arena);
    const ranges = packing && Array.from({ length: servers }, (_, server) => new PackedRange(packing, this.range(server)));
    const rests = keepsRest(codec.kind);
    const ofNode = ({ bytes, trained }: PackedRange): number => aligned(bytes) + (rests ? aligned(trained * 4) : 0);
    const { nodes } = this;
    const packedBytes = (ranges ?? []).reduce((sum, range) => sum + ofNode(range) * nodes.length, 0);
    const below = plan.group?.below ?? [];
    const vectorBytes = aligned(this.layout.totalLength * 4);
    const belowBytes = below.reduce((sum, worker) => sum + worker.nodes.length * vectorBytes, 0);
    const { arena, memory }: { arena: ReturnType<typeof placed>['arena']; memory: ModelMemory } = placed(this.layout, {
      share,
      slots: [],
      placement: { scratch: (packedBytes + belowBytes) / 4, own: undefined },
      isLocal: false,
    });
    this.parameters = arena.f32(memory.parameters, this.layout.totalLength);
    this.sums = share.nodes.map(({ lo }) => arena.f32(memory.gradients[lo - share.from]!, this.layout.totalLength));
    let free = memory.scratch;
    const room = (bytes: number): number => {
      const at = free;
      free += aligned(bytes);
      return at;
    };
    this.packed = ranges?.map((range) => ({
      range,
      messages: nodes.map(() => arena.bytes(room(range.bytes), range.bytes)),
      // They begin as zeros, as all of the arena does.
      rests: nodes.map(() => (rests ? arena.f32(room(range.trained * 4), range.trained) : undefined)),
      keptCount: 0,
      sent: undefined,
    }));
    this.belowVectors = below.map((worker) => worker.nodes.map(() => arena.f32(room(vectorBytes), this.layout.totalLength)));
    const rangeBytes = Array.from({ length: servers }, (_, server) => this.range(server).length * 4);
    this.below = plan.group && new GroupSums(below, rangeBytes);
    this.kernels = arena.kernels;
    this.header = new Float64Array(memory.header);
    this.losses = new Float64Array(memory.losses);
    this.floats = {
      inputs: format.inputs.map(fieldLength),
      targets: format.targets.map(fieldLength),
      outputs: description.outputs.map(fieldLength),
    };
    const opened = { ...plan, model, memory, updaters: pool.threads, loadsEarly: false, isServed: true };
    for (const answer of pool.ask({ kind: 'open', ...opened })) answered(answer);
  }

  /** What this worker sends on: over its replicas, and in a group over those of the workers below. */
  get nodes(): WorkerPlan['share']['nodes'] {
    return this.plan.group?.nodes ?? this.plan.share.nodes;
  }

  /** Place in the roster of the worker that stands for the servers; undefined where this one speaks with them. */
  get above(): number | undefined {
    return this.plan.group?.above;
  }

  hasBelow(place: number): boolean {
    return this.plan.group?.below.some((worker) => worker.place === place) === true;
  }

  /** Adds what the workers below have sent to the sums here, over the range of a server, in the order of the reduction tree. */
  addBelow(server: number, below: readonly Below[]): void {
    const { share } = this.plan;
    const preferred = this.part(this.sums[0]!, server);
    const { kernels } = this;
    const sum = new TreeSum(
      share.replicas,
      this.nodes,
      (into, from) => kernels.add(into.byteOffset, from.byteOffset, into.length),
      preferred,
    );
    const finished = new Map<number, Float32Array>();
    const insert = (node: (typeof share.nodes)[number], values: Float32Array): void => {
      const whole = sum.insert(0, node, values);
      if (whole) finished.set(whole.node.lo, whole.values);
    };
    for (const [i, node] of share.nodes.entries()) insert(node, this.part(this.sums[i]!, server));
    for (const [worker, { nodes, parts }] of below.entries())
      for (const [i, node] of nodes.entries()) {
        const values = this.part(this.belowVectors[worker]![i]!, server);
        bytesOf(values).set(parts[i]!);
        insert(node, values);
      }
    this.wholes.set(
      server,
      this.nodes.map(({ lo }) => finished.get(lo)!),
    );
  }

  /** The sum of a node that is sent on. */
  private sum(node: number, server: number): Float32Array {
    return this.wholes.get(server)?.[node] ?? this.part(this.sums[node]!, server);
  }

  /** Where the parameters of each server belong, in a vector of the whole model. */
  places(vector = this.parameters): Uint8Array[] {
    return Array.from({ length: this.servers }, (_, server) => bytesOf(this.part(vector, server)));
  }

  /** The sums of the nodes, of the range of a server, once for each round: with error feedback they get what the sums before have left out. */
  sumsFor(server: number, round: number): readonly Uint8Array[] {
    const packed = this.packed?.[server];
    if (!packed) return this.nodes.map((_, node) => bytesOf(this.sum(node, server)));
    const { range, messages, rests, keptCount } = packed;
    const growth = keptCount > 0 ? this.count / keptCount : 1;
    for (const [i, { lo }] of this.nodes.entries()) {
      const [sum, rest, key] = [this.sum(i, server), rests[i], { round, server, lo }];
      // A batch without rows has no gradient: what is kept stays for the next one.
      if (rest && this.count > 0) range.packWith(sum, rest, messages[i]!, key, this.kernels, growth);
      else range.pack(sum, messages[i]!, key);
    }
    if (this.count > 0) packed.sent = { round, count: this.count };
    return messages;
  }

  /** Before the sums are computed anew: keeps what those of the step before have left, if it counts. */
  private keepRests(committed: number): void {
    for (const [server, packed] of (this.packed ?? []).entries()) {
      const { range, messages, rests, sent } = packed;
      packed.sent = undefined;
      if (sent?.round !== committed) continue;
      packed.keptCount = sent.count;
      for (const [i, rest] of rests.entries()) if (rest) range.keepRest(this.sum(i, server), rest, messages[i]!, this.kernels);
    }
  }

  private range(server: number): Range {
    return rangeOf(this.layout.totalLength, this.servers, server);
  }

  private part(vector: Float32Array, server: number): Float32Array {
    const { offset, length } = this.range(server);
    return vector.subarray(offset, offset + length);
  }

  /** @param parts rows of this worker: inputs, targets, weights */
  async step({ count, step, rate, committed }: Step, parts: readonly Uint8Array[]): Promise<Stepped> {
    this.keepRests(committed);
    const buffers = this.filled(count, parts, ['inputs', 'targets']);
    const { from, to } = this.rows(count);
    new Uint8Array(buffers.weights, from * 4, (to - from) * 4).set(parts.at(-1)!);
    this.begin(count, step);
    this.count = count;
    this.header[RATE] = rate;
    return this.computed(await this.pool.computeLater(STEP, this.model));
  }

  /** @param parts rows of this worker: inputs */
  async predict({ count, step, rowsAtOnce }: Predict, parts: readonly Uint8Array[]): Promise<Stepped> {
    this.filled(count, parts, ['inputs']);
    this.begin(count, step);
    this.header[ROWS_AT_ONCE] = rowsAtOnce;
    return this.computed(await this.pool.computeLater(PREDICT, this.model));
  }

  /** The rows of this worker in each output. */
  outputs(count: number): Uint8Array[] {
    const { from, to } = this.rows(count);
    return this.floats.outputs.map((floats, i) => new Uint8Array(this.buffers!.outputs[i]!, from * floats * 4, (to - from) * floats * 4));
  }

  close(): void {
    if (this.pool.isOpen) this.pool.ask({ kind: 'close', model: this.model });
  }

  private rows(count: number): { readonly from: number; readonly to: number } {
    const { share } = this.plan;
    return { from: replicaRows(count, share.replicas, share.from).from, to: replicaRows(count, share.replicas, share.to - 1).to };
  }

  private begin(count: number, step: number): void {
    this.header[COUNT] = count;
    this.header[STEP_NUMBER] = step;
    this.header[VERSION] = this.generation;
  }

  private computed(answers: readonly FromThread[]): Stepped {
    const failures = answers.flatMap((answer) => (answer.kind === 'failed' ? [answer] : []));
    const { from, to } = this.plan.share;
    return {
      losses: Array.from(this.losses.subarray(from, to), jsonNumber),
      failures: failures.map(({ replica, layer, message }) => ({ replica, layer, message: message.slice(0, 2000) })),
    };
  }

  private filled(count: number, parts: readonly Uint8Array[], kinds: readonly ('inputs' | 'targets')[]): BatchBuffers {
    const buffers = this.buffersFor(count);
    const { from } = this.rows(count);
    let next = 0;
    for (const kind of kinds)
      for (const [i, floats] of this.floats[kind].entries()) {
        const rows = parts[next++]!;
        new Uint8Array(buffers[kind][i]!, from * floats * 4, rows.length).set(rows);
      }
    return buffers;
  }

  private buffersFor(count: number): BatchBuffers {
    if (this.buffers && count <= this.capacity) return this.buffers;
    this.capacity = count;
    const shared = (floats: number): SharedArrayBuffer => new SharedArrayBuffer(count * floats * 4);
    const { inputs, targets, outputs } = this.floats;
    this.buffers = { inputs: inputs.map(shared), targets: targets.map(shared), weights: shared(1), outputs: outputs.map(shared) };
    for (const answer of this.pool.ask({ kind: 'buffers', model: this.model, buffers: this.buffers })) answered(answer);
    return this.buffers;
  }
}
