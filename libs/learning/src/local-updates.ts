/**
 * The local steps of a replica in a round (strategy local-update): it begins with the weights of the generation, takes its steps by itself, each with a
 * batch of its own, and leaves the outer gradient: what it began with less what it has come to, times its examples. So the servers average over
 * replicas by their examples, as they do with gradients (local SGD, Stich 2018; DiLoCo, Douillard et al. 2023).
 *
 *   w = start;  for each batch: w = inner optimizer(w, gradient of the batch);  out = (start − w) · examples
 *
 * State (moving averages) is that after the last step, times the examples too. The optimizer's slots begin anew in each round, or are kept per replica: round
 * k takes those that round k-1 left, so a replica that is computed twice in a round is computed the same. Where another worker computed it in round k-1,
 * nothing is kept here: it begins with new ones.
 *
 * With elastic averaging (EASGD; Zhang, Choromanska and LeCun 2015, in rounds) a replica goes on with weights x of its own, and what it sends is how far they are
 * from those of the servers, its centre c. After that both are pulled together by the moving rate α, the centre at the servers:
 *
 *   x = own weights, c at first;  local steps from x;  out = (c − x) · examples;  x = x + α · (c − x)
 *
 * With fragments (fragments.ts) a round exchanges a part of the weights, and a replica goes on with weights of its own in the others:
 *
 *   x = own weights, with c in what round k-1 has exchanged;  local steps from x;  out = (c − x) · examples
 *
 * The own weights are kept as slots are: round k takes those that round k-1 left here; without them the replica begins at the centre. State begins with
 * that of the centre in each round.
 *
 * Memory: one vector for the weights and one per slot; where slots are kept, two sets of them per replica instead, and of own weights too.
 */
import type { Arena } from '@paceline/kernels';
import { matchesPatterns, type OptimizerSpec } from '@paceline/spec';
import { judgeRound, type ClipRules } from './clip.js';
import type { Layout } from './layout.js';
import { createOptimizer, rateOf, type Optimizer } from './optimizers.js';

const FLOAT_BYTES = 4;

export interface LocalUpdatesOptions {
  readonly arena: Arena;
  readonly layout: Layout;
  /** The inner one, by elements: neither lamb nor lars. */
  readonly optimizer: OptimizerSpec;
  /** What is done to the gradient of each local step; norms are of its mean. */
  readonly clip: ClipRules & { readonly clipValue?: number | undefined };
  /** Variables that keep their values; see matchesPatterns. */
  readonly freeze?: readonly string[] | undefined;
  /** Whether a replica goes on with the slots of its last round. */
  readonly keepsSlots: boolean;
  /** Elastic averaging: the part of the way to the centre that a replica goes in a round. Undefined: a replica keeps no weights. */
  readonly movingRate?: number | undefined;
  /** Whether a round exchanges a chunk; undefined where each exchanges all. */
  readonly isExchanged?: ((round: number, chunk: number) => boolean) | undefined;
  /** Local steps of a whole round. */
  readonly localSteps: number;
  /** What the rate is multiplied by; a local step is a fraction of its round. */
  rateFactor(round: number): number;
}

export interface LocalRound {
  readonly round: number;
  readonly replica: number;
  /** Local steps to take; the last round of an epoch may have fewer than others. */
  readonly steps: number;
  /** The flat vector of the generation. */
  readonly start: Float32Array;
  /** Where the outer gradient goes: a flat vector of the arena. It has the gradient of each local step before. */
  readonly out: number;
}

/**
 * Computes one local step: the gradient of the sum over its examples at `weights`, and state times its examples, into `gradient`.
 * @returns its examples; 0 where it has none, undefined where the rest of the round is not wanted any more
 */
export type LocalStep = (localStep: number, weights: Float32Array, gradient: Float32Array) => number | undefined;

interface Slots {
  readonly pointers: readonly number[];
  /** The own weights of the replica; 0 where it keeps none. */
  readonly weights: number;
  /** Steps that they have seen: what corrects the means of adam while they are young. */
  readonly steps: number;
}

type Vectors = Pick<Slots, 'pointers' | 'weights'>;

interface KeptSlots {
  readonly round: number;
  /** What this round began with; undefined: new ones. */
  readonly before: Slots | undefined;
  readonly after: Slots;
}

interface Range {
  readonly from: number;
  readonly to: number;
}

export class LocalUpdates {
  private readonly optimizer: Optimizer;
  private readonly kept = new Map<number, KeptSlots>();
  private readonly frozen: readonly Range[];
  private readonly decaying: readonly Range[];
  private weights = 0;
  private slots: Vectors | undefined;

  constructor(private readonly options: LocalUpdatesOptions) {
    const { layout, freeze, optimizer } = options;
    this.optimizer = createOptimizer(optimizer);
    const keepsWeight = 'weightDecayExclude' in optimizer ? optimizer.weightDecayExclude : undefined;
    const isFrozen = ({ path }: { path: string }): boolean => matchesPatterns(freeze, path);
    this.frozen = rangesOf(layout, isFrozen);
    this.decaying = rangesOf(layout, (each) => each.section === 'trainable' && !isFrozen(each) && !matchesPatterns(keepsWeight, each.path));
  }

