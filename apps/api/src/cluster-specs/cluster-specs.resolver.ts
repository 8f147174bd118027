import { Args, Mutation, Query, Resolver } from '@nestjs/graphql';
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
  createClusterSpec(@CurrentViewer() viewer: Viewer, @Args('input') input: CreateClusterSpecInput) {
    return this.specs.create(viewer, input);
  }
}
