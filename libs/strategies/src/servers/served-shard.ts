/**
 * The part of one model that a parameter server keeps: its range of the parameters and of the optimizer's slots. Pure but for the memory.
 *
 * | what comes | what happens |
 * |---|---|
 * | sums of nodes of a round | they are kept; nothing has changed |
 * | the round is committed | they are added up in the order of the reduction tree, and update the range: the next generation |
 * | the round is dropped | they are forgotten, and so are those that come late |
 * | a gradient without a round | it updates the range at once |
 */
import { TreeSum } from '@paceline/collectives';
import { Arena, ARENA_MAXIMUM_BYTES } from '@paceline/kernels';
import type { Node } from '@paceline/learning';
import { ArgumentError } from '../errors.js';
import { packedSums, type GradientCodecKind } from '../members/packed-sums.js';
import type { Range } from '../threads/ranges.js';
import { updateOf, type Update } from '../threads/updates.js';
import { initialSlots, type UpdateRule } from '../update-rule.js';
import { PackedRange } from './packed-range.js';

export interface ShardPlan {
  readonly range: Range;
  readonly trainableLength: number;
  readonly replicas: number;
  readonly rule: UpdateRule;
  /** Nodes of the reduction tree that workers send, of all of them. */
  readonly nodes: readonly Node[];
  readonly codec: GradientCodec;
}

/** How sums travel to the servers. */
export interface GradientCodec {
  readonly kind: GradientCodecKind | 'none';
  /** Its random numbers follow from it. */
  readonly seed: number;
}

export interface Commit {
  readonly round: number;
  /** Examples of the batch. */
  readonly count: number;
  /** Step of the optimizer, from 1. */
  readonly step: number;
  readonly rate: number;
}

/** An update in pieces of so many elements needs no more zeros than that. */
const BLOCK_LENGTH = 1 << 18;
const LINE_BYTES = 64;

export class ServedShard {
  generation = 0;
  /** Steps of the optimizer so far. */
  steps = 0;
  private readonly arena: Arena;
  private readonly parameters: number;
  private readonly slots: readonly number[];
  private readonly gradients: readonly number[];
  private readonly zeros: number;
  /** With a codec: where a sum is copied to be decoded. */
  private readonly encoded: { readonly range: PackedRange; readonly message: Uint8Array } | undefined;
  private readonly update: Update;
  private trained: readonly Range[] = [];
  private copy: { readonly generation: number; readonly bytes: Uint8Array } | undefined;
  /** The round that is gathered, and what has come of it. */
  private round = -1;
  private readonly here = new Map<number, Node>();
  private closedRound = -1;

  constructor(private readonly plan: ShardPlan) {
    const { range, rule, nodes, codec, trainableLength } = plan;
    const packing = packedSums(codec.kind, codec.seed, trainableLength, () => this.arena);
    const packed = packing && new PackedRange(packing, range);
    const initial = initialSlots(rule);
    const vectors = [1, ...initial, ...nodes, 1].length;
    const bytes = (vectors * range.length + BLOCK_LENGTH) * 4 + (packed?.bytes ?? 0) + (vectors + 2) * LINE_BYTES + (1 << 16);
    if (bytes > ARENA_MAXIMUM_BYTES)
      throw new ArgumentError(
        `${range.length} parameters with ${initial.length} slots are too many for one parameter server: start more of them`,
      );
    this.arena = Arena.create({ initialBytes: bytes, maximumBytes: ARENA_MAXIMUM_BYTES });
    const filled = (length: number, value = 0): number => {
      const pointer = this.arena.alloc(Math.max(1, length) * 4);
      this.arena.kernels.fill(pointer, length, value);
      return pointer;
    };
    this.parameters = filled(range.length);
    this.slots = initial.map((value) => filled(this.trainable.length, value));
    this.gradients = nodes.map(() => filled(range.length));
    this.zeros = filled(BLOCK_LENGTH);
    this.encoded = packed && { range: packed, message: this.arena.bytes(filled(packed.bytes / 4), packed.bytes) };
    this.update = updateOf(rule, this.zeros);
    this.train([{ offset: 0, length: plan.trainableLength }]);
  }

  /** The part of the range whose parameters are trained, and not the state of layers. */
  private get trainable(): Range {
    const { range, trainableLength } = this.plan;
    const from = Math.min(range.offset, trainableLength);
    return { offset: from, length: Math.min(range.offset + range.length, trainableLength) - from };
  }

  get parameterBytes(): number {
    return this.plan.range.length * 4;
  }

  get slotBytes(): number {
    return this.trainable.length * this.slots.length * 4;
  }

  values(): Float32Array {
    return this.arena.f32(this.parameters, this.plan.range.length);
  }

  /** A copy of the parameters, one for all who read this generation: what is sent must not change while it leaves. */
  published(): Uint8Array {
    if (this.copy?.generation !== this.generation) {
      const { buffer } = this.values().slice();
      this.copy = { generation: this.generation, bytes: new Uint8Array(buffer) };
    }
    return this.copy.bytes;
  }

  slotValues(): Float32Array[] {
    return this.slots.map((pointer) => this.arena.f32(pointer, this.trainable.length));
  }

  /** Where a gradient lies that counts at once. */
  private pushed: number | undefined;

  /** The coordinator has written to it. */
  written(steps: number): void {
    this.generation++;
    this.steps = steps;
  }

