/**
 * The area under a curve over thresholds as Keras computes it (keras/src/metrics/confusion_metrics.py, AUC with `interpolation`), from counters of scores.
 * With T thresholds at i / (T − 1) bucket i counts the scores above threshold i and not above i + 1; the first also counts 0.
 */

/** The bucket of a score among `thresholds`, computed in float32 as Keras does. What is no number is not above any threshold. */
export function bucketOf(score: number, thresholds: number): number {
  const bucket = Math.ceil(Math.fround(Math.fround(score) * (thresholds - 1))) - 1;
  return bucket > 0 ? Math.min(bucket, thresholds - 2) : 0;
}

/** @param counters of positives by bucket, then of negatives. @returns null without positives, or without negatives for ROC */
export function areaUnderCurve(counters: ArrayLike<number>, curve: 'ROC' | 'PR'): number | null {
  const thresholds = counters.length / 2;
  /** Above each threshold. */
  const above = (from: number): Float64Array => {
    const sums = new Float64Array(thresholds);
    for (let i = thresholds - 1, sum = 0; i >= 0; i--) sums[i] = sum += counters[from + i]!;
    return sums;
  };
  const [positives, negatives] = [above(0), above(thresholds)];
  const [allPositives, allNegatives] = [positives[0]!, negatives[0]!];
  if (allPositives === 0 || (curve === 'ROC' && allNegatives === 0)) return null;
  let area = 0;
  for (let i = 0; i + 1 < thresholds; i++) {
    const [tp, tpNext, fp, fpNext] = [positives[i]!, positives[i + 1]!, negatives[i]!, negatives[i + 1]!];
    if (curve === 'ROC') area += ((fp - fpNext) / allNegatives) * ((tp + tpNext) / (2 * allPositives));
    else area += precisionRecallPart(tp, tpNext, tp + fp, tpNext + fpNext) / allPositives;
  }
  return area;
}

/** Davis and Goadrich 2006: between two thresholds true positives grow in step with what is said to be positive. */
function precisionRecallPart(tp: number, tpNext: number, said: number, saidNext: number): number {
  if (said === saidNext) return 0;
  const slope = (tp - tpNext) / (said - saidNext);
  const intercept = tpNext - slope * saidNext;
  const ratio = saidNext > 0 ? said / saidNext : 1;
  return slope * (tp - tpNext + intercept * Math.log(ratio));
}
