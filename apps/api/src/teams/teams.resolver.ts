import { Args, ID, Mutation, Parent, Query, ResolveField, Resolver } from '@nestjs/graphql';
import { KEY_DESCRIPTION, OnReplay } from '../graphql/replayed.decorator.js';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import type { Viewer } from './authentication.js';
import { ApiKey, CreateApiKeyResult, CreateTeamResult, RevokeApiKeyResult, Team, ViewerType } from './team.types.js';
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

  @Mutation(() => CreateTeamResult, { description: 'For the bootstrap (admin) key only.' })
  createTeam(
    @CurrentViewer() viewer: Viewer,
    @Args('name') name: string,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) key?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    return this.teams.createTeam(viewer, name, { key, onReplay });
  }

  @Mutation(() => CreateApiKeyResult, { description: 'Admin keys make keys for any team, other keys for their own.' })
  createApiKey(
    @CurrentViewer() viewer: Viewer,
    @Args('teamId', { type: () => ID }) teamId: string,
    @Args('name') name: string,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) key?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    return this.teams.createApiKey(viewer, teamId, name, { key, onReplay });
  }

  @Mutation(() => RevokeApiKeyResult)
  revokeApiKey(@CurrentViewer() viewer: Viewer, @Args('id', { type: () => ID }) id: string) {
    return this.teams.revokeApiKey(viewer, id);
  }
}
