/**
 * Metrics as sums. A metric keeps a fixed number of sums for an output; the sums of blocks, replicas and workers are added element by element in a fixed order, and
 * `finish` makes one number of the total. Counters of whole examples add exactly in any order. What a block adds stands in metric-sums.ts.
 */
import { METRIC_ALIASES, METRIC_FORMS, type MeasuredName, type TargetField } from '@paceline/spec';
import { areaUnderCurve } from './area-under-curve.js';

export interface MetricOptions {
  /** topKCategoricalAccuracy: a row is right where its class is among the k largest outputs. 5 when left out. */
  readonly k?: number | undefined;
  /** precision, recall, f1Score, binaryAccuracy: a probability above it says yes, at single outputs and targets of values. 0.5 when left out. */
  readonly threshold?: number | undefined;
  /** precision, recall, f1Score of classes. Left out: class 1 where there are two classes, else the mean over the classes that occur (`macro`). */
  readonly average?: 'micro' | 'macro' | 'weighted' | undefined;
  /** auc: thresholds that it is made of, as `num_thresholds` of Keras. 200 when left out. */
  readonly thresholds?: number | undefined;
  /** auc: of true over false positives (ROC, when left out), or of precision over recall. */
  readonly curve?: 'ROC' | 'PR' | undefined;
  /** Count rows by the weights of their examples (`weighted_metrics` of Keras). What is masked does not count either way. */
  readonly weighted?: boolean | undefined;
}

/** One target of the rows, as the sums of a metric see it. */
export interface MetricTarget {
  /** 0 for values. */
  readonly classes: number;
  /** Values: the last axis of the target. Classes: their number. */
  readonly width: number;
}

export interface Metric {
  readonly aliases: readonly string[];
  /** Which is better; a confusion matrix by its finish. */
  readonly better: 'higher' | 'lower';
  /** Outputs that it says something about: of labels alone, of classes (labels, or shares of classes), or of values. */
  readonly about: 'labels' | 'classes' | 'values';
  /** Its number is a mean over rows: those of two parts, weighted by their rows, make that of both. */
  readonly isMean: boolean;
  /** How many sums it keeps. */
  sums(target: MetricTarget, options?: MetricOptions): number;
  /** The metric; null where nothing was counted, where it is undefined for what was, and where it is not finite. */
  finish(sums: ArrayLike<number>, options?: MetricOptions): number | null;
}

/** Sums that one metric may keep at an output, and all of them with the loss: a contribution is a control message. */
export const METRIC_SUMS_MAX = 4096;
export const ALL_SUMS_MAX = 16_384;
/** Bound on the stored name of a metric, with that of its output. */
export const METRIC_NAME_BYTES = 200;
export const TOP_K = 5;
export const THRESHOLD = 0.5;
export const AUC_THRESHOLDS = 200;

/** Counters of a class in precision, recall and f1Score. */
export const [TRUE_POSITIVES, FALSE_POSITIVES, FALSE_NEGATIVES] = [0, 1, 2];
const COUNTERS = 3;
/** Sums of a column in r2Score: weights, Σ w · t, Σ w · t², Σ w · (t − x)². */
export const R2_SUMS = 4;

export const metricTarget = (target: TargetField): MetricTarget =>
  target.kind === 'classes' ? { classes: target.classes, width: target.classes } : { classes: 0, width: target.shape.at(-1) ?? 1 };

const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);
/** As in Keras, a share of nothing is 0. */
const share = (part: number, whole: number): number => (whole === 0 ? 0 : part / whole);

/** A mean over rows, or what `of` makes of it: [Σ weight · value, Σ weight]. */
function mean(name: MeasuredName, about: Metric['about'], of?: (mean: number) => number): Metric {
  return {
    aliases: METRIC_ALIASES[name],
    better: METRIC_FORMS[name].better,
    about,
    isMean: of === undefined,
    sums: () => 2,
    finish: (sums) => (sums[1]! > 0 ? finite((of ?? Number)(sums[0]! / sums[1]!)) : null),
  };
}

type OfCounters = (truePositives: number, falsePositives: number, falseNegatives: number) => number;

