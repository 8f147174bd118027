/** `node(id)`: ids are unique over all types, so the id alone finds the thing; what another team owns is not found. */
import { Injectable } from '@nestjs/common';
import { Args, ID, Query, Resolver } from '@nestjs/graphql';
import { ClusterSpecs } from '../cluster-specs/cluster-specs.js';
import { DatasetImports } from '../datasets/dataset-imports.js';
import { Datasets } from '../datasets/datasets.js';
import { FleetView } from '../fleet/fleet-view.js';
import { Runs } from '../runs/runs.js';
import type { Viewer } from '../teams/authentication.js';
import { TeamsService } from '../teams/teams.service.js';
import { isUuid } from '../text-input.js';
import { Node } from './node.type.js';
import { CurrentViewer } from './viewer.decorator.js';

const MAX_ID_CHARACTERS = 100;

@Injectable()
@Resolver(() => Node)
export class NodeResolver {
  constructor(
    private readonly runs: Runs,
    private readonly teams: TeamsService,
    private readonly clusterSpecs: ClusterSpecs,
    private readonly fleet: FleetView,
    private readonly datasets: Datasets,
    private readonly imports: DatasetImports,
  ) {}

  @Query(() => Node, { nullable: true, description: 'The object with this id, of any type; null when there is none that you may see.' })
  async node(
    @CurrentViewer() viewer: Viewer,
    @Args('id', { type: () => ID, description: 'Of any type that is a Node.' }) id: string,
  ): Promise<Node | null> {
    if (id.length > MAX_ID_CHARACTERS) return null;
    const finders = isUuid(id)
      ? [
          () => this.runs.find(viewer, id),
          () => this.runs.stepTask(viewer, id),
          () => this.clusterSpecs.find(viewer, id),
          () => this.teams.team(viewer, id),
          () => this.teams.apiKey(viewer, id),
          () => this.datasets.find(viewer, id),
          () => this.datasets.versionById(viewer, id),
          () => this.imports.find(viewer, id),
        ]
      : [() => this.fleet.worker(viewer, id), () => this.fleet.server(viewer, id), () => this.datasets.find(viewer, id)];
    for (const find of finders) {
      const found = await find();
      if (found) return found;
    }
    return null;
  }
}
