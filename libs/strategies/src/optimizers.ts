/**
 * The optimizers of runs (docs/optimizers.md) for models of a tf.js program: what tf.js lacks, such as AdamW, and what it has, as Keras computes it. In a strategy they are applied by the
 * threads and servers that apply those of `tf.train`; without one, tf.js calls `applyGradients` here. Both use the kernels of libs/kernels, so equal gradients make equal bits.
 */
import { Arena, ARENA_MAXIMUM_BYTES } from '@paceline/kernels';
import { matchesPatterns, optimizerSchema, plainIssues, type OptimizerSpec, type OptimizerSpecInput } from '@paceline/spec';
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError } from './errors.js';
import { valuesOf } from './model/tensors.js';
import { initialSlots, type RunRule, slotNames } from './update-rule.js';
import { updateOf } from './threads/updates.js';

type Name = Exclude<OptimizerSpec['name'], 'lamb' | 'lars'>;
/** The fields of the optimizer in a run spec; each has the default that it has there. */
export type OptimizerOptions<N extends Name> = Omit<
  Extract<OptimizerSpecInput, { name: N }>,
  'name' | 'emaMomentum' | 'emaOverwriteRounds'
>;

interface Slot {
  readonly originalName: string;
  readonly variable: tfc.Variable;
}
export interface WithExclusions {
  readonly weightDecay?: number;
  readonly weightDecayExclude?: readonly string[];
}

interface NamedTensor {
  readonly name: string;
  readonly tensor: tfc.Tensor;
}

type Gradients = Parameters<tfc.Optimizer['applyGradients']>[0];

/** Arguments and results of kernels, for a piece of a variable at a time: its memory is never given back. */
let scratch: Arena | undefined;
const SCRATCH_BYTES = 1 << 16;
/** Elements: with its slots and its gradient a piece stays in the second-level cache. */
const PIECE = 1 << 14;

/** An optimizer of runs as one of tf.js. */
export class RunOptimizer extends tfc.Optimizer {
  /** The step size; it may be set between two steps, as with the optimizers of tf.js. */
  learningRate: number;
  readonly rule: RunRule;
  private readonly slots: Record<string, Slot[]>;

  /** @throws ArgumentError for fields that have no meaning */
  constructor(given: OptimizerSpecInput) {
    super();
    const spec = specOf(given);
    this.learningRate = spec.learningRate;
    this.rule = { name: 'run', spec, undecayed: [] };
    // Fields of their own, as tf.js has them: what a strategy watches (model/optimizer-link.ts).
    this.slots = this as unknown as Record<string, Slot[]>;
    for (const name of slotNames(this.rule)) this.slots[name] = [];
  }

  /** The variable keeps its weights but for the steps: `weightDecayExclude` names it. tf.js appends a number to a name that is taken; it does not count. */
  keepsWeight(variable: string, patterns = (this.rule.spec as WithExclusions).weightDecayExclude): boolean {
    return matchesPatterns(patterns, variable) || matchesPatterns(patterns, variable.replace(/_\d+$/, ''));
  }

  /** @param gradients of each variable, by its name */
  override applyGradients(gradients: Gradients): void {
    const given = Array.isArray(gradients) ? gradients : Object.entries(gradients).map(([name, tensor]) => ({ name, tensor }));
    const initial = initialSlots(this.rule);
    for (const [i, { name, tensor }] of given.entries()) {
      const variable = tfc.engine().registeredVariables[name]!;
      const slots = slotNames(this.rule).map((slot, s) => (this.slots[slot]![i] ??= slotFor(variable, slot, initial[s]!)));
      for (const slot of slots) this.requireSlotOf(variable, slot);
      if (tensor as tfc.Tensor | null) this.update(variable, tensor, slots);
    }
    this.incrementIterations();
  }

  private requireSlotOf({ name, shape }: tfc.Variable, { originalName, variable }: Slot): void {
    if (tfc.util.arraysEqual(variable.shape, shape)) return;
    throw new ArgumentError(
      `the state of ${this.rule.spec.name} is of another model: ${originalName} has the shape [${variable.shape.join(', ')}], and ${name} has [${shape.join(', ')}]. Give setWeights what getWeights gave for a model of the same layers`,
    );
  }

  private update(variable: tfc.Variable, gradient: tfc.Tensor, slots: readonly Slot[]): void {
    if (variable.size === 0) return;
    const changed = [variable, ...slots.map((slot) => slot.variable)];
    const before = [...changed, gradient].map((each) => valuesOf(each) as Float32Array);
    const after = changed.map(() => new Float32Array(variable.size));
    const arena = (scratch ??= Arena.create({ initialBytes: SCRATCH_BYTES, maximumBytes: ARENA_MAXIMUM_BYTES }));
    const pointers: number[] = [];
    try {
      for (const _ of before) pointers.push(arena.alloc(Math.min(variable.size, PIECE) * 4));
      const [params, ...ofSlots] = pointers as [number, ...number[]];
      const grad = ofSlots.pop()!;
      const [step, rate, keepsWeight] = [this.iterations + 1, this.learningRate, this.keepsWeight(variable.name)];
      for (let from = 0; from < variable.size; from += PIECE) {
        const count = Math.min(PIECE, variable.size - from);
        for (const [i, pointer] of pointers.entries()) arena.f32(pointer, count).set(before[i]!.subarray(from, from + count));
        updateOf(this.rule, 0)(arena, { params, grad, slots: ofSlots, count, step, rate, gradScale: 1, keepsWeight });
        for (const [i, values] of after.entries()) values.set(arena.f32(pointers[i]!, count), from);
      }
    } finally {
      for (const pointer of pointers) arena.free(pointer);
    }
    for (const [i, each] of changed.entries()) {
      const tensor = tfc.tensor(after[i]!, each.shape, 'float32');
      each.assign(tensor);
      tensor.dispose();
    }
  }

