import { createUnionType, Field, InputType, ObjectType } from '@nestjs/graphql';
import { Node } from '../graphql/node.type.js';
import { Conflict, InvalidInput } from '../graphql/result.types.js';

@ObjectType({
  implements: () => [Node],
  description: 'Named addresses of ps and worker tasks, as in TF_CONFIG. A run that names one must not ask for more servers than it lists.',
})
export class ClusterSpec implements Node {
  id!: string;
  @Field()
  name!: string;
  @Field()
  createdAt!: Date;
  @Field(() => [String])
  servers!: string[];
  @Field(() => [String])
  workers!: string[];
}

@InputType()
export class CreateClusterSpecInput {
  @Field()
  name!: string;
  @Field(() => [String], {
    nullable: true,
    description: 'Addresses host:port of the ps tasks; empty means whichever servers the fleet has.',
  })
  servers?: string[] | null;
  @Field(() => [String], { nullable: true, description: 'Addresses host:port of the worker tasks.' })
  workers?: string[] | null;
}

@ObjectType()
export class CreateClusterSpecSuccess {
  @Field(() => ClusterSpec)
  readonly clusterSpec: ClusterSpec;
  constructor(clusterSpec: ClusterSpec) {
    this.clusterSpec = clusterSpec;
  }
}

export const CreateClusterSpecResult = createUnionType({
  name: 'CreateClusterSpecResult',
  types: () => [CreateClusterSpecSuccess, InvalidInput, Conflict] as const,
});

export const toClusterSpec = ({ id, name, createdAt, servers, workers }: ClusterSpec): ClusterSpec =>
  Object.assign(new ClusterSpec(), { id, name, createdAt, servers, workers });
