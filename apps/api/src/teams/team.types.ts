import { createUnionType, Field, Float, InputType, Int, ObjectType } from '@nestjs/graphql';
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
  @Field(() => Date, { nullable: true, description: 'From then on it is refused; null: never.' })
  expiresAt!: Date | null;
  @Field({ description: 'It may look at everything of its team and change nothing.' })
  isReadOnly!: boolean;
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

@ObjectType('TeamLimits', { description: 'What a team may have of the fleet at a time; null is no limit.' })
export class TeamLimitsType {
  @Field(() => Int, { nullable: true, description: 'Runs that are not over.' })
  activeRuns!: number | null;
  @Field(() => Int, { nullable: true, description: 'Places of parameter servers, standbys among them; a server has 16.' })
  serverPlaces!: number | null;
  @Field(() => Int, { nullable: true, description: 'Workers in seats.' })
  workers!: number | null;
  @Field(() => Float, { nullable: true, description: 'Parameters of all runs that are not over.' })
  parameters!: number | null;
}

@ObjectType('TeamUse', { description: 'What a team has of the fleet now. Runs that wait count with the places that they wait for.' })
export class TeamUseType {
  @Field(() => Int)
  activeRuns!: number;
  @Field(() => Int)
  serverPlaces!: number;
  @Field(() => Int)
  workers!: number;
  @Field(() => Float)
  parameters!: number;
}

@InputType({ description: 'Fields that are left out stay as they are; null takes the limit that the api has for all teams.' })
export class TeamLimitsInput {
  @Field(() => Int, { nullable: true })
  activeRuns?: number | null;
  @Field(() => Int, { nullable: true })
  serverPlaces?: number | null;
  @Field(() => Int, { nullable: true })
  workers?: number | null;
  @Field(() => Float, { nullable: true })
  parameters?: number | null;
}

@ObjectType()
export class SetTeamLimitsSuccess {
  @Field(() => Team)
  readonly team: Team;
  constructor(team: Team) {
    this.team = team;
  }
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
export const SetTeamLimitsResult = createUnionType({
  name: 'SetTeamLimitsResult',
  types: () => [SetTeamLimitsSuccess, InvalidInput, NotFound] as const,
});
export const RevokeApiKeyResult = createUnionType({
  name: 'RevokeApiKeyResult',
  types: () => [RevokeApiKeySuccess, NotFound, Conflict] as const,
});

/** GraphQL tells types apart by their class, so rows become instances. */
export const toTeam = ({ id, name, createdAt }: Team): Team => Object.assign(new Team(), { id, name, createdAt });
export const toApiKey = ({ id, name, prefix, createdAt, lastUsedAt, revokedAt, expiresAt, isReadOnly }: ApiKey): ApiKey =>
  Object.assign(new ApiKey(), { id, name, prefix, createdAt, lastUsedAt, revokedAt, expiresAt, isReadOnly });
