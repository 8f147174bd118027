import { Args, ID, Int, Mutation, Query, Resolver } from '@nestjs/graphql';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import type { Viewer } from '../teams/authentication.js';
import {
  ModelAlias,
  RemoveModelAliasResult,
  RemoveModelAliasSuccess,
  SetModelAliasResult,
  SetModelAliasSuccess,
} from './model-alias.types.js';
import { ModelAliases } from './model-aliases.js';

@Resolver(() => ModelAlias)
export class ModelAliasesResolver {
  constructor(private readonly aliases: ModelAliases) {}

  @Query(() => [ModelAlias], { description: 'Aliases of trained models of your team, by name; at most 1000.' })
  modelAliases(
    @CurrentViewer() viewer: Viewer,
    @Args('name', { type: () => String, nullable: true, description: 'Only the one of this name.' }) name?: string | null,
  ) {
    return this.aliases.list(viewer, name);
  }

  @Mutation(() => SetModelAliasResult, { description: 'Gives a trained model a name; an existing alias is moved to it.' })
  async setModelAlias(
    @CurrentViewer() viewer: Viewer,
    @Args('name', { description: 'Two names with a colon between, such as flowers:best.' }) name: string,
    @Args('runId', { type: () => ID, description: 'The run whose model it is.' }) runId: string,
    @Args('round', { type: () => Int, nullable: true, description: 'Committed rounds of a checkpoint; left out: the result.' })
    round?: number | null,
  ) {
    const set = await this.aliases.set(viewer, name, runId, round ?? null);
    return set instanceof ModelAlias ? new SetModelAliasSuccess(set) : set;
  }

  @Mutation(() => RemoveModelAliasResult, { description: 'Removes an alias; the model is as it was.' })
  async removeModelAlias(@CurrentViewer() viewer: Viewer, @Args('name', { description: 'Name of the alias.' }) name: string) {
    return (await this.aliases.remove(viewer, name)) ?? new RemoveModelAliasSuccess(name);
  }
}
