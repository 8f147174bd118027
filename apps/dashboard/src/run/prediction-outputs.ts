import type { RunPredictionsResult } from '../graphql/generated/predictions.js';

/** The predictions of a run, as the panel shows them. */
export type RunPredictionsDetails = NonNullable<NonNullable<RunPredictionsResult['run']>['predictions']>;
export type PredictionOutput = RunPredictionsDetails['outputs'][number];
export type ClassOutput = Extract<PredictionOutput, { __typename: 'PredictedClasses' }>;
export type ValueOutput = Extract<PredictionOutput, { __typename: 'PredictedValues' }>;
