import { createUnionType, Field, ObjectType } from '@nestjs/graphql';
import { Node } from '../graphql/node.type.js';
import { Conflict, InvalidInput, NotFound } from '../graphql/result.types.js';

@ObjectType({ implements: () => [Node] })
export class Team implements Node {
  id!: string;
  @Field()
  name!: string;
  @Field()
  createdAt!: Date;
}

@ObjectType({
  implements: () => [Node],
  description: 'A key of a team. What it can do is what its team can do; admin keys also make teams.',
})
export class ApiKey implements Node {
  id!: string;
  @Field()
  name!: string;
  @Field({ description: 'The part of the key that is not secret.' })
  prefix!: string;
  @Field()
  createdAt!: Date;
  @Field(() => Date, { nullable: true, description: 'To the minute.' })
  lastUsedAt!: Date | null;
  @Field(() => Date, { nullable: true })
  revokedAt!: Date | null;
}

@ObjectType('Viewer', { description: 'Who asks.' })
export class ViewerType {
  @Field(() => Team)
  team!: Team;
  @Field(() => ApiKey)
  apiKey!: ApiKey;
  @Field()
  isAdmin!: boolean;
}

@ObjectType()
export class CreateTeamSuccess {
  @Field(() => Team)
  readonly team: Team;
  constructor(team: Team) {
    this.team = team;
  }
}

@ObjectType({ description: 'The secret is shown here once and stored only as a hash.' })
export class CreateApiKeySuccess {
  @Field(() => ApiKey)
  readonly apiKey: ApiKey;
  @Field()
  readonly secret: string;
  constructor(apiKey: ApiKey, secret: string) {
    this.apiKey = apiKey;
    this.secret = secret;
  }
}

@ObjectType()
export class RevokeApiKeySuccess {
  @Field(() => ApiKey)
  readonly apiKey: ApiKey;
  constructor(apiKey: ApiKey) {
    this.apiKey = apiKey;
  }
}

export const CreateTeamResult = createUnionType({
  name: 'CreateTeamResult',
  types: () => [CreateTeamSuccess, InvalidInput, Conflict] as const,
});
export const CreateApiKeyResult = createUnionType({
  name: 'CreateApiKeyResult',
  types: () => [CreateApiKeySuccess, InvalidInput, NotFound, Conflict] as const,
});
export const RevokeApiKeyResult = createUnionType({ name: 'RevokeApiKeyResult', types: () => [RevokeApiKeySuccess, NotFound] as const });

/** GraphQL tells types apart by their class, so rows become instances. */
export const toTeam = ({ id, name, createdAt }: Team): Team => Object.assign(new Team(), { id, name, createdAt });
export const toApiKey = ({ id, name, prefix, createdAt, lastUsedAt, revokedAt }: ApiKey): ApiKey =>
  Object.assign(new ApiKey(), { id, name, prefix, createdAt, lastUsedAt, revokedAt });
