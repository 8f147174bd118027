/**
 * Initial values of variables. Element i of a variable is a pure function of (seed, path of the variable, i), so servers
 * compute only what they own, in any order, and two of them never differ.
 *
 * Names and configurations are those of tf.js (`GlorotUniform`, `fanIn`) or of Keras (`glorot_uniform`, `fan_in`): case and
 * underscores do not matter. Scaling is that of tf.js: a truncated normal is cut at two standard deviations and its
 * deviation is not corrected for the cut, as Keras would.
 * A `seed` in a configuration is mixed into the stream's key: it tells streams apart, the seed of the run still counts.
 */
import type { ModelDescription, VariableSpec } from '@paceline/spec';
import { LearningError } from './errors.js';
import { createLayout, type Layout } from './layout.js';
import { orthogonalMatrix } from './orthogonal.js';
import { CounterStream, normalQuantile, openUnit, streamKey } from './random.js';

/** Value of element i. */
interface ElementRule {
  (index: number): number;
  /** Work that precedes the first value, in steps; done once. */
  prepare?(): Iterable<undefined>;
}

interface Subject {
  readonly path: string;
  readonly shape: readonly number[];
  readonly length: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly field: string;
  readonly stream: CounterStream;
}

/** Elements between two steps of `pieces`: one to three milliseconds. */
const PIECE_ELEMENTS = 16_384;
/** Multiply–add operations that an Orthogonal initializer may cost: a few seconds. A larger one is a mistake or an attack. */
const MAX_ORTHOGONAL_OPERATIONS = 2 ** 33;
/** Φ(−2) and Φ(2) − Φ(−2). */
const BELOW_TWO = 0.022750131948179209;
const WITHIN_TWO = 1 - 2 * BELOW_TWO;

const RULES: Readonly<Record<string, (subject: Subject) => ElementRule>> = {
  zeros: () => () => 0,
  ones: () => () => 1,
  constant: (subject) => constantRule(numberOf(subject, 'value')),
  randomuniform: (subject) => uniformRule(subject, numberOf(subject, 'minval', -0.05), numberOf(subject, 'maxval', 0.05)),
  randomnormal: (subject) => normalRule(subject, numberOf(subject, 'mean', 0), deviationOf(subject)),
  truncatednormal: (subject) => truncatedRule(subject, numberOf(subject, 'mean', 0), deviationOf(subject)),
  variancescaling: (subject) =>
    scalingRule(
      subject,
      numberOf(subject, 'scale', 1),
      plain(subject.config['mode'] ?? 'fanIn'),
      plain(subject.config['distribution'] ?? 'normal'),
    ),
  glorotuniform: (subject) => scalingRule(subject, 1, 'fanavg', 'uniform'),
  glorotnormal: (subject) => scalingRule(subject, 1, 'fanavg', 'normal'),
  heuniform: (subject) => scalingRule(subject, 2, 'fanin', 'uniform'),
  henormal: (subject) => scalingRule(subject, 2, 'fanin', 'normal'),
  lecununiform: (subject) => scalingRule(subject, 1, 'fanin', 'uniform'),
  lecunnormal: (subject) => scalingRule(subject, 1, 'fanin', 'normal'),
  identity: identityRule,
  orthogonal: orthogonalRule,
  unitforgetbias: forgetBiasRule,
};

/** Class names as tf.js writes them. UnitForgetBias is the bias of an LSTM: config.initializer, with ones for the forget gate. */
export const INITIALIZERS = [
  'Zeros',
  'Ones',
  'Constant',
  'RandomUniform',
  'RandomNormal',
  'TruncatedNormal',
  'VarianceScaling',
  'GlorotUniform',
  'GlorotNormal',
  'HeUniform',
  'HeNormal',
  'LeCunUniform',
  'LeCunNormal',
  'Identity',
  'Orthogonal',
  'UnitForgetBias',
] as const;

/**
 * Elements from ≤ i < to of a variable, into the first to − from places of `out`.
 * An Orthogonal variable is computed whole each time: for many parts of one model use `createInitialValues`.
 * @throws LearningError INITIALIZER_UNKNOWN, INITIALIZER_CONFIG
 */
export function initialValues(variable: VariableSpec, seed: number, from: number, to: number, out: Float32Array): void {
  const length = variable.shape.reduce((product, dimension) => product * dimension, 1);
  if (!(from >= 0 && from <= to && to <= length) || out.length < to - from)
    throw new RangeError(`elements ${from} to ${to} of ${length}, into ${out.length}`);
  finish(write(ruleOf(variable, length, seed), from, to, out, 0));
}

