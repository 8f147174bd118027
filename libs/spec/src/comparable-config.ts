/**
 * The part of a run spec that decides which numbers come out. A checkpoint is continued only under the same part; what a
 * person may change in between (how long, how many servers, how often a checkpoint, deadlines, the name) is not in it.
 *
 * It names what it takes instead of what it leaves out, and a test holds every field of the spec to one of the two lists, so
 * that a new field has to be put somewhere.
 */
import { isEncoded, keepsEstimate, sendsEncodedParameters } from './codec-spec.js';
import { isSparse } from './embeddings.js';
import type { RunSpec } from './run-spec.js';

export type ConfigValue = null | boolean | number | string | readonly ConfigValue[] | { readonly [name: string]: ConfigValue };
export type ComparableConfig = Readonly<Record<string, ConfigValue>>;

export const COMPARABLE_FIELDS = [
  'model',
  'dataset',
  'features',
  'augmentation',
  'loss',
  'lossOptions',
  'losses',
  'lossWeights',
  'lossFromLogits',
  'optimizer',
  'learningRate',
  'validation',
  'reduceLROnPlateau',
  'globalBatch',
  'replicas',
  'shuffle',
  'dropRemainder',
  'strategy',
  'gradient',
  'codec',
  'embeddings',
  'freeze',
  'seed',
  'engine',
] as const satisfies readonly (keyof RunSpec)[];

/** A field of any kind of strategy. */
type FieldOf<Strategy> = Strategy extends object ? keyof Strategy : never;

export const COMPARABLE_STRATEGY_FIELDS = [
  'kind',
  'mode',
  'accumulate',
  'stalenessBound',
  'stalenessScaledRate',
  'delayCompensation',
  'backupReplicas',
  'localSteps',
  'syncSteps',
  'fragments',
  'outerOptimizer',
  'outerLearningRate',
  'outerMomentum',
  'movingRate',
  'innerState',
  'stepsPerExecution',
] as const satisfies readonly FieldOf<RunSpec['strategy']>[];

/** Strategies that end with equal bits are one here: a run may go on with another of them. */
function strategyNumbers(strategy: RunSpec['strategy']): Readonly<Record<string, unknown>> {
  if (strategy.mode !== 'sync' || strategy.kind === 'local-update' || strategy.kind === 'tpu') return strategy;
  const { accumulate, mode } = strategy;
  return { kind: 'parameter-server', mode, accumulate, backupReplicas: strategy.kind === 'parameter-server' ? strategy.backupReplicas : 0 };
}

/** Plain JSON, without undefined members. */
export function comparableConfig(spec: RunSpec): ComparableConfig {
  const given = strategyNumbers(spec.strategy);
  const strategy = Object.fromEntries(COMPARABLE_STRATEGY_FIELDS.map((field) => [field, given[field]]));
  const own: Partial<Record<keyof RunSpec, unknown>> = {
    strategy,
    // Error feedback by residuals, named or left out, is one.
    codec:
      isEncoded(spec) || sendsEncodedParameters(spec)
        ? { ...spec.codec, feedbackRule: keepsEstimate(spec) ? 'ef21' : undefined }
        : undefined,
    embeddings: isSparse(spec) ? spec.embeddings : undefined,
  };
  const fields = Object.fromEntries(COMPARABLE_FIELDS.map((field) => [field, field in own ? own[field] : spec[field]]));
  return JSON.parse(JSON.stringify(fields)) as ComparableConfig;
}

/** One difference between two configs; undefined where one of them has no such field. */
export interface ConfigDifference {
  /** In the words of the spec: `optimizer.learningRate`. */
  readonly path: string;
  readonly was: ConfigValue | undefined;
  readonly is: ConfigValue | undefined;
}

const isObject = (value: ConfigValue | undefined): value is { readonly [name: string]: ConfigValue } =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Differences by the path of the field; empty if the two are equal. Arrays are compared as a whole. */
export function configDifferences(was: ComparableConfig, is: ComparableConfig): ConfigDifference[] {
  const differences: ConfigDifference[] = [];
  const compare = (path: string, a: ConfigValue | undefined, b: ConfigValue | undefined): void => {
    if (isObject(a) && isObject(b)) {
      for (const name of [...new Set([...Object.keys(a), ...Object.keys(b)])].sort())
        compare(path === '' ? name : `${path}.${name}`, member(a, name), member(b, name));
    } else if (!isSame(a, b)) differences.push({ path, was: a, is: b });
  };
  compare('', was, is);
  return differences;
}

/** Own members only: a config read from a file may name `constructor` or `__proto__`. */
const member = (object: { readonly [name: string]: ConfigValue }, name: string): ConfigValue | undefined =>
  Object.hasOwn(object, name) ? object[name] : undefined;

function isSame(a: ConfigValue | undefined, b: ConfigValue | undefined): boolean {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((value, i) => isSame(value as ConfigValue, b[i] as ConfigValue));
  if (isObject(a) && isObject(b)) {
    const names = Object.keys(a);
    return names.length === Object.keys(b).length && names.every((name) => isSame(member(a, name), member(b, name)));
  }
  return a === b;
}
