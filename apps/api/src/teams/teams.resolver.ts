import { Args, ID, Mutation, Parent, Query, ResolveField, Resolver } from '@nestjs/graphql';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import type { Viewer } from './authentication.js';
import {
  ApiKey,
  CreateApiKeyResult,
  CreateTeamResult,
  RevokeApiKeyResult,
  SetTeamLimitsResult,
  Team,
  TeamLimitsInput,
  TeamLimitsType,
  TeamUseType,
  ViewerType,
} from './team.types.js';
import { TeamsService } from './teams.service.js';

@Resolver(() => Team)
export class TeamsResolver {
  constructor(private readonly teams: TeamsService) {}

  @Query(() => ViewerType)
  viewer(@CurrentViewer() viewer: Viewer) {
    return this.teams.viewer(viewer);
  }

  @Query(() => Team, { nullable: true })
  team(@CurrentViewer() viewer: Viewer, @Args('id', { type: () => ID }) id: string) {
    return this.teams.team(viewer, id);
  }

  @ResolveField('apiKeys', () => [ApiKey])
  apiKeys(@CurrentViewer() viewer: Viewer, @Parent() team: Team) {
    return this.teams.apiKeysOf(viewer, team.id);
  }

  @ResolveField('limits', () => TeamLimitsType, { nullable: true })
  limits(@CurrentViewer() viewer: Viewer, @Parent() team: Team) {
    return this.teams.limits(viewer, team.id);
  }

  @ResolveField('used', () => TeamUseType, { nullable: true })
  used(@CurrentViewer() viewer: Viewer, @Parent() team: Team) {
    return this.teams.use(viewer, team.id);
  }

  @Mutation(() => SetTeamLimitsResult, { description: 'For the bootstrap (admin) key only.' })
  setTeamLimits(
    @CurrentViewer() viewer: Viewer,
    @Args('teamId', { type: () => ID }) teamId: string,
    @Args('limits', { type: () => TeamLimitsInput }) limits: TeamLimitsInput,
  ) {
    return this.teams.setLimits(viewer, teamId, limits);
  }

  @Mutation(() => CreateTeamResult, { description: 'For the bootstrap (admin) key only.' })
  createTeam(@CurrentViewer() viewer: Viewer, @Args('name') name: string) {
    return this.teams.createTeam(viewer, name);
  }

  @Mutation(() => CreateApiKeyResult, { description: 'Admin keys make keys for any team, other keys for their own.' })
  createApiKey(@CurrentViewer() viewer: Viewer, @Args('teamId', { type: () => ID }) teamId: string, @Args('name') name: string) {
    return this.teams.createApiKey(viewer, teamId, name);
  }

  @Mutation(() => RevokeApiKeyResult)
  revokeApiKey(@CurrentViewer() viewer: Viewer, @Args('id', { type: () => ID }) id: string) {
    return this.teams.revokeApiKey(viewer, id);
  }
}
