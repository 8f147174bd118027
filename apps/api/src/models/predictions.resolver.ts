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
      'What its result says of the evaluation split: confusions and wrong examples, or predicted values beside true ones. Made when it is asked for first. Null before the run has SUCCEEDED.',
    complexity: ({ childComplexity }: { childComplexity: number }) => COST + childComplexity,
  })
  of(@Parent() run: Run) {
    return this.predictions.of(run);
  }
}
