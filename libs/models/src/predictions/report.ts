/** Predictions against known targets, one report for each output: which classes are confused, or how far numbers are off. */

export interface PredictionsReport {
  readonly format: 'paceline.predictions';
  readonly version: 1;
  /** Examples of the evaluation split. */
  readonly examples: number;
  /** Those of them that were looked at: all, or evenly spread ones. */
  readonly measured: number;
  readonly split: string;
  readonly outputs: readonly OutputReport[];
}

export type OutputReport = ClassesReport | ValuesReport | NoReport;

export interface ClassesReport {
  readonly kind: 'classes';
  readonly name: string;
  /** Labels that were compared: examples, or their steps where each has a label. */
  readonly count: number;
  readonly accuracy: number;
  readonly classes: number;
  /** In the order of the matrix; empty without one. */
  readonly labels: readonly string[];
  /** matrix[t][p]: how many of class t were taken for class p. Null with more than MATRIX_CLASSES_MAX classes. */
  readonly matrix: readonly (readonly number[])[] | null;
  /** The most frequent mistakes. */
  readonly confusions: readonly Confusion[];
  /** In the order of the classes; of more than SCORES_MAX those with the most examples. */
  readonly scores: readonly ClassScore[];
  readonly wrongCount: number;
  /** Columns of the cells of the wrong examples. */
  readonly columns: readonly string[];
  /** Those that the model was most sure of. */
  readonly wrong: readonly WrongExample[];
}

export interface Confusion {
  readonly truth: string;
  readonly prediction: string;
  readonly count: number;
}

export interface ClassScore {
  readonly label: string;
  /** Examples of the class. */
  readonly count: number;
  /** Examples that were predicted as the class. */
  readonly predicted: number;
  /** The correct share of the examples that were predicted as this class; null when there are none. */
  readonly precision: number | null;
  /** The share of this class's examples that were predicted as it; null when there are none. */
  readonly recall: number | null;
  readonly f1: number | null;
}

/** A row of the split, as far as it can be shown. */
export interface ShownExample {
  /** Number in the evaluation split, from 0. */
  readonly example: number;
  /** What the model sees, as the data address of a PNG. */
  readonly image: string | null;
  readonly cells: readonly unknown[];
}

export interface WrongExample extends ShownExample {
  /** Number of the step, from 0, for outputs with a label for each step. */
  readonly step: number | null;
  readonly truth: string;
  readonly prediction: string;
  /** Probability of the prediction; null where the model gives no finite number. */
  readonly probability: number | null;
}

export interface ValuesReport {
  readonly kind: 'values';
  readonly name: string;
  /** Numbers that were compared. */
  readonly count: number;
  /** In the units of the data; null where a prediction is no finite number. */
  readonly meanAbsoluteError: number | null;
  readonly rootMeanSquaredError: number | null;
  /** Coefficient of determination: 1 - (squared errors / squared distances of the true values from their mean); null where all true values are equal. */
  readonly rSquared: number | null;
  /** Pairs of true value and prediction, evenly spread over the examples. */
  readonly points: readonly (readonly [truth: number, prediction: number])[];
  readonly columns: readonly string[];
  /** The largest errors. */
  readonly worst: readonly WorstExample[];
}

export interface WorstExample extends ShownExample {
  readonly truth: number;
  readonly prediction: number;
}

/** An output of which no picture can be made, and why. */
export interface NoReport {
  readonly kind: 'none';
  readonly name: string;
  readonly reason: string;
}

export const MATRIX_CLASSES_MAX = 50;
export const SCORES_MAX = 200;
export const CONFUSIONS_MAX = 20;
export const WRONG_MAX = 24;
export const WORST_MAX = 10;
export const POINTS_MAX = 1000;