  private variables(): Slot[] {
    return slotNames(this.rule).flatMap((name) => this.slots[name]!);
  }

  /** The count of steps, and each slot of all variables. */
  override async getWeights(): Promise<NamedTensor[]> {
    const kept = this.variables().map(({ originalName: name, variable: tensor }) => ({ name, tensor }));
    return [await this.saveIterations(), ...kept];
  }

  /** @param weightValues as `getWeights` gives them */
  override async setWeights(weightValues: NamedTensor[]): Promise<void> {
    const kept = await this.extractIterations(weightValues);
    const names = slotNames(this.rule);
    const each = kept.length / Math.max(1, names.length);
    if (!Number.isInteger(each) || (names.length === 0 && kept.length > 0))
      throw new ArgumentError(
        `${kept.length} tensors are no state of ${this.rule.spec.name}, which keeps ${names.length} for each variable`,
      );
    for (const [s, name] of names.entries())
      this.slots[name] = kept
        .slice(s * each, (s + 1) * each)
        .map((given) => ({ originalName: given.name, variable: tfc.tidy(() => tfc.variable(given.tensor.clone(), false)) }));
  }

  override getConfig(): tfc.serialization.ConfigDict {
    const { name: _, weightDecayExclude: patterns, ...fields } = this.rule.spec as OptimizerSpec & WithExclusions;
    const excluded = patterns && { weightDecayExclude: patterns.map((name) => ({ name })) };
    return { ...fields, ...excluded, learningRate: this.learningRate } as unknown as tfc.serialization.ConfigDict;
  }

  override dispose(): void {
    for (const { variable } of this.variables()) variable.dispose();
    super.dispose();
  }
}

const slotFor = (variable: tfc.Variable, slot: string, value: number): Slot => ({
  originalName: `${variable.name}/${slot}`,
  variable: tfc.tidy(() => tfc.variable(tfc.fill(variable.shape, value), false)),
});

function specOf(given: OptimizerSpecInput): OptimizerSpec {
  const what = `optimizers.${given.name}`;
  const parsed = optimizerSchema.safeParse(given);
  if (!parsed.success) {
    const [issue] = plainIssues(optimizerSchema, given, parsed.error.issues);
    throw new ArgumentError(`${what}: ${issue?.path ?? ''}: ${issue?.message ?? 'is not supported'}`);
  }
  if (parsed.data.emaMomentum !== undefined || parsed.data.emaOverwriteRounds !== undefined)
    throw new ArgumentError(`${what}: emaMomentum: a moving average of the weights is kept in runs of the service alone: leave it out`);
  const { weightDecay = 0, weightDecayExclude } = parsed.data as WithExclusions;
  if (weightDecayExclude && weightDecay === 0)
    throw new ArgumentError(`${what}: weightDecayExclude: no weight decays: give weightDecay too`);
  return parsed.data;
}

/**
 * The fields of an optimizer from a configuration. tf.js adds `customObjects` to the one of a model that it loads, and takes the underscores out of all texts but those of a
 * field called `name`: `getConfig` has patterns under that.
 */
function optionsOf(config: tfc.serialization.ConfigDict): tfc.serialization.ConfigDict {
  const { customObjects: _, weightDecayExclude: patterns, ...fields } = config;
  if (!Array.isArray(patterns)) return fields;
  const named = patterns.map((pattern) => (pattern as Partial<Record<'name', string>> | null)?.name ?? pattern);
  return { ...fields, weightDecayExclude: named };
}

type Made<N extends Name> = {} extends OptimizerOptions<N> ? (options?: OptimizerOptions<N>) => RunOptimizer : never;

/** A class for each, as tf.js saves and loads optimizers by the name of their class. */
function made<N extends Name>(name: N): Made<N> {
  class Named extends RunOptimizer {
    static readonly className = `paceline.${name}`;

    static override fromConfig<T extends tfc.serialization.Serializable>(
      cls: tfc.serialization.SerializableConstructor<T>,
      config: tfc.serialization.ConfigDict,
    ): T {
      return new cls(optionsOf(config));
    }

    constructor(options: object = {}) {
      super({ ...options, name } as OptimizerSpecInput);
    }
  }
  tfc.serialization.registerClass(Named);
  return ((options?: object) => new Named(options)) as unknown as Made<N>;
}

/**
 * The optimizers of runs, for `model.compile`. They compute as Keras 3 does, in float32, also where tf.js differs.
 * Each throws an ArgumentError for fields that have no meaning.
 */
export const optimizers = {
  sgd: made('sgd'),
  momentum: made('momentum'),
  adam: made('adam'),
  adamw: made('adamw'),
  amsgrad: made('amsgrad'),
  adamax: made('adamax'),
  nadam: made('nadam'),
  rmsprop: made('rmsprop'),
  adagrad: made('adagrad'),
  adadelta: made('adadelta'),
  ftrl: made('ftrl'),
  lion: made('lion'),
} as const;
