import { Query, Resolver } from '@nestjs/graphql';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import type { Viewer } from '../teams/authentication.js';
import { FleetView } from './fleet-view.js';
import { Server, Worker } from './fleet.types.js';

@Resolver()
export class FleetResolver {
  constructor(private readonly view: FleetView) {}

  @Query(() => [Worker], { description: 'Workers seen in the last ten minutes. The fleet is shared by all teams.' })
  workers(@CurrentViewer() viewer: Viewer) {
    return this.view.workers(viewer);
  }

  @Query(() => [Server], { description: 'Parameter-server processes seen in the last ten minutes.' })
  servers(@CurrentViewer() viewer: Viewer) {
    return this.view.servers(viewer);
  }
}
