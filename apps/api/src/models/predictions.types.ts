/** Predictions of a run as GraphQL shows them; REST gives the same objects. What each member means stands in libs/models/src/predictions/report.ts as well. */
import { createUnionType, Field, Float, Int, ObjectType, registerEnumType } from '@nestjs/graphql';
import { JsonScalar } from '../graphql/json.scalar.js';
import { PREDICTIONS_STATES, type PredictionsState } from './predictions-states.js';

registerEnumType(PREDICTIONS_STATES, {
  name: 'PredictionsState',
  description: 'Whether predictions are there.',
  valuesMap: {
    COMPUTING: { description: 'They are being made, or wait for their turn: ask again in a second.' },
    READY: { description: 'They are there.' },
    UNAVAILABLE: { description: 'They cannot be made; `reason` says why.' },
  },
});

@ObjectType({ description: 'How often one class was taken for another.' })
export class Confusion {
  @Field({ description: 'The true class.' })
  truth!: string;
  @Field({ description: 'The class that the model predicted.' })
  prediction!: string;
  @Field(() => Int, { description: 'How often.' })
  count!: number;
}

@ObjectType({ description: 'How well one class is predicted.' })
export class ClassScore {
  @Field({ description: 'The class.' })
  label!: string;
  @Field(() => Int, { description: 'Examples of this class.' })
  count!: number;
  @Field(() => Int, { description: 'Examples that were predicted as this class.' })
  predicted!: number;
  @Field(() => Float, {
    nullable: true,
    description: 'The part of the examples predicted as this class that belongs to it; null when there are none.',
  })
  precision!: number | null;
  @Field(() => Float, {
    nullable: true,
    description: 'The part of the examples of this class that was predicted as it; null when there are none.',
  })
  recall!: number | null;
  @Field(() => Float, { nullable: true, description: 'Harmonic mean of precision and recall.' })
  f1!: number | null;
}

@ObjectType({ description: 'An example that the model took for another class.' })
export class WrongExample {
  @Field(() => Int, { description: 'Number of the example in the evaluation split, from 0.' })
  example!: number;
  @Field(() => Int, { nullable: true, description: 'Where each step has a label: the number of the step, from 0.' })
  step!: number | null;
  @Field({ description: 'The true class.' })
  truth!: string;
  @Field({ description: 'The class that the model predicted.' })
  prediction!: string;
  @Field(() => Float, {
    nullable: true,
    description: 'The probability that the model gave its prediction; null where that is no finite number.',
  })
  probability!: number | null;
  @Field(() => String, { nullable: true, description: 'What the model saw, a PNG as a data address; null where that is no image.' })
  image!: string | null;
  @Field(() => JsonScalar, { description: 'Its cells, in the order of `columns`.' })
  cells!: readonly unknown[];
}

@ObjectType({ description: 'An example whose value was far off.' })
export class WorstExample {
  @Field(() => Int, { description: 'Number of the example in the evaluation split, from 0.' })
  example!: number;
  @Field(() => Float, { description: 'The true value.' })
  truth!: number;
  @Field(() => Float, { description: 'What the model predicted.' })
  prediction!: number;
  @Field(() => String, { nullable: true, description: 'What the model saw, a PNG as a data address; null where that is no image.' })
  image!: string | null;
  @Field(() => JsonScalar, { description: 'Its cells, in the order of `columns`.' })
  cells!: readonly unknown[];
}