export interface InitialValues {
  readonly layout: Layout;
  /** Elements from, from + 1, … of the flat vector, as many as `out` holds. */
  fill(from: number, out: Float32Array): void;
  /** The same in steps of a few milliseconds, so that a server can serve others in between. */
  pieces(from: number, out: Float32Array): Iterable<undefined>;
}

/**
 * The initial flat vector of a model, by parts. All initializers are checked here; nothing large is computed before it is asked for.
 * @throws LearningError LAYOUT_*, INITIALIZER_*
 */
export function createInitialValues(
  description: Pick<ModelDescription, 'variables' | 'parameterCount' | 'stateCount'>,
  seed: number,
): InitialValues {
  const layout = createLayout(description);
  const rules = description.variables.map((variable, i) => ruleOf(variable, layout.variables[i]!.length, seed));
  function* pieces(from: number, out: Float32Array): Generator<undefined, void, undefined> {
    const to = from + out.length;
    if (!(from >= 0 && to <= layout.totalLength)) throw new RangeError(`elements ${from} to ${to} of ${layout.totalLength}`);
    for (const [i, { offset, length }] of layout.variables.entries()) {
      const first = Math.max(from, offset);
      const last = Math.min(to, offset + length);
      if (first < last) yield* write(rules[i]!, first - offset, last - offset, out, first - from);
    }
  }
  return { layout, pieces, fill: (from, out) => finish(pieces(from, out)) };
}

function* write(rule: ElementRule, from: number, to: number, out: Float32Array, at: number): Generator<undefined, void, undefined> {
  if (rule.prepare) yield* rule.prepare();
  for (let begin = from; begin < to; begin += PIECE_ELEMENTS) {
    const end = Math.min(to, begin + PIECE_ELEMENTS);
    for (let i = begin; i < end; i++) out[at++] = rule(i);
    yield;
  }
}

function finish(steps: Generator<undefined, unknown, undefined>): void {
  while (!steps.next().done);
}

/** 'GlorotUniform', 'glorotUniform', 'glorot_uniform' → 'glorotuniform' */
function plain(name: unknown): string {
  return String(name).replaceAll('_', '').toLowerCase();
}

function ruleOf(variable: VariableSpec, length: number, seed: number): ElementRule {
  const { className, config } = variable.initializer;
  const field = `variables[${JSON.stringify(variable.path.slice(0, 300))}].initializer`;
  const name = plain(className);
  const make = Object.hasOwn(RULES, name) ? RULES[name] : undefined;
  if (!make) {
    throw new LearningError(
      'INITIALIZER_UNKNOWN',
      `${JSON.stringify(className.slice(0, 60))} is none of ${INITIALIZERS.join(', ')}`,
      `${field}.className`,
    );
  }
  const ownSeed = config['seed'] ?? '';
  if (ownSeed !== '' && !Number.isFinite(ownSeed))
    throw new LearningError('INITIALIZER_CONFIG', 'the seed is not a number', `${field}.config.seed`);
  const stream = new CounterStream(streamKey('initializer', seed, variable.path, ownSeed as number | ''));
  return make({ path: variable.path, shape: variable.shape, length, config, field, stream });
}

function numberOf({ config, field }: Subject, name: string, otherwise?: number): number {
  const value = config[name] ?? otherwise;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new LearningError('INITIALIZER_CONFIG', value === undefined ? 'is missing' : 'is not a finite number', `${field}.config.${name}`);
}

function deviationOf(subject: Subject): number {
  const deviation = numberOf(subject, 'stddev', 0.05);
  if (deviation < 0) throw new LearningError('INITIALIZER_CONFIG', 'is negative', `${subject.field}.config.stddev`);
  return deviation;
}

function constantRule(value: number): ElementRule {
  return () => value;
}

function uniformRule({ stream }: Subject, low: number, high: number): ElementRule {
  return (i) => low + (high - low) * openUnit(stream.uint32At(i));
}

function normalRule({ stream }: Subject, mean: number, deviation: number): ElementRule {
  return (i) => mean + deviation * stream.normalAt(i);
}

/** Truncated normal by the inverse distribution, not by rejection: each element takes one number of the stream, so indices stay aligned. */
function truncatedRule({ stream }: Subject, mean: number, deviation: number): ElementRule {
  return (i) => mean + deviation * normalQuantile(BELOW_TWO + WITHIN_TWO * openUnit(stream.uint32At(i)));
}

