/**
 * Teams, their API keys, and what a team may have and has, as GraphQL shows them; and the results of the operations on them.
 */
import { createUnionType, Field, Float, InputType, Int, ObjectType } from '@nestjs/graphql';
import { Node } from '../graphql/node.type.js';
import { Conflict, InvalidInput, NotFound } from '../graphql/result.types.js';

@ObjectType({
  implements: () => [Node],
  description: 'Who owns runs, cluster specs and API keys. What one team has, another does not see.',
})
export class Team implements Node {
  id!: string;
  @Field({ description: 'Unique over all teams.' })
  name!: string;
  @Field({ description: 'When it was made.' })
  createdAt!: Date;
}

@ObjectType({
  implements: () => [Node],
  description: 'A key of a team. What it can do is what its team can do; admin keys also make teams.',
})
export class ApiKey implements Node {
  id!: string;
  @Field({ description: 'A name for people.' })
  name!: string;
  @Field({ description: 'The part of the key that is not secret.' })
  prefix!: string;
  @Field({ description: 'When it was made.' })
  createdAt!: Date;
  @Field(() => Date, { nullable: true, description: 'To the minute.' })
  lastUsedAt!: Date | null;
  @Field(() => Date, { nullable: true, description: 'When it was revoked; null if it was not. From then on it is refused.' })
  revokedAt!: Date | null;
  @Field(() => Date, { nullable: true, description: 'When it expires; null: never. From then on it is refused.' })
  expiresAt!: Date | null;
  @Field({ description: 'It may look at everything of its team and change nothing.' })
  isReadOnly!: boolean;
}

@ObjectType('Viewer', { description: 'Who asks.' })
export class ViewerType {
  @Field(() => Team, { description: 'The team of the key.' })
  team!: Team;
  @Field(() => ApiKey, { description: 'The key that was sent.' })
  apiKey!: ApiKey;
  @Field({ description: "It is an administrator's key." })
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
  @Field(() => Float, { nullable: true, description: 'Bytes of all datasets.' })
  datasetBytes!: number | null;
}

@ObjectType('TeamUse', { description: 'What a team has of the fleet now. Runs that wait count with the places that they wait for.' })
export class TeamUseType {
  @Field(() => Int, { description: 'Runs that are not over.' })
  activeRuns!: number;
  @Field(() => Int, { description: 'Places of parameter servers, standbys among them.' })
  serverPlaces!: number;
  @Field(() => Int, { description: 'Workers in seats.' })
  workers!: number;
  @Field(() => Float, { description: 'Parameters of all runs that are not over.' })
  parameters!: number;
  @Field(() => Float, { description: 'Bytes of all datasets.' })
  datasetBytes!: number;
}

@InputType({ description: 'Fields that are left out stay as they are; null takes the limit that the api has for all teams.' })
export class TeamLimitsInput {
  @Field(() => Int, { nullable: true, description: 'Runs that are not over.' })
  activeRuns?: number | null;
  @Field(() => Int, { nullable: true, description: 'Places of parameter servers, standbys among them; a server has 16.' })
  serverPlaces?: number | null;
  @Field(() => Int, { nullable: true, description: 'Workers in seats.' })
  workers?: number | null;
  @Field(() => Float, { nullable: true, description: 'Parameters of all runs that are not over.' })
  parameters?: number | null;
  @Field(() => Float, { nullable: true, description: 'Bytes of all datasets.' })
  datasetBytes?: number | null;
}

@ObjectType({ description: 'The limits hold from now on; the team keeps what it already has.' })
export class SetTeamLimitsSuccess {
  @Field(() => Team, { description: 'The team, with its new limits.' })
  readonly team: Team;
  constructor(team: Team) {
    this.team = team;
  }
}

@ObjectType({ description: 'The team was made.' })
export class CreateTeamSuccess {
  @Field(() => Team, { description: 'The team. It has no key yet.' })
  readonly team: Team;
  constructor(team: Team) {
    this.team = team;
  }
}

@ObjectType({ description: 'The secret is shown here once and stored only as a hash.' })
export class CreateApiKeySuccess {
  @Field(() => ApiKey, { description: 'The key, without its secret.' })
  readonly apiKey: ApiKey;
  @Field({ description: 'The whole key, to be sent as "Authorization: Bearer SECRET".' })
  readonly secret: string;
  constructor(apiKey: ApiKey, secret: string) {
    this.apiKey = apiKey;
    this.secret = secret;
  }
}

@ObjectType({ description: 'The key is refused from now on.' })
export class RevokeApiKeySuccess {
  @Field(() => ApiKey, { description: 'The key, with the time of its end.' })
  readonly apiKey: ApiKey;
  constructor(apiKey: ApiKey) {
    this.apiKey = apiKey;
  }
}

export const CreateTeamResult = createUnionType({
  name: 'CreateTeamResult',
  description: 'The team, or why there is none.',
  types: () => [CreateTeamSuccess, InvalidInput, Conflict] as const,
});
export const CreateApiKeyResult = createUnionType({
  name: 'CreateApiKeyResult',
  description: 'The key with its secret, or why there is none.',
  types: () => [CreateApiKeySuccess, InvalidInput, NotFound, Conflict] as const,
});
export const SetTeamLimitsResult = createUnionType({
  name: 'SetTeamLimitsResult',
  description: 'The team, or why its limits are what they were.',
  types: () => [SetTeamLimitsSuccess, InvalidInput, NotFound] as const,
});
export const RevokeApiKeyResult = createUnionType({
  name: 'RevokeApiKeyResult',
  description: 'The key, or why it still is right.',
  types: () => [RevokeApiKeySuccess, NotFound, Conflict] as const,
});

/** GraphQL tells types apart by their class, so rows become instances. */
export const toTeam = ({ id, name, createdAt }: Team): Team => Object.assign(new Team(), { id, name, createdAt });
export const toApiKey = ({ id, name, prefix, createdAt, lastUsedAt, revokedAt, expiresAt, isReadOnly }: ApiKey): ApiKey =>
  Object.assign(new ApiKey(), { id, name, prefix, createdAt, lastUsedAt, revokedAt, expiresAt, isReadOnly });
