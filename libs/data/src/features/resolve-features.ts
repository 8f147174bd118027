/**
 * From a manifest and the features of a spec to the feature plan: pure, without files, in any runtime. What is wrong comes back as issues,
 * each with its path in the spec and what to write instead.
 */
import {
  SPLITS,
  type DatasetManifest,
  type FeaturePlan,
  type Features,
  type RunData,
  type SpecIssue,
  type SplitName,
} from '@paceline/spec';
import { longestSeries, SeriesExamples } from '../series.js';
import { completeFeatures } from './default-features.js';
import { Resolution } from './resolution.js';
import { longestLookback, resolveInput } from './resolve-inputs.js';
import { longestDelay, resolveTarget } from './resolve-targets.js';
import { resolveWeight } from './resolve-weight.js';

export type FeaturesResult =
  | { readonly ok: true; readonly plan: FeaturePlan }
  | { readonly ok: false; readonly issues: readonly SpecIssue[] };

const FIELDS_MAX = 32;

/** Texts without a vocabulary need `learnVocabularies` first. */
export function resolveFeatures(manifest: DatasetManifest, features?: Features): FeaturesResult {
  const resolution = new Resolution(manifest);
  const plan = planOf(resolution, features);
  if (plan && resolution.issues.length === 0) return { ok: true, plan };
  return { ok: false, issues: resolution.issues };
}

function planOf(resolution: Resolution, features: Features | undefined): FeaturePlan | undefined {
  const complete = completeFeatures(resolution, features);
  if (!complete) return undefined;
  for (const [path, fields] of Object.entries(complete)) {
    const count = Object.keys(fields as object).length;
    if (count < 1 || count > FIELDS_MAX) resolution.issue(`features.${path}`, `has ${count} entries; 1 to ${FIELDS_MAX} are possible`);
  }
  if (resolution.issues.length > 0) return undefined;
  const evaluateOn = evaluationSplit(resolution, features?.evaluateOn);
  resolution.evaluateOn = evaluateOn;
  const now = longestLookback(complete.inputs) - 1;
  const span = now + longestDelay(complete.targets) + 1;
  const inputs = Object.entries(complete.inputs).flatMap(([name, list]) => resolveInput(resolution, name, list, now) ?? []);
  const targets = Object.entries(complete.targets).flatMap(([name, target]) => resolveTarget(resolution, name, target, now, inputs) ?? []);
  const { weight, byTarget } = resolveWeight(resolution, features, targets);
  const examples = examplesOf(resolution, span, evaluateOn);
  return {
    format: 'paceline.features',
    version: 1,
    rowFormat: {
      inputs: inputs.map(({ field }) => field),
      targets: targets.map(({ field }, i) => (byTarget[i] ? Object.assign({}, field, { classWeights: byTarget[i] }) : field)),
      isWeighted: weight.column !== undefined || weight.classes !== undefined,
    },
    inputs: inputs.map(({ planned }) => planned),
    targets: targets.map(({ planned }) => planned),
    weight,
    span,
    examples,
    evaluateOn,
    dialect: resolution.manifest.dialect,
  };
}

function evaluationSplit(resolution: Resolution, asked: SplitName | undefined): SplitName {
  const present = SPLITS.filter((split) => (resolution.manifest.splits[split]?.rows ?? 0) > 0);
  if (asked === undefined) return (['test', 'validation'] as const).find((split) => present.includes(split)) ?? 'train';
  if (!present.includes(asked)) resolution.issue('features.evaluateOn', `the dataset has no split ${asked}; it has ${present.join(', ')}`);
  return asked;
}

function examplesOf(resolution: Resolution, span: number, evaluateOn: SplitName): FeaturePlan['examples'] {
  const { splits } = resolution.manifest;
  const examples: FeaturePlan['examples'] = {};
  for (const split of SPLITS) {
    const found = splits[split];
    if (found) examples[split] = new SeriesExamples(found, span).count;
  }
  for (const split of new Set<SplitName>(['train', evaluateOn])) {
    if (!splits[split] || examples[split]! > 0) continue;
    const { rows, starts } = splits[split];
    const has = starts ? `longest series of the ${split} split has ${longestSeries(splits[split])}` : `${split} split has ${rows}`;
    resolution.issue(
      'features',
      rows === 0
        ? `the ${split} split of the dataset has no rows`
        : `an example spans ${span} rows and the ${has}: make lookback or delay smaller${starts ? ', or import files that follow one another with --one-series' : ''}`,
    );
  }
  return examples;
}

/** What servers and workers get to know of the data. @param version SHA-256 of the manifest */
export function runDataOf(plan: FeaturePlan, source: { readonly teamId: string; readonly version: string }): RunData {
  return {
    source: { kind: 'prepared', teamId: source.teamId, version: source.version },
    format: plan.rowFormat,
    trainExamples: plan.examples.train!,
    evalExamples: plan.examples[plan.evaluateOn] ?? 0,
    evaluateOn: plan.evaluateOn,
  };
}
