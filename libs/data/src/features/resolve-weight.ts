/** Weights of examples: a column, a weight per class, or the inverse of how often a class occurs in the training split. */
import { CLASS_WEIGHTS_MAX, type EncoderOf, type FeaturePlan, type Features } from '@paceline/spec';
import type { Resolution } from './resolution.js';
import type { ResolvedTarget } from './resolve-targets.js';

export interface ResolvedWeights {
  /** Weight of examples, at every target. */
  readonly weight: FeaturePlan['weight'];
  /** Weights by class of one of several targets: they do not hold at the others. */
  readonly byTarget: readonly (number[] | undefined)[];
}

type ClassEncoder = EncoderOf<'class'>;
type Given = NonNullable<Features['classWeights']>;

export function resolveWeight(resolution: Resolution, features: Features | undefined, targets: readonly ResolvedTarget[]): ResolvedWeights {
  const weight: { column?: string; classes?: number[] } = {};
  if (features?.weightColumn !== undefined) {
    const path = 'features.weightColumn';
    const column = resolution.column(path, features.weightColumn, ['number']);
    if (column) {
      resolution.isMissing(path, column, 'no weight');
      const minimum = Math.min(column.statistics.minimum, resolution.heldOut(column).minimum ?? 0);
      if (minimum < 0) resolution.issue(path, `holds ${minimum}; a weight is not negative`);
    }
    weight.column = features.weightColumn;
  }
  if (features?.classWeights && features.balanceClasses)
    resolution.issue('features.balanceClasses', 'does not go with classWeights: give one of both');
  const byTarget = features?.classWeights
    ? givenWeights(resolution, features.classWeights, targets)
    : features?.balanceClasses
      ? balanced(resolution, targets)
      : [];
  if (targets.length > 1) return { weight, byTarget };
  if (features?.classWeights ?? features?.balanceClasses) weight.classes = byTarget[0] ?? [];
  return { weight, byTarget: [] };
}

/** By target, the encoder of those that are classes. */
function classTargets(resolution: Resolution, path: string, targets: readonly ResolvedTarget[]): (ClassEncoder | undefined)[] {
  const encoders = targets.map(({ planned: { encoders } }) => (encoders[0]?.kind === 'class' ? encoders[0] : undefined));
  if (encoders.every((encoder) => encoder === undefined)) resolution.issue(path, 'needs a target of kind class');
  for (const encoder of encoders)
    if (targets.length > 1 && encoder && encoder.names.length > CLASS_WEIGHTS_MAX)
      resolution.issue(path, `can weigh at most ${CLASS_WEIGHTS_MAX} classes of a target; ${JSON.stringify(encoder.column)} has more`);
  return encoders;
}

function givenWeights(resolution: Resolution, given: Given, targets: readonly ResolvedTarget[]): (number[] | undefined)[] {
  const path = 'features.classWeights';
  const encoders = classTargets(resolution, path, targets);
  const names = targets.flatMap(({ field }, i) => (encoders[i] ? [field.name] : []));
  if (names.length === 0) return [];
  const ofOne = new Map<string, number>();
  const byName = new Map<string, Map<string, number>>();
  for (const [name, weight] of Object.entries(given)) {
    if (typeof weight === 'number') ofOne.set(name, weight);
    else if (names.includes(name)) byName.set(name, new Map(Object.entries(weight)));
    else resolution.issue(`${path}.${name}`, `is no target of kind class${instead(resolution.guess(name, names), names)}`);
  }
  const [first] = ofOne.keys();
  if (first !== undefined && (names.length > 1 || byName.size > 0)) {
    const example = `{ ${names[0]}: { ${first}: ${ofOne.get(first)} } }`;
    resolution.issue(
      `${path}.${first}`,
      `is the weight of a class, and those of several targets stand under their names: write ${example}`,
    );
    return [];
  }
  return encoders.map((encoder, i) => {
    const { name } = targets[i]!.field;
    if (!encoder) return undefined;
    const [at, weights] = byName.has(name) ? [`${path}.${name}`, byName.get(name)!] : [path, ofOne];
    return weights.size === 0 && targets.length > 1 ? undefined : weightsOf(resolution, at, weights, encoder);
  });
}

function weightsOf(
  resolution: Resolution,
  path: string,
  weights: ReadonlyMap<string, number>,
  encoder: ClassEncoder,
): number[] | undefined {
  const classes = new Set(encoder.names);
  for (const name of weights.keys()) {
    if (classes.has(name)) continue;
    if (resolution.isFull) return undefined;
    const near = resolution.guess(name, encoder.names);
    resolution.issue(`${path}.${name}`, `is no class of ${JSON.stringify(encoder.column)}${instead(near, encoder.names)}`);
  }
  return encoder.names.map((name) => weights.get(name) ?? 1);
}

const instead = (near: string | undefined, names: readonly string[]): string =>
  near === undefined ? `; they are ${names.slice(0, 20).join(', ')}` : `; did you mean ${near}?`;

const balanced = (resolution: Resolution, targets: readonly ResolvedTarget[]): (number[] | undefined)[] =>
  classTargets(resolution, 'features.balanceClasses', targets).map((encoder) => encoder && balancedWeights(resolution, encoder));

/** rows / (classes · rows of the class), so that the mean weight of the training split is 1; a class that does not occur there weighs 1. */
function balancedWeights(resolution: Resolution, encoder: ClassEncoder): number[] | undefined {
  const column = resolution.column('features.balanceClasses', encoder.column, ['category']);
  if (!column) return undefined;
  const counts = new Map(column.vocabulary.map((name, code) => [name, column.statistics.counts[code] ?? 0]));
  const present = [...counts.values()].filter((count) => count > 0);
  const rows = present.reduce((sum, count) => sum + count, 0);
  return encoder.names.map((name) => (counts.get(name)! > 0 ? rows / (present.length * counts.get(name)!) : 1));
}
