import { Query, Resolver } from '@nestjs/graphql';
import { Dataset } from './dataset.types.js';
import { Datasets } from './datasets.js';

@Resolver()
export class DatasetsResolver {
  constructor(private readonly registered: Datasets) {}

  @Query(() => [Dataset])
  datasets() {
    return this.registered.list();
  }
}
