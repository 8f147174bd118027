import { Field, Int, ObjectType } from '@nestjs/graphql';
import { Node } from '../graphql/node.type.js';

@ObjectType({ implements: () => [Node], description: 'A registered dataset.' })
export class Dataset implements Node {
  id!: string;
  @Field()
  name!: string;
  @Field()
  title!: string;
  @Field(() => Int)
  trainExamples!: number;
  @Field(() => Int)
  evalExamples!: number;
  @Field(() => [Int], { description: 'Shape of one example.' })
  inputShape!: number[];
  @Field(() => Int)
  classes!: number;
  @Field()
  license!: string;
  @Field()
  source!: string;
}