  /** Which ranges of the model are trained: all but the frozen ones. */
  train(ranges: readonly Range[]): void {
    const { offset: first, length } = this.trainable;
    this.trained = ranges.flatMap(({ offset, length: width, keepsWeight }) => {
      const [from, to] = [Math.max(offset, first), Math.min(offset + width, first + length)];
      return from < to ? [Object.assign({ offset: from, length: to - from }, keepsWeight && { keepsWeight })] : [];
    });
  }

  /** @returns false where the round is over: nothing is kept */
  take(round: number, nodes: readonly Node[], values: readonly Uint8Array[]): boolean {
    if (round <= this.closedRound) return false;
    if (round > this.round) {
      this.round = round;
      this.here.clear();
    }
    for (const [i, { lo, hi }] of nodes.entries()) {
      const place = this.plan.nodes.findIndex((node) => node.lo === lo && node.hi === hi);
      if (place < 0) throw new ArgumentError(`the sum of the replicas ${lo} to ${hi - 1} is of no worker`);
      if (this.here.has(place)) throw new ArgumentError(`the sum of the replicas ${lo} to ${hi - 1} came twice in round ${round}`);
      if (this.encoded) this.decode(this.encoded, place, values[i]);
      else this.write(this.gradients[place]!, values[i]);
      this.here.set(place, { lo, hi });
    }
    return true;
  }

  private decode({ range, message }: NonNullable<ServedShard['encoded']>, place: number, values: Uint8Array | undefined): void {
    if (values?.length !== message.length) throw new ArgumentError(`${values?.length ?? 0} bytes for a sum that takes ${message.length}`);
    message.set(values);
    if (!range.unpack(message, this.view(place))) throw new ArgumentError(`a sum is not as ${this.plan.codec.kind} writes it`);
  }

  private write(pointer: number, values: Uint8Array | undefined): void {
    const { length } = this.plan.range;
    if (values?.length !== length * 4) throw new ArgumentError(`${values?.length ?? 0} bytes for ${length} float32`);
    this.bytes(pointer, length).set(values);
  }

  private bytes(pointer: number, length: number): Uint8Array {
    const { buffer, byteOffset } = this.arena.f32(pointer, length);
    return new Uint8Array(buffer, byteOffset, length * 4);
  }

  /** @throws ArgumentError where sums are missing */
  commit({ round, count, step, rate }: Commit): void {
    const { replicas, nodes } = this.plan;
    if (round !== this.round || this.here.size !== nodes.length)
      throw new ArgumentError(`round ${round} cannot be committed: ${this.here.size} of ${nodes.length} sums are here`);
    this.drop(round);
    const { kernels } = this.arena;
    const sum = new TreeSum(
      replicas,
      [{ lo: 0, hi: replicas }],
      (into, from) => kernels.add(into.byteOffset, from.byteOffset, into.length),
      this.view(0),
    );
    const order = nodes.map((node, place) => ({ node, place })).sort((a, b) => a.node.lo - b.node.lo);
    const whole = order.map(({ node, place }) => sum.insert(0, node, this.view(place))).at(-1)!;
    // Gradients that were pushed meanwhile have taken steps of their own.
    this.apply(whole.values.byteOffset, {
      step: this.pushed === undefined ? step : Math.max(step, this.steps + 1),
      rate,
      gradScale: count === 0 ? 0 : 1 / count,
      isWhole: true,
    });
  }

  private view(place: number): Float32Array {
    return this.arena.f32(this.gradients[place]!, this.plan.range.length);
  }

  /** The round is over. */
  drop(round: number): void {
    this.closedRound = Math.max(this.closedRound, round);
    this.here.clear();
  }

  /** A gradient that counts at once, as a mean over its examples; the state of layers stays as it is. */
  push(gradient: Uint8Array, rate: number): void {
    // The sums of a step that is being gathered stay where they are.
    const { length } = this.plan.range;
    this.pushed ??= this.arena.alloc(Math.max(1, length) * 4);
    this.write(this.pushed, gradient);
    this.apply(this.pushed, { step: this.steps + 1, rate, gradScale: 1, isWhole: false });
  }

  private apply(
    sum: number,
    { step, rate, gradScale, isWhole }: { step: number; rate: number; gradScale: number; isWhole: boolean },
  ): void {
    const { range, trainableLength } = this.plan;
    const { offset: slotsFrom } = this.trainable;
    for (const { offset, length, keepsWeight } of this.trained)
      for (let at = offset; at < offset + length; at += BLOCK_LENGTH) {
        const bytes = (at - range.offset) * 4;
        this.update(this.arena, {
          params: this.parameters + bytes,
          grad: sum + bytes,
          slots: this.slots.map((pointer) => pointer + (at - slotsFrom) * 4),
          count: Math.min(BLOCK_LENGTH, offset + length - at),
          step,
          rate,
          gradScale,
          keepsWeight,
        });
      }
    const state = Math.max(range.offset, trainableLength);
    const stateLength = range.offset + range.length - state;
    const bytes = (state - range.offset) * 4;
    // Without rows the layers have computed no state: it stays as it is.
    if (isWhole && gradScale > 0 && stateLength > 0)
      this.arena.kernels.scaleInto(this.parameters + bytes, sum + bytes, stateLength, gradScale);
    this.generation++;
    this.steps = step;
  }
}