  /**
   * @returns the examples of the replica in the round; undefined when a step was not wanted any more, and `out` is of no use
   * @throws ArenaFullError
   */
  run({ round, replica, steps, start, out }: LocalRound, step: LocalStep): number | undefined {
    const { arena, layout, localSteps } = this.options;
    const { totalLength } = layout;
    this.weights ||= arena.alloc(totalLength * FLOAT_BYTES);
    arena.f32(this.weights, totalLength).set(start);
    const slots = this.beginSlots({ round, replica, start });
    if (slots.weights !== 0) arena.kernels.copy(this.weights, slots.weights, layout.trainableLength);
    let [examples, seen] = [0, slots.steps];
    let isFinite = true;
    for (let local = 0; local < steps; local++) {
      const count = step(local, arena.f32(this.weights, totalLength), arena.f32(out, totalLength));
      if (count === undefined) {
        this.forget(replica);
        return undefined;
      }
      if (count === 0) continue;
      examples += count;
      // An update may hide it: a clip by value makes infinity a number, and lion takes the sign of a NaN for 0.
      isFinite &&= arena.kernels.allFinite(out, totalLength);
      this.update(out, slots.pointers, { count, step: ++seen, rateFactor: this.options.rateFactor(round + local / localSteps) });
      this.keepFrozen(start);
    }
    const kept = this.kept.get(replica);
    if (kept) this.kept.set(replica, { ...kept, after: { ...slots, steps: seen } });
    if (isFinite) this.leave(start, out, examples, slots.weights);
    else {
      this.forget(replica);
      arena.kernels.fill(out, totalLength, NaN); // for the servers to judge, as any other gradient
    }
    return examples;
  }

  /** One step of the inner optimizer, and state as the step has left it. */
  private update(
    gradient: number,
    slots: readonly number[],
    { count, step, rateFactor }: { count: number; step: number; rateFactor: number },
  ): void {
    const { arena, layout, optimizer: spec, clip } = this.options;
    const { kernels } = arena;
    const { trainableLength, stateLength } = layout;
    const mean = Math.fround(1 / count);
    if (clip.clipValue !== undefined) kernels.clamp(gradient, trainableLength, clip.clipValue / mean);
    const gradScale = Math.fround(mean * Math.fround(this.clipNorms(gradient, count)));
    const weightDecay = 'weightDecay' in spec ? spec.weightDecay : undefined;
    if (weightDecay) {
      for (const { from, to } of this.decaying) {
        const pointer = this.weights + from * FLOAT_BYTES;
        kernels.decayWeights(pointer, pointer, to - from, weightDecay, rateOf(spec, { rateFactor }));
      }
    }
    const params = { paramIn: this.weights, paramOut: this.weights, grad: gradient, slots };
    this.optimizer.apply(kernels, Object.assign(params, { count: trainableLength, step, gradScale, rateFactor }));
    const state = trainableLength * FLOAT_BYTES;
    kernels.scaleInto(this.weights + state, gradient + state, stateLength, mean);
  }

  /** Scales variables whose norm is too large. @returns what the whole gradient is to be scaled by */
  private clipNorms(gradient: number, count: number): number {
    const { arena, layout, clip } = this.options;
    if (clip.clipNorm === undefined && clip.clipGlobalNorm === undefined) return 1;
    const place = ({ offset }: { offset: number }): number => gradient + offset * FLOAT_BYTES;
    const squares = layout.variables.flatMap((each, variable) =>
      each.section === 'trainable' ? [[variable, arena.kernels.sumOfSquares(place(each), each.length)] as const] : [],
    );
    const { scale, variables } = judgeRound([{ chunk: 0, isFinite: true, squares }], count, clip);
    for (const [variable, factor] of variables) {
      const each = layout.variables[variable]!;
      arena.kernels.scaleInto(place(each), place(each), each.length, Math.fround(factor));
    }
    return scale;
  }

  /** Copied bit by bit: an update may move them without a gradient. */
  private keepFrozen(start: Float32Array): void {
    if (this.frozen.length === 0) return;
    const weights = this.options.arena.f32(this.weights, start.length);
    for (const { from, to } of this.frozen) weights.set(start.subarray(from, to), from);
  }

  /** @param own where the replica keeps its weights; 0 where it does not */
  private leave(start: Float32Array, out: number, examples: number, own: number): void {
    const { arena, layout, movingRate } = this.options;
    const { trainableLength, stateLength, totalLength } = layout;
    const { kernels } = arena;
    if (examples === 0 && own === 0) return kernels.fill(out, totalLength, 0);
    const state = trainableLength * FLOAT_BYTES;
    arena.f32(out, trainableLength).set(start.subarray(0, trainableLength));
    kernels.sgd(out, out, this.weights, trainableLength, 1, 1); // start − weights
    if (own !== 0 && movingRate === undefined) kernels.copy(own, this.weights, trainableLength);
    else if (own !== 0) kernels.sgd(this.weights, own, out, trainableLength, movingRate!, -1);
    if (examples === 0) return kernels.fill(out, totalLength, 0);
    kernels.scaleInto(out, out, trainableLength, examples);
    kernels.scaleInto(out + state, this.weights + state, stateLength, examples);
  }