/** A metric of the counters of every class, or of all elements together if the target holds values. */
function counted(name: MeasuredName, of: OfCounters): Metric {
  return {
    aliases: METRIC_ALIASES[name],
    better: METRIC_FORMS[name].better,
    about: 'classes',
    isMean: false,
    sums: ({ classes }) => COUNTERS * Math.max(classes, 1),
    finish(sums, { average } = {}) {
      if (sums.length === COUNTERS) return finite(of(...countersOf(sums, 0)));
      const all = Array.from({ length: sums.length / COUNTERS }, (_, c) => countersOf(sums, c));
      // Neither among the targets nor among the answers.
      const occurring = all.filter(([tp, fp, fn]) => tp + fp + fn > 0);
      if (occurring.length === 0) return null;
      if (all.length === 2 && average === undefined) return finite(of(...all[1]!));
      if (average === 'micro')
        return finite(
          of(...([0, 1, 2].map((i) => occurring.reduce((sum, counters) => sum + counters[i]!, 0)) as [number, number, number])),
        );
      const weights = occurring.map(([tp, , fn]) => (average === 'weighted' ? tp + fn : 1));
      const sum = occurring.reduce((total, counters, i) => total + weights[i]! * of(...counters), 0);
      return finite(
        share(
          sum,
          weights.reduce((a, b) => a + b, 0),
        ),
      );
    },
  };
}

const countersOf = (sums: ArrayLike<number>, c: number): [number, number, number] => [
  sums[COUNTERS * c + TRUE_POSITIVES]!,
  sums[COUNTERS * c + FALSE_POSITIVES]!,
  sums[COUNTERS * c + FALSE_NEGATIVES]!,
];

export const METRICS: Readonly<Record<MeasuredName, Metric>> = {
  accuracy: mean('accuracy', 'classes'),
  binaryAccuracy: mean('binaryAccuracy', 'classes'),
  topKCategoricalAccuracy: mean('topKCategoricalAccuracy', 'classes'),
  precision: counted('precision', (tp, fp) => share(tp, tp + fp)),
  recall: counted('recall', (tp, _, fn) => share(tp, tp + fn)),
  f1Score: counted('f1Score', (tp, fp, fn) => share(2 * tp, 2 * tp + fp + fn)),
  auc: {
    aliases: METRIC_ALIASES.auc,
    better: METRIC_FORMS.auc.better,
    about: 'classes',
    isMean: false,
    sums: (_, { thresholds = AUC_THRESHOLDS } = {}) => 2 * thresholds,
    finish: (sums, { curve = 'ROC' } = {}) => {
      const area = areaUnderCurve(sums, curve);
      return area === null ? null : finite(area);
    },
  },
  meanAbsoluteError: mean('meanAbsoluteError', 'values'),
  meanSquaredError: mean('meanSquaredError', 'values'),
  rootMeanSquaredError: mean('rootMeanSquaredError', 'values', Math.sqrt),
  meanAbsolutePercentageError: mean('meanAbsolutePercentageError', 'values'),
  r2Score: {
    aliases: METRIC_ALIASES.r2Score,
    better: METRIC_FORMS.r2Score.better,
    about: 'values',
    isMean: false,
    sums: ({ width }) => R2_SUMS * width,
    finish(sums) {
      const columns = Array.from({ length: sums.length / R2_SUMS }, (_, c) => {
        const [weight, total, squares, error] = [0, 1, 2, 3].map((i) => sums[R2_SUMS * c + i]!) as [number, number, number, number];
        const spread = squares - (total * total) / weight;
        // A column that does not vary has no R². What is left of its squares is rounding.
        return spread > squares * 1e-12 ? 1 - error / spread : Number.NaN;
      });
      return finite(columns.reduce((sum, r2) => sum + r2, 0) / columns.length);
    },
  },
  perplexity: mean('perplexity', 'classes', Math.exp),
  cosineSimilarity: mean('cosineSimilarity', 'values'),
  /** counts[t · classes + p]: rows of class t that were taken for class p. Its number is their share on the diagonal. */
  confusionMatrix: {
    aliases: METRIC_ALIASES.confusionMatrix,
    better: METRIC_FORMS.confusionMatrix.better,
    about: 'labels',
    isMean: false,
    sums: ({ classes }) => classes * classes,
    finish(sums) {
      const classes = Math.round(Math.sqrt(sums.length));
      let [right, all] = [0, 0];
      for (let i = 0; i < sums.length; i++) {
        all += sums[i]!;
        if (i % (classes + 1) === 0) right += sums[i]!;
      }
      return all > 0 ? finite(right / all) : null;
    },
  },
};