@ObjectType({ description: 'An output that predicts classes.' })
export class PredictedClasses {
  @Field(() => String, { description: 'classes' })
  kind!: 'classes';
  @Field({ description: 'The column, or the target of the features.' })
  name!: string;
  @Field(() => Int, { description: 'Labels that were compared: one for each example, or for each of its steps.' })
  count!: number;
  @Field(() => Float, { description: 'The part that was predicted right.' })
  accuracy!: number;
  @Field(() => Int, { description: 'How many classes there are.' })
  classes!: number;
  @Field(() => [String], { description: 'The classes in the order of the matrix; empty without one.' })
  labels!: string[];
  @Field(() => [[Int]], {
    nullable: true,
    description: 'matrix[t][p]: how many of class t were taken for class p. Null with more than 50 classes.',
  })
  matrix!: number[][] | null;
  @Field(() => [Confusion], { description: 'The most frequent mistakes, at most 20.' })
  confusions!: Confusion[];
  @Field(() => [ClassScore], { description: 'Of each class; of more than 200 those with the most examples.' })
  scores!: ClassScore[];
  @Field(() => Int, { description: 'How many were predicted wrong.' })
  wrongCount!: number;
  @Field(() => [String], { description: 'Columns of the cells below; at most 8.' })
  columns!: string[];
  @Field(() => [WrongExample], { description: 'The mistakes that the model was most sure of, at most 24.' })
  wrong!: WrongExample[];
}

@ObjectType({ description: 'An output that predicts a number.' })
export class PredictedValues {
  @Field(() => String, { description: 'values' })
  kind!: 'values';
  @Field({ description: 'The column, or the target of the features.' })
  name!: string;
  @Field(() => Int, { description: 'Numbers that were compared.' })
  count!: number;
  @Field(() => Float, { nullable: true, description: 'In the units of the data; null where a prediction is no finite number.' })
  meanAbsoluteError!: number | null;
  @Field(() => Float, { nullable: true, description: 'In the units of the data; null where a prediction is no finite number.' })
  rootMeanSquaredError!: number | null;
  @Field(() => Float, {
    nullable: true,
    description: 'Coefficient of determination: 1 is exact, 0 as good as the mean; null where all true values are equal.',
  })
  rSquared!: number | null;
  @Field(() => [[Float]], { description: 'Pairs of true value and prediction, evenly spread over the examples, at most 1000.' })
  points!: number[][];
  @Field(() => [String], { description: 'Columns of the cells below; at most 8.' })
  columns!: string[];
  @Field(() => [WorstExample], { description: 'The largest errors, at most 10.' })
  worst!: WorstExample[];
}

@ObjectType({ description: 'An output whose predictions cannot be shown.' })
export class UnpicturedOutput {
  @Field(() => String, { description: 'none' })
  kind!: 'none';
  @Field({ description: 'The column, or the target of the features.' })
  name!: string;
  @Field({ description: 'Why, for people.' })
  reason!: string;
}

export const PredictedOutput = createUnionType({
  name: 'PredictedOutput',
  description: 'Predictions at one output of the model.',
  types: () => [PredictedClasses, PredictedValues, UnpicturedOutput] as const,
});

/** Most models have one output, and few more than this. */
const OUTPUTS_COUNTED = 8;

@ObjectType('RunPredictions', { description: "Predictions of a run's result for its evaluation split." })
export class RunPredictionsType {
  @Field(() => PREDICTIONS_STATES, { description: 'Whether they are there.' })
  state!: PredictionsState;
  @Field(() => String, { nullable: true, description: 'Why they are UNAVAILABLE, for people.' })
  reason: string | null = null;
  @Field(() => Int, { nullable: true, description: 'Examples of the evaluation split; null before they are READY.' })
  examples: number | null = null;
  @Field(() => Int, { nullable: true, description: 'Those of them that were looked at: all, or 20,000 at most, evenly spread.' })
  measured: number | null = null;
  @Field(() => String, { nullable: true, description: 'test, validation or train.' })
  split: string | null = null;
  @Field(() => [PredictedOutput], {
    description: 'For each output of the model; for each number by itself where an output has a few. Empty before they are READY.',
    complexity: ({ childComplexity }) => OUTPUTS_COUNTED * childComplexity,
  })
  outputs: (PredictedClasses | PredictedValues | UnpicturedOutput)[] = [];
}
