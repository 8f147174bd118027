import { Args, Mutation, Query, Resolver } from '@nestjs/graphql';
import { KEY_DESCRIPTION, OnReplay } from '../graphql/replayed.decorator.js';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import type { Viewer } from '../teams/authentication.js';
import { ClusterSpec, CreateClusterSpecInput, CreateClusterSpecResult } from './cluster-spec.types.js';
import { ClusterSpecs } from './cluster-specs.js';

@Resolver(() => ClusterSpec)
export class ClusterSpecsResolver {
  constructor(private readonly specs: ClusterSpecs) {}

  @Query(() => [ClusterSpec])
  clusterSpecs(@CurrentViewer() viewer: Viewer) {
    return this.specs.list(viewer);
  }

  @Mutation(() => CreateClusterSpecResult)
  createClusterSpec(
    @CurrentViewer() viewer: Viewer,
    @Args('input') input: CreateClusterSpecInput,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) key?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    return this.specs.create(viewer, input, { key, onReplay });
  }
}
