/**
 * Sums over examples, as replicas deliver them, made into numbers by name. What the sums are is the run's (libs/learning/src/metrics): here they are
 * added element by element, in a fixed order.
 */

/** By name, `loss` among them; null where a number is unknown or not finite. */
export type Measures = Readonly<Record<string, number | null>>;

/** What a run measures. */
export interface Measuring {
  /** What each sum that a replica or a block delivers belongs to; the first is the loss. */
  readonly sumNames: readonly string[];
  /** Names whose number is a mean over examples. */
  readonly means: ReadonlySet<string>;
  /** @param sums the loss, then those of the metrics @param examples that they were measured on */
  finish(sums: readonly number[], examples: number): Measures;
}

export const UNMEASURED: Measures = { loss: null };

/** Means over the examples: of the loss, and of a sum for each name. */
export function meansOf(names: readonly string[]): Measuring {
  const all = ['loss', ...names];
  return {
    sumNames: all,
    means: new Set(all),
    finish(sums, examples) {
      const mean = (sum: number | undefined): number | null =>
        sum === undefined || examples === 0 || !Number.isFinite(sum) ? null : sum / examples;
      return Object.fromEntries(all.map((name, i) => [name, mean(sums[i])]));
    },
  };
}

export const ACCURACY_ALONE: Measuring = meansOf(['accuracy']);

/** Why what a worker says of rows that it has measured cannot be; undefined where it can. */
export function misfitOf(
  { examples, sums }: { readonly examples: number; readonly sums: readonly number[] },
  measured: Measuring | undefined,
  expected: number,
  of: string,
): string | undefined {
  if (examples !== expected) return `it counted ${examples} examples for ${of}, the schedule says ${expected}`;
  const { length } = (measured ?? ACCURACY_ALONE).sumNames;
  return sums.length === length ? undefined : `it delivered ${sums.length} sums for ${of}, the run measures ${length}`;
}

/** Means are weighted by the examples of both; of what is none, such as an area under a curve, the newer number stands for both. */
export function mergedMeasures(
  older: Measures,
  olderExamples: number,
  newer: Measures,
  newerExamples: number,
  means: ReadonlySet<string>,
): Measures {
  // A round that is left out has measured nothing.
  if (newerExamples === 0) return older;
  if (olderExamples === 0) return newer;
  const merged: Record<string, number | null> = {};
  for (const [name, a] of Object.entries(older)) {
    const b = newer[name];
    if (b === undefined) continue;
    if (!means.has(name)) merged[name] = b ?? a;
    else merged[name] = a === null || b === null ? null : (a * olderExamples + b * newerExamples) / (olderExamples + newerExamples);
  }
  return merged;
}

/** Adds sums element by element. */
export function addSums(into: number[], sums: readonly number[]): void {
  sums.forEach((value, i) => (into[i] = (into[i] ?? 0) + value));
}
