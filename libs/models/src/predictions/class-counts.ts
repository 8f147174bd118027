/** Counts which classes are taken for which. Memory is bounded whatever the number of classes and examples. */
import { CONFUSIONS_MAX, MATRIX_CLASSES_MAX, SCORES_MAX, type ClassScore, type Confusion } from './report.js';

/** More pairs of classes than that are not told apart. */
const PAIRS_MAX = 1 << 18;
/** A full matrix is handed out up to here. */
const DENSE_CLASSES_MAX = 1000;
const LABEL_CHARACTERS = 100;

export class ClassCounts {
  private readonly examples: Float64Array;
  private readonly predicted: Float64Array;
  private readonly right: Float64Array;
  /** By truth × classes + prediction: mistakes alone. */
  private readonly mistakes = new Map<number, number>();
  private total = 0;

  constructor(private readonly labels: readonly string[]) {
    [this.examples, this.predicted, this.right] = [0, 1, 2].map(() => new Float64Array(labels.length)) as [
      Float64Array,
      Float64Array,
      Float64Array,
    ];
  }

  add(truth: number, prediction: number): void {
    this.total++;
    this.examples[truth]!++;
    this.predicted[prediction]!++;
    if (truth === prediction) {
      this.right[truth]!++;
      return;
    }
    const pair = truth * this.labels.length + prediction;
    const known = this.mistakes.get(pair);
    if (known !== undefined || this.mistakes.size < PAIRS_MAX) this.mistakes.set(pair, (known ?? 0) + 1);
  }

  get count(): number {
    return this.total;
  }

  get wrongCount(): number {
    return this.total - this.right.reduce((sum, each) => sum + each, 0);
  }

  get accuracy(): number {
    return this.total === 0 ? 0 : (this.total - this.wrongCount) / this.total;
  }

  /** @returns rows by true class, columns by prediction; undefined where there are too many classes */
  matrix(classesMax = MATRIX_CLASSES_MAX): number[][] | undefined {
    const classes = this.labels.length;
    if (classes > Math.min(classesMax, DENSE_CLASSES_MAX)) return undefined;
    return Array.from({ length: classes }, (_, truth) =>
      Array.from({ length: classes }, (__, prediction) =>
        truth === prediction ? this.right[truth]! : (this.mistakes.get(truth * classes + prediction) ?? 0),
      ),
    );
  }

  /** The most frequent mistakes; of equal ones the first by the order of the classes. */
  confusions(): Confusion[] {
    const classes = this.labels.length;
    return [...this.mistakes]
      .sort(([pair, count], [other, otherCount]) => otherCount - count || pair - other)
      .slice(0, CONFUSIONS_MAX)
      .map(([pair, count]) => ({ truth: this.label(Math.floor(pair / classes)), prediction: this.label(pair % classes), count }));
  }

  scores(): ClassScore[] {
    const all = this.labels.map((_, i) => i);
    const shown = all.length <= SCORES_MAX ? all : all.sort((a, b) => this.examples[b]! - this.examples[a]! || a - b).slice(0, SCORES_MAX);
    return shown.map((i) => {
      const [count, predicted, right] = [this.examples[i]!, this.predicted[i]!, this.right[i]!];
      return {
        label: this.label(i),
        count,
        predicted,
        precision: share(right, predicted),
        recall: share(right, count),
        f1: share(2 * right, count + predicted),
      };
    });
  }

  label(i: number): string {
    return shortLabel(this.labels[i]!);
  }
}

const share = (part: number, of: number): number | null => (of === 0 ? null : part / of);

export const shortLabel = (label: string): string => (label.length > LABEL_CHARACTERS ? `${label.slice(0, LABEL_CHARACTERS - 1)}…` : label);
