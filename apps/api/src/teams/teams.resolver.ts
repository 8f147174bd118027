import { Args, ID, Mutation, Parent, Query, ResolveField, Resolver } from '@nestjs/graphql';
import { READ_COST } from '../graphql/cost.js';
import { KEY_DESCRIPTION, OnReplay } from '../graphql/replayed.decorator.js';
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

  @Query(() => ViewerType, { description: 'Who asks: the key that was sent, and its team.' })
  viewer(@CurrentViewer() viewer: Viewer) {
    return this.teams.viewer(viewer);
  }

  @Query(() => Team, { nullable: true, description: 'Your team, or any for an administrator; null otherwise.' })
  team(@CurrentViewer() viewer: Viewer, @Args('id', { type: () => ID, description: 'Of the team.' }) id: string) {
    return this.teams.team(viewer, id);
  }

  @ResolveField('apiKeys', () => [ApiKey], {
    description:
      'Keys of the team: all that are live, the oldest first, then those that were revoked or have expired, the newest first and at most 200.',
    complexity: ({ childComplexity }) => READ_COST + 50 * childComplexity,
  })
  apiKeys(@CurrentViewer() viewer: Viewer, @Parent() team: Team) {
    return this.teams.apiKeysOf(viewer, team.id);
  }

  @ResolveField('limits', () => TeamLimitsType, {
    nullable: true,
    description: 'The limits of the team; null for a team that is not yours.',
  })
  limits(@CurrentViewer() viewer: Viewer, @Parent() team: Team) {
    return this.teams.limits(viewer, team.id);
  }

  @ResolveField('used', () => TeamUseType, { nullable: true, description: 'What the team uses now; null for a team that is not yours.' })
  used(@CurrentViewer() viewer: Viewer, @Parent() team: Team) {
    return this.teams.use(viewer, team.id);
  }

  @Mutation(() => SetTeamLimitsResult, { description: 'Changes what a team may have. For the bootstrap (admin) key only.' })
  setTeamLimits(
    @CurrentViewer() viewer: Viewer,
    @Args('teamId', { type: () => ID, description: 'Of the team.' }) teamId: string,
    @Args('limits', { type: () => TeamLimitsInput, description: 'What it may have from now on.' }) limits: TeamLimitsInput,
  ) {
    return this.teams.setLimits(viewer, teamId, limits);
  }

  @Mutation(() => CreateTeamResult, { description: 'Makes a team. For the bootstrap (admin) key only.' })
  createTeam(
    @CurrentViewer() viewer: Viewer,
    @Args('name', { description: 'Unique over all teams.' }) name: string,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) key?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    return this.teams.createTeam(viewer, name, { key, onReplay });
  }

  @Mutation(() => CreateApiKeyResult, { description: 'Admin keys make keys for any team, other keys for their own.' })
  createApiKey(
    @CurrentViewer() viewer: Viewer,
    @Args('teamId', { type: () => ID, description: 'The team that the key is for.' }) teamId: string,
    @Args('name', { description: 'For people: who or what uses the key.' }) name: string,
    @Args('expiresAt', {
      type: () => Date,
      nullable: true,
      description: 'When it ends by itself; a key that ends makes none that lives longer.',
    })
    expiresAt?: Date | null,
    @Args('readOnly', { type: () => Boolean, nullable: true, description: 'It may look at everything of the team and change nothing.' })
    readOnly?: boolean | null,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) key?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    return this.teams.createApiKey(viewer, teamId, name, { expiresAt, readOnly, key, onReplay });
  }

  @Mutation(() => RevokeApiKeyResult, {
    description:
      "It is refused at once, and its subscriptions end. Administrators' keys: by an administrator only, and never the last one.",
  })
  revokeApiKey(@CurrentViewer() viewer: Viewer, @Args('id', { type: () => ID, description: 'Of the key.' }) id: string) {
    return this.teams.revokeApiKey(viewer, id);
  }
}
