/**
 * An optimizer as Keras serializes it (class name and `get_config()`), as the fields of a run spec. What Keras fills in by itself is filled in here;
 * what Paceline does not compute in the same way is refused, by the name of the field.
 */
import { optimizerSchema, type OptimizerSpec } from './optimizer-spec.js';
import type { SpecIssue } from './plain-issues.js';
import type { RunSpec } from './run-spec.js';

export interface KerasOptimizer {
  readonly class: string;
  readonly config: Readonly<Record<string, unknown>>;
}

export type KerasOptimizerResult =
  | {
      readonly ok: true;
      readonly optimizer: OptimizerSpec;
      readonly gradient: Pick<RunSpec['gradient'], 'clipNorm' | 'clipGlobalNorm' | 'clipValue'>;
    }
  | { readonly ok: false; readonly issues: readonly SpecIssue[] };

/** Field of Paceline, and what Keras takes where nothing is said. */
type Field = readonly [name: string, otherwise: number | boolean];

interface KnownClass {
  readonly learningRate: number;
  readonly fields: Readonly<Record<string, Field>>;
  /** Fields that must have this value: Paceline computes nothing else there. */
  readonly fixed?: Readonly<Record<string, number | boolean>>;
  readonly weightDecay?: number;
  nameOf(fields: Readonly<Record<string, unknown>>): OptimizerSpec['name'];
}

const BETAS = { beta_1: ['beta1', 0.9], beta_2: ['beta2', 0.999], epsilon: ['epsilon', 1e-7] } as const;

const CLASSES: Readonly<Record<string, KnownClass>> = {
  SGD: {
    learningRate: 0.01,
    fields: { momentum: ['momentum', 0], nesterov: ['nesterov', false] },
    nameOf: ({ momentum }) => (momentum === 0 ? 'sgd' : 'momentum'),
  },
  Adam: {
    learningRate: 0.001,
    fields: { ...BETAS, amsgrad: ['amsgrad', false] },
    nameOf: ({ amsgrad }) => (amsgrad === true ? 'amsgrad' : 'adam'),
  },
  AdamW: { learningRate: 0.001, fields: BETAS, fixed: { amsgrad: false }, weightDecay: 0.004, nameOf: () => 'adamw' },
  Adamax: { learningRate: 0.001, fields: BETAS, nameOf: () => 'adamax' },
  Nadam: { learningRate: 0.001, fields: BETAS, nameOf: () => 'nadam' },
  RMSprop: {
    learningRate: 0.001,
    fields: { rho: ['rho', 0.9], momentum: ['momentum', 0], epsilon: ['epsilon', 1e-7], centered: ['centered', false] },
    nameOf: () => 'rmsprop',
  },
  Adagrad: {
    learningRate: 0.001,
    fields: { initial_accumulator_value: ['initialAccumulator', 0.1], epsilon: ['epsilon', 1e-7] },
    nameOf: () => 'adagrad',
  },
  Adadelta: { learningRate: 0.001, fields: { rho: ['rho', 0.95], epsilon: ['epsilon', 1e-7] }, nameOf: () => 'adadelta' },
  Ftrl: {
    learningRate: 0.001,
    fields: {
      initial_accumulator_value: ['initialAccumulator', 0.1],
      l1_regularization_strength: ['l1', 0],
      l2_regularization_strength: ['l2', 0],
      l2_shrinkage_regularization_strength: ['l2Shrinkage', 0],
      beta: ['beta', 0],
    },
    fixed: { learning_rate_power: -0.5 },
    nameOf: () => 'ftrl',
  },
  Lamb: { learningRate: 0.001, fields: BETAS, nameOf: () => 'lamb' },
  Lion: { learningRate: 0.001, fields: { beta_1: ['beta1', 0.9], beta_2: ['beta2', 0.99] }, nameOf: () => 'lion' },
};

const CLIPPING = { clipnorm: 'clipNorm', global_clipnorm: 'clipGlobalNorm', clipvalue: 'clipValue' } as const;
/** Keras writes them into every config; they say nothing about an update, or nothing unless they are set. */
const WITHOUT_EFFECT: readonly string[] = ['name', 'jit_compile', 'is_legacy_optimizer'];
const AVERAGING: readonly string[] = ['use_ema', 'ema_momentum', 'ema_overwrite_frequency'];
const UNSET_ONLY: Readonly<Record<string, string>> = {
  loss_scale_factor: 'a loss is not scaled here: leave it out, as float32 needs no scale',
  gradient_accumulation_steps: 'updates over several steps are not replayed: a larger global batch is the same',
};

