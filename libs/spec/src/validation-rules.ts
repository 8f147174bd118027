/** Rules of validation that servers, the api and pages derive from a spec alike: when a run validates, and which value of a watched metric is better. */
import type { RunData } from './datasets/run-data.js';
import { LIMITS } from './limits.js';
import type { SpecIssue } from './plain-issues.js';
import type { RunSpec } from './run-spec.js';

type Validating = Pick<RunSpec, 'validation' | 'earlyStopping' | 'reduceLROnPlateau'>;

/** Whether the run measures its evaluation split while training. */
export const validates = ({ validation, earlyStopping, reduceLROnPlateau }: Validating): boolean =>
  (validation ?? earlyStopping ?? reduceLROnPlateau) !== undefined;

/** Rounds from one validation to the next; undefined for a run that has none. */
export function validationRounds(spec: Validating, roundsPerEpoch: number): number | undefined {
  if (!validates(spec)) return undefined;
  const { everyRounds, everyEpochs = 1 } = spec.validation ?? {};
  return everyRounds ?? Math.max(1, Math.round(everyEpochs * roundsPerEpoch));
}

/** The name of what is measured, of the name of what is watched. */
export const watchedMetric = (metric: string): string => metric.replace(/^val_/, '');

/** Examples that the coordinator measures while training. */
export const validationExamples = ({ heldOutExamples, evalExamples }: Pick<RunData, 'heldOutExamples' | 'evalExamples'>): number =>
  heldOutExamples ?? evalExamples;

export type HeldOutData = { readonly ok: true; readonly data: RunData } | { readonly ok: false; readonly issues: readonly SpecIssue[] };

/** The data of a run without the examples that it holds out of its training split. @param data of the whole split */
export function holdOut(data: RunData, validation: RunSpec['validation']): HeldOutData {
  const { trainExamples: all } = data;
  const { split, rows } = validation ?? {};
  if (split === undefined && rows === undefined) return { ok: true, data };
  const refused = (field: string, message: string): HeldOutData => ({ ok: false, issues: [{ path: `validation.${field}`, message }] });
  // As Keras counts: what is trained on is rounded down.
  const heldOutExamples = rows ?? all - Math.floor(all * (1 - split!));
  const field = rows === undefined ? 'split' : 'rows';
  if (heldOutExamples >= all)
    return refused(field, `holds out ${heldOutExamples} of ${all} training examples, and none is left to train on: hold out fewer`);
  if (heldOutExamples > LIMITS.heldOutExamples)
    return refused(field, `holds out ${heldOutExamples} examples; at most ${LIMITS.heldOutExamples} can be held out`);
  return { ok: true, data: Object.assign({}, data, { trainExamples: all - heldOutExamples, heldOutExamples }) };
}

/** Issues of metrics that the run cannot watch. @param known names of its measures, the loss among them @param measurable examples of its validations */
export function watchIssues(spec: Validating, known: readonly string[], measurable: number): SpecIssue[] {
  const issues: SpecIssue[] = [];
  for (const field of ['earlyStopping', 'reduceLROnPlateau'] as const) {
    const watched = spec[field]?.metric;
    if (watched !== undefined && !known.includes(watchedMetric(watched)))
      issues.push({
        path: `${field}.metric`,
        message: `${JSON.stringify(watched)} is not measured by this run; there is ${known.map((name) => `val_${name}`).join(', ')}: take one of these, or add it to metrics`,
      });
  }
  const asked = (['validation', 'earlyStopping', 'reduceLROnPlateau'] as const).find((field) => spec[field] !== undefined);
  if (asked !== undefined && measurable === 0)
    issues.push({
      path: asked,
      message:
        'needs an evaluation split, and the dataset has none: import it with one, hold examples out with validation.split, or leave this out',
    });
  return issues;
}