  /** Slots that the round may change. */
  private beginSlots({ round, replica, start }: Pick<LocalRound, 'round' | 'replica' | 'start'>): Slots {
    if (!this.keepsAny) return this.begun((this.slots ??= this.allocate()).pointers);
    this.forgetBefore(round - 1);
    const last = this.kept.get(replica);
    const isAgain = last?.round === round;
    const before = isAgain ? last.before : last?.round === round - 1 ? last.after : undefined;
    const unused: Vectors | undefined = isAgain ? last.after : before && last?.before;
    if (last && !isAgain && before === undefined) this.forget(replica);
    const into = unused ?? this.allocate();
    const after = before ? this.copied(before, into) : this.begun(into.pointers, into.weights);
    if (!before && after.weights !== 0) this.centre(after.weights, start);
    else if (before) this.takeExchanged(round - 1, after.weights, start);
    this.kept.set(replica, { round, before, after });
    return after;
  }

  /** Something of a replica stays here between rounds. */
  private get keepsAny(): boolean {
    return this.options.keepsSlots || this.keepsWeights;
  }

  private get keepsWeights(): boolean {
    return this.options.movingRate !== undefined || this.options.isExchanged !== undefined;
  }

  private allocate(): Vectors {
    const { arena, layout, keepsSlots } = this.options;
    const one = (): number => arena.alloc(layout.trainableLength * FLOAT_BYTES);
    const allocateSlots = (): readonly number[] => this.optimizer.slots.map(one);
    // Own weights without own slots: these begin anew in each round, in one place for all replicas.
    const pointers = keepsSlots || !this.keepsAny ? allocateSlots() : (this.slots ??= { pointers: allocateSlots(), weights: 0 }).pointers;
    return { pointers, weights: this.keepsWeights ? one() : 0 };
  }

  /** The replica begins with the weights of the servers. */
  private centre(own: number, start: Float32Array): void {
    const { arena, layout } = this.options;
    arena.f32(own, layout.trainableLength).set(start.subarray(0, layout.trainableLength));
  }

  /** The replica has the weights of the servers in what a round has exchanged. */
  private takeExchanged(round: number, own: number, start: Float32Array): void {
    const { arena, layout, isExchanged } = this.options;
    if (!isExchanged) return;
    const weights = arena.f32(own, layout.trainableLength);
    for (const { index, section, offset, length } of layout.chunks)
      if (section === 'trainable' && isExchanged(round, index)) weights.set(start.subarray(offset, offset + length), offset);
  }

  private begun(pointers: readonly number[], weights = 0): Slots {
    const { arena, layout } = this.options;
    for (const [i, { initialValue }] of this.optimizer.slots.entries())
      arena.kernels.fill(pointers[i]!, layout.trainableLength, initialValue);
    return { pointers, weights, steps: 0 };
  }

  private copied(from: Slots, { pointers, weights }: Vectors): Slots {
    const { arena, layout, keepsSlots } = this.options;
    if (weights !== 0) arena.kernels.copy(weights, from.weights, layout.trainableLength);
    if (!keepsSlots) return this.begun(pointers, weights);
    for (const [i, pointer] of pointers.entries()) arena.kernels.copy(pointer, from.pointers[i]!, layout.trainableLength);
    return { pointers, weights, steps: from.steps };
  }

  /** What replicas have left in rounds before this one: they were computed elsewhere since. */
  private forgetBefore(round: number): void {
    for (const [replica, kept] of this.kept) if (kept.round < round) this.forget(replica);
  }

  /** What was kept of a replica is of no use: the replica begins anew. */
  private forget(replica: number): void {
    const kept = this.kept.get(replica);
    const { arena, keepsSlots } = this.options;
    for (const vectors of [kept?.before, kept?.after]) {
      if (!vectors) continue;
      if (keepsSlots) for (const pointer of vectors.pointers) arena.free(pointer);
      if (vectors.weights !== 0) arena.free(vectors.weights);
    }
    this.kept.delete(replica);
  }
}

/** Elements of the flat vector in variables of which this is true; neighbours are one range. */
function rangesOf({ variables }: Layout, isTrue: (variable: Layout['variables'][number]) => boolean): Range[] {
  const ranges: { from: number; to: number }[] = [];
  for (const variable of variables) {
    if (!isTrue(variable)) continue;
    const { offset: from, length } = variable;
    const last = ranges.at(-1);
    if (last?.to === from) last.to = from + length;
    else ranges.push({ from, to: from + length });
  }
  return ranges;
}
