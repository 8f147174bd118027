import { Args, Mutation, Query, Resolver } from '@nestjs/graphql';
import { KEY_DESCRIPTION, OnReplay } from '../graphql/replayed.decorator.js';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import type { Viewer } from '../teams/authentication.js';
import { ClusterSpec, CreateClusterSpecInput, CreateClusterSpecResult } from './cluster-spec.types.js';
import { ClusterSpecs } from './cluster-specs.js';

@Resolver(() => ClusterSpec)
export class ClusterSpecsResolver {
  constructor(private readonly specs: ClusterSpecs) {}

  @Query(() => [ClusterSpec], { description: 'Cluster specs of your team, the oldest first.' })
  clusterSpecs(@CurrentViewer() viewer: Viewer) {
    return this.specs.list(viewer);
  }

  @Mutation(() => CreateClusterSpecResult, { description: 'Names addresses, for runs to be placed on.' })
  createClusterSpec(
    @CurrentViewer() viewer: Viewer,
    @Args('input', { description: 'The cluster spec to be made.' }) input: CreateClusterSpecInput,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) key?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    return this.specs.create(viewer, input, { key, onReplay });
  }
}
