import { createUnionType, Field, InputType, ObjectType } from '@nestjs/graphql';
import { Node } from '../graphql/node.type.js';
import { Conflict, InvalidInput } from '../graphql/result.types.js';

@ObjectType({
  implements: () => [Node],
  description: 'Named addresses of ps and worker tasks, as in TF_CONFIG. A run that names one must not ask for more servers than it lists.',
})
export class ClusterSpec implements Node {
  id!: string;
  @Field({ description: 'Unique in the team.' })
  name!: string;
  @Field({ description: 'When it was made.' })
  createdAt!: Date;
  @Field(() => [String], { description: 'Addresses host:port of the ps tasks.' })
  servers!: string[];
  @Field(() => [String], { description: 'Addresses host:port of the worker tasks.' })
  workers!: string[];
}

@InputType({ description: 'A cluster spec to be made.' })
export class CreateClusterSpecInput {
  @Field({ description: 'Unique in the team.' })
  name!: string;
  @Field(() => [String], {
    nullable: true,
    description: 'Addresses host:port of the ps tasks; empty means whichever servers the fleet has.',
  })
  servers?: string[] | null;
  @Field(() => [String], { nullable: true, description: 'Addresses host:port of the worker tasks.' })
  workers?: string[] | null;
}

@ObjectType({ description: 'The cluster spec was made.' })
export class CreateClusterSpecSuccess {
  @Field(() => ClusterSpec, { description: 'The cluster spec.' })
  readonly clusterSpec: ClusterSpec;
  constructor(clusterSpec: ClusterSpec) {
    this.clusterSpec = clusterSpec;
  }
}

export const CreateClusterSpecResult = createUnionType({
  name: 'CreateClusterSpecResult',
  description: 'The cluster spec, or why there is none.',
  types: () => [CreateClusterSpecSuccess, InvalidInput, Conflict] as const,
});

export const toClusterSpec = ({ id, name, createdAt, servers, workers }: ClusterSpec): ClusterSpec =>
  Object.assign(new ClusterSpec(), { id, name, createdAt, servers, workers });