const isSet = (value: unknown): boolean => value !== undefined && value !== null && value !== false;
const shown = (value: unknown): string => (JSON.stringify(value) ?? 'undefined').slice(0, 100);

type Config = KerasOptimizer['config'];
type Refuse = (path: string, message: string) => void;

function fieldsOf(known: KnownClass, config: Config, refuse: Refuse): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const [key, [name, otherwise]] of Object.entries(known.fields)) {
    const value = config[key] ?? otherwise;
    if (typeof value !== typeof otherwise) refuse(key, `${shown(value)} is not a ${typeof otherwise}`);
    fields[name] = value;
  }
  for (const [key, wanted] of Object.entries(known.fixed ?? {}))
    if ((config[key] ?? wanted) !== wanted) refuse(key, `only ${wanted} is computed here, not ${shown(config[key])}`);
  return fields;
}

function refuseOthers(className: string, known: KnownClass, config: Config, refuse: Refuse): void {
  for (const [key, why] of Object.entries(UNSET_ONLY)) if (isSet(config[key])) refuse(key, why);
  const taken = ['learning_rate', 'weight_decay', ...Object.keys(known.fields), ...Object.keys(known.fixed ?? {})];
  const others = [...taken, ...Object.keys(CLIPPING), ...Object.keys(UNSET_ONLY), ...WITHOUT_EFFECT, ...AVERAGING];
  for (const key of Object.keys(config))
    if (!others.includes(key)) refuse(key.slice(0, 100), `is no field of ${className} that is known here`);
}

function clippingOf(config: Config, refuse: Refuse): Record<string, number> {
  const clips = Object.entries(CLIPPING).filter(([key]) => isSet(config[key]));
  for (const [key] of clips)
    if (typeof config[key] !== 'number' || config[key] <= 0) refuse(key, `${shown(config[key])} is not a number above 0`);
  if (clips.length > 1) refuse(clips[1]![0], `cannot be given together with ${clips[0]![0]}: Keras takes one of them`);
  return Object.fromEntries(clips.map(([key, name]) => [name, config[key] as number]));
}

/** Reads the optimizer of a Keras config. Never throws; the `path` of an issue is the field of Keras. */
export function optimizerOfKeras({ class: className, config }: KerasOptimizer): KerasOptimizerResult {
  const known = Object.hasOwn(CLASSES, className) ? CLASSES[className]! : undefined;
  if (!known)
    return { ok: false, issues: [{ path: 'class', message: `${shown(className)} is not among ${Object.keys(CLASSES).join(', ')}` }] };
  const issues: SpecIssue[] = [];
  const refuse: Refuse = (path, message) => void issues.push({ path, message });
  const fields = fieldsOf(known, config, refuse);
  const learningRate = config['learning_rate'] ?? known.learningRate;
  if (typeof learningRate !== 'number')
    refuse('learning_rate', `must be a number here, not ${shown(learningRate)}: schedules are not replayed`);
  const weightDecay = config['weight_decay'] ?? known.weightDecay;
  if (weightDecay !== undefined && className === 'Ftrl') refuse('weight_decay', 'Ftrl has no weight decay here');
  refuseOthers(className, known, config, refuse);
  const gradient = clippingOf(config, refuse);
  if (issues.length > 0) return { ok: false, issues };
  const name = known.nameOf(fields);
  const own = Object.fromEntries(
    Object.entries(fields).filter(([field]) => name === 'momentum' || !ONLY_WITH_MOMENTUM.includes(field) || className !== 'SGD'),
  );
  delete own['amsgrad'];
  const average = isSet(config['use_ema']) && {
    emaMomentum: config['ema_momentum'] ?? 0.99,
    ...(isSet(config['ema_overwrite_frequency']) ? { emaOverwriteRounds: config['ema_overwrite_frequency'] } : {}),
  };
  const parsed = optimizerSchema.safeParse(Object.assign({ name, learningRate }, own, isSet(weightDecay) && { weightDecay }, average));
  if (parsed.success) return { ok: true, optimizer: parsed.data, gradient };
  return { ok: false, issues: parsed.error.issues.map(({ path, message }) => ({ path: `optimizer.${path.join('.')}`, message })) };
}

const ONLY_WITH_MOMENTUM: readonly string[] = ['momentum', 'nesterov'];
