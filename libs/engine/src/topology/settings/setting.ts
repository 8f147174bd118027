/** What a key of a layer's config may hold, as data: the words of the table in `layer-settings.ts`. */
import { ACTIVATIONS } from '../../layers/activations/activation-names.js';

/** A check of a value whose enumerations are in camel case. */
export interface Rule {
  /** Ends a sentence that begins with "must be". */
  readonly is: string;
  readonly holds: (value: unknown) => boolean;
}

export type Setting =
  /** The layer computes with it. */
  | { readonly use: Rule }
  /** The layer computes as if it had one of these values; others are refused. */
  | { readonly only: readonly unknown[]; readonly instead: string }
  /** Any value: none changes what is computed, and why. */
  | { readonly free: string };

export type Settings = Readonly<Record<string, Setting>>;

const use = (is: string, holds: (value: unknown) => boolean): Setting => ({ use: { is, holds } });
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const isInteger = (value: unknown): boolean => Number.isSafeInteger(value);
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 1;
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  value !== null && typeof value === 'object' && !Array.isArray(value);
const listOf = (holds: (value: unknown) => boolean) => (value: unknown) => Array.isArray(value) && value.every(holds);
const oneOf = (...names: readonly string[]): Setting =>
  use(`one of ${names.map((name) => JSON.stringify(snakeCase(name))).join(', ')}`, (value) => names.includes(value as string));

/** As Keras writes the names of tf.js. */
export const snakeCase = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Also null, which is the same as not to say it. */
export const orNull = (setting: Setting): Setting =>
  'use' in setting ? use(`${setting.use.is}, or null`, (value) => value === null || setting.use.holds(value)) : setting;
export const only = (values: readonly unknown[], instead: string): Setting => ({ only: values, instead });
export const free = (why: string): Setting => ({ free: why });

export const FLAG = use('true or false', (value) => typeof value === 'boolean');
export const COUNT = use('a positive integer', isCount);
/** One number, or one for each dimension. */
export const COUNTS = use(
  'a positive integer, or one for each dimension',
  (value) => isCount(value) || (listOf(isCount)(value) && (value as unknown[]).length > 0),
);
export const ONE_COUNT = use(
  'one positive integer, or a list of one',
  (value) => isCount(value) || (listOf(isCount)(value) && (value as unknown[]).length === 1),
);
export const INTEGER = use('an integer', isInteger);
export const INTEGERS = use('an integer, or a list of integers', (value) => isInteger(value) || listOf(isInteger)(value));
export const LIST = use('a list of integers', listOf(isInteger));
export const SHAPE = use(
  'a list of sizes, with null for the batch',
  listOf((size) => size === null || isNumber(size)),
);
export const FINITE = use('a finite number', isNumber);
const isNumbers = (value: unknown): boolean => isNumber(value) || (Array.isArray(value) && value.length > 0 && value.every(isNumbers));
/** Statistics of a layer that is adapted to data before it is trained. */
export const STATISTICS = use(
  'a number or lists of numbers (adapt the layer and save the model as .keras or .h5, or give both mean and variance)',
  isNumbers,
);
export const FLOAT32 = use('one number that float32 can hold', (value) => isNumber(value) && Number.isFinite(Math.fround(value)));
export const NOT_NEGATIVE = use('a number of 0 or more', (value) => isNumber(value) && value >= 0);
export const SHARE = use('a number from 0 to less than 1', (value) => isNumber(value) && value >= 0 && value < 1);
export const MOMENTUM = use('a number from 0 to 1', (value) => isNumber(value) && value >= 0 && value <= 1);
/** Keras 2 writes the one axis of BatchNormalization as a list. */
export const AXIS = use('one integer', (value) => isInteger(value) || (listOf(isInteger)(value) && (value as unknown[]).length === 1));

export const TEXT = use('a text', (value) => typeof value === 'string');
export const PADDING = oneOf('valid', 'same');
export const CAUSAL_PADDING = oneOf('valid', 'same', 'causal');
export const FORMAT = orNull(oneOf('channelsLast', 'channelsFirst'));
export const INTERPOLATION = oneOf('nearest', 'bilinear');
export const MERGE_MODE = oneOf('concat', 'sum', 'mul', 'ave');
export const OUTPUT_MODE = oneOf('multiHot', 'oneHot', 'count');
const isAmount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
/** How much to pad or to crop: of all sides, of each dimension, or of each side. */
export const AMOUNTS = use(
  'an integer of 0 or more, two of them, or two pairs of them',
  (value) =>
    isAmount(value) ||
    (Array.isArray(value) &&
      value.length === 2 &&
      value.every((one) => isAmount(one) || (listOf(isAmount)(one) && (one as unknown[]).length === 2))),
);
/** Checked with its own path where it stands (`check-settings.ts`). */
export const PART = use('an object with class_name and config', isObject);
export const PARTS = use('a list of objects with class_name and config', listOf(isObject));

const isActivation = (value: unknown): boolean => ACTIVATIONS.has(value as string);
const ACTIVATION_IS = `one of ${[...ACTIVATIONS].map(snakeCase).join(', ')}; anything else is a layer of its own`;
export const ACTIVATION = use(ACTIVATION_IS, isActivation);

interface Named {
  readonly className: string;
  readonly config: Readonly<Record<string, unknown>>;
}

const isNamed = (value: unknown): value is Named => isObject(value) && typeof value['className'] === 'string' && isObject(value['config']);

/** Class and keys; values are checked by who computes them (libs/learning). */
const isOf = (table: Readonly<Record<string, readonly string[]>>, value: unknown): boolean =>
  isNamed(value) &&
  Object.hasOwn(table, value.className) &&
  Object.entries(value.config).every(
    ([key, inner]) => inner === null || table[value.className]!.includes(key) || (key === 'dtype' && inner === 'float32'),
  );

/** Initializers and their keys; `LeCun…` is Keras' `Lecun…`. */
const INITIALIZER_KEYS: Readonly<Record<string, readonly string[]>> = {
  Zeros: [],
  Ones: [],
  Constant: ['value'],
  RandomUniform: ['minval', 'maxval', 'seed'],
  RandomNormal: ['mean', 'stddev', 'seed'],
  TruncatedNormal: ['mean', 'stddev', 'seed'],
  VarianceScaling: ['scale', 'mode', 'distribution', 'seed'],
  GlorotUniform: ['seed'],
  GlorotNormal: ['seed'],
  HeUniform: ['seed'],
  HeNormal: ['seed'],
  LeCunUniform: ['seed'],
  LeCunNormal: ['seed'],
  Orthogonal: ['gain', 'seed'],
  Identity: ['gain'],
};
const INITIALIZER_NAMES: ReadonlySet<string> = new Set(
  Object.keys(INITIALIZER_KEYS).flatMap((name) => [name, name[0]!.toLowerCase() + name.slice(1)]),
);
const REGULARIZER_KEYS: Readonly<Record<string, readonly string[]>> = { L1L2: ['l1', 'l2'] };

export const INITIALIZER = orNull(
  use(
    `one of ${Object.keys(INITIALIZER_KEYS).join(', ')}, by its name or as class_name and config, with no other keys than it has`,
    (value) => INITIALIZER_NAMES.has(value as string) || isOf(INITIALIZER_KEYS, value),
  ),
);
export const REGULARIZER = orNull(
  use('class_name L1, L2 or L1L2 with the factors l1 and l2 in its config', (value) => value === 'l1l2' || isOf(REGULARIZER_KEYS, value)),
);
