import { Parent, ResolveField, Resolver } from '@nestjs/graphql';
import { READ_COST } from '../graphql/cost.js';
import { Run } from '../runs/run.types.js';
import { RunPredictionsType } from './predictions.types.js';
import { RunPredictions } from './run-predictions.js';

/** A row, and a document of up to 16 MiB that is parsed: one operation may ask for a few. */
const COST = 100 * READ_COST;

@Resolver(() => Run)
export class RunPredictionsResolver {
  constructor(private readonly predictions: RunPredictions) {}

  @ResolveField(() => RunPredictionsType, {
    name: 'predictions',
    nullable: true,
    description:
      'Predictions of its result for the evaluation split: confusions and wrong examples, or predicted values beside true ones. Computed on the first request. Null before the run has SUCCEEDED.',
    complexity: ({ childComplexity }: { childComplexity: number }) => COST + childComplexity,
  })
  of(@Parent() run: Run) {
    return this.predictions.of(run);
  }
}
