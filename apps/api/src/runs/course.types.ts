/** What the validations of a run have come to, as GraphQL shows it. */
import { Field, Float, Int, ObjectType } from '@nestjs/graphql';
import type { MeasuresRecord } from '@paceline/control-plane';
import { JsonScalar } from '../graphql/json.scalar.js';

@ObjectType({ description: 'What was measured on the evaluation split when so many rounds were committed.' })
export class MeasuredRound {
  @Field(() => Int, { description: 'Committed rounds.' })
  round!: number;
  @Field(() => JsonScalar, { description: 'Loss and metrics, by name.' })
  values!: MeasuresRecord;
}

@ObjectType({ description: 'The learning rate was lowered, because the metric that the run watches did not improve.' })
export class RateReduction {
  @Field(() => Int, { description: 'Committed rounds when it was decided: the rate holds from the next round on.' })
  round!: number;
  @Field(() => Float, { description: 'What the rate of the schedule was multiplied by before.' })
  was!: number;
  @Field(() => Float, { description: 'What it is multiplied by from then on.' })
  factor!: number;
}

@ObjectType({ description: 'What the validations of a run have come to so far.' })
export class RunCourse {
  @Field({ description: 'The metric by which validations are compared, with the prefix val_.' })
  metric!: string;
  @Field(() => String, { description: 'Whether a higher or a lower value is better.' })
  better!: 'higher' | 'lower';
  @Field(() => MeasuredRound, { description: 'The best validation: the one that early stopping has kept, where it has.' })
  best!: MeasuredRound;
  @Field(() => MeasuredRound, { description: 'The newest.' })
  last!: MeasuredRound;
  @Field(() => [RateReduction], { description: 'Each time that reduceLROnPlateau has lowered the rate, oldest first.' })
  reductions!: RateReduction[];
}