function scalingRule(subject: Subject, scale: number, mode: string, distribution: string): ElementRule {
  if (!(scale > 0)) throw new LearningError('INITIALIZER_CONFIG', 'is not positive', `${subject.field}.config.scale`);
  const [fanIn, fanOut] = computeFans(subject.shape);
  const fans: Readonly<Record<string, number>> = { fanin: fanIn, fanout: fanOut, fanavg: (fanIn + fanOut) / 2 };
  const fan = Object.hasOwn(fans, mode) ? fans[mode] : undefined;
  if (fan === undefined) throw new LearningError('INITIALIZER_CONFIG', 'is none of fanIn, fanOut, fanAvg', `${subject.field}.config.mode`);
  const variance = scale / Math.max(1, fan);
  switch (distribution) {
    case 'uniform':
      return uniformRule(subject, -Math.sqrt(3 * variance), Math.sqrt(3 * variance));
    case 'normal':
    case 'truncatednormal':
      return truncatedRule(subject, 0, Math.sqrt(variance));
    case 'untruncatednormal':
      return normalRule(subject, 0, Math.sqrt(variance));
    default:
      throw new LearningError(
        'INITIALIZER_CONFIG',
        'is none of uniform, normal, truncatedNormal, untruncatedNormal',
        `${subject.field}.config.distribution`,
      );
  }
}

/** Fan-in and fan-out as tf.js computes them, for dense kernels ([in, out]), convolution kernels ([…, in, out]) and the rest. */
export function computeFans(shape: readonly number[]): [number, number] {
  const product = (from: number, to: number): number => shape.slice(from, to).reduce((p, dimension) => p * dimension, 1);
  if (shape.length === 2) return [shape[0]!, shape[1]!];
  if (shape.length >= 3 && shape.length <= 5) {
    const field = product(0, -2);
    return [shape.at(-2)! * field, shape.at(-1)! * field];
  }
  const side = Math.sqrt(product(0, shape.length));
  return [side, side];
}

function identityRule(subject: Subject): ElementRule {
  const { shape, field } = subject;
  if (shape.length !== 2 || shape[0] !== shape[1])
    throw new LearningError('INITIALIZER_CONFIG', `shape [${shape.join(', ')}] is not a square matrix`, field);
  const gain = numberOf(subject, 'gain', 1);
  const side = shape[0]!;
  return (i) => (i % (side + 1) === 0 ? gain : 0);
}

function orthogonalRule(subject: Subject): ElementRule {
  const { shape, length, field, stream } = subject;
  if (shape.length < 2) throw new LearningError('INITIALIZER_CONFIG', `shape [${shape.join(', ')}] has fewer than two dimensions`, field);
  const gain = numberOf(subject, 'gain', 1);
  const cols = shape.at(-1)!;
  const rows = length / cols;
  if (2 * length * Math.min(rows, cols) > MAX_ORTHOGONAL_OPERATIONS) {
    throw new LearningError('INITIALIZER_CONFIG', `an orthogonal matrix of ${rows} × ${cols} is too large to compute`, field);
  }
  let matrix: Float64Array | undefined;
  const rule: ElementRule = (i) => gain * matrix![i]!;
  rule.prepare = function* () {
    matrix ??= yield* orthogonalMatrix(rows, cols, (index) => stream.normalAt(index));
  };
  return rule;
}

function forgetBiasRule(subject: Subject): ElementRule {
  const { shape, length, field, config } = subject;
  const inner = config['initializer'] as Partial<VariableSpec['initializer']> | undefined;
  if (shape.length !== 1 || length % 4 !== 0)
    throw new LearningError('INITIALIZER_CONFIG', `shape [${shape.join(', ')}] is not the bias of four gates`, field);
  const name = plain(inner?.className);
  if (
    typeof inner?.className !== 'string' ||
    name === 'unitforgetbias' ||
    !Object.hasOwn(RULES, name) ||
    typeof inner.config !== 'object' ||
    inner.config === null
  ) {
    throw new LearningError('INITIALIZER_CONFIG', 'is no initializer with className and config', `${field}.config.initializer`);
  }
  const rule = RULES[name]!({ ...subject, config: inner.config });
  const units = length / 4;
  const withOnes: ElementRule = (i) => (i >= units && i < 2 * units ? 1 : rule(i));
  if (rule.prepare) withOnes.prepare = () => rule.prepare!();
  return withOnes;
}
