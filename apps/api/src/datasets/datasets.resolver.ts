/** GraphQL operations on datasets. Bytes of datasets do not go through GraphQL: see http/datasets.controller.ts. */
import { Args, ID, Int, Mutation, Parent, Query, ResolveField, Resolver } from '@nestjs/graphql';
import { datasetReferenceSchema } from '@paceline/spec';
import { Fault } from '../fault.js';
import { pageCost, READ_COST, readCost } from '../graphql/cost.js';
import { AFTER, BEFORE, FIRST, LAST } from '../graphql/page.js';
import { KEY_DESCRIPTION, OnReplay } from '../graphql/replayed.decorator.js';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import { Run } from '../runs/run.types.js';
import { Runs } from '../runs/runs.js';
import type { Viewer } from '../teams/authentication.js';
import {
  Dataset,
  DatasetConnection,
  DatasetImport,
  DatasetImportOptions,
  DatasetPreview,
  DatasetSchema,
  DatasetVersion,
  ImportDatasetResult,
  RemoveDatasetResult,
  RemoveDatasetSuccess,
} from './dataset.types.js';
import { DatasetImports } from './dataset-imports.js';
import { Datasets } from './datasets.js';
import { Preview } from './preview.js';
import { RemoveDataset } from './remove-dataset.js';
import { MAX_PREVIEW_ROWS } from './shown-rows.js';

const MAX_COLUMNS = 1000;
const MAX_VERSIONS = 100;
const LISTED_ARGUMENT = { type: () => Int, nullable: true, defaultValue: 20, description: `At most ${MAX_VERSIONS}.` };

/** @throws Fault INVALID_INPUT */
function bounded(name: string, value: number, most: number): number {
  if (value >= 0 && value <= most) return value;
  throw new Fault('INVALID_INPUT', `\`${name}\` must be from 0 to ${most}, not ${value}.`);
}

@Resolver(() => Dataset)
export class DatasetsResolver {
  constructor(
    private readonly registered: Datasets,
    private readonly removals: RemoveDataset,
    private readonly importing: DatasetImports,
    private readonly trained: Runs,
  ) {}

  @Query(() => DatasetConnection, { description: 'Datasets of the release, then those of the team, by name.', complexity: pageCost(50) })
  datasets(
    @CurrentViewer() viewer: Viewer,
    @Args('first', { type: () => Int, nullable: true, defaultValue: 50, description: FIRST }) first?: number,
    @Args('after', AFTER) after?: string,
    @Args('last', LAST) last?: number,
    @Args('before', BEFORE) before?: string,
  ) {
    return this.registered.list(viewer, { first, after, last, before });
  }

  @Query(() => Dataset, { nullable: true, description: 'One dataset: of the release, or of the team.', complexity: readCost })
  dataset(@CurrentViewer() viewer: Viewer, @Args('name', { description: 'The name that a run spec uses.' }) name: string) {
    return this.registered.find(viewer, name);
  }

  @ResolveField('versions', () => [DatasetVersion], { description: 'Newest first.', complexity: pageCost(20) })
  versions(@CurrentViewer() viewer: Viewer, @Parent() { id }: Dataset, @Args('first', LISTED_ARGUMENT) first = 20) {
    return this.registered.versions(viewer, id, bounded('first', first, MAX_VERSIONS));
  }

  @ResolveField('version', () => DatasetVersion, {
    nullable: true,
    description: 'The version whose hash begins so, from 8 digits; the newest without one.',
    complexity: readCost,
  })
  async version(
    @CurrentViewer() viewer: Viewer,
    @Parent() { name, isBuiltIn }: Dataset,
    @Args('version', { nullable: true, description: 'The first digits of its hash, 8 or more.' }) version?: string,
  ) {
    const reference = version ? `${name}@${version}` : name;
    if (isBuiltIn || !datasetReferenceSchema.safeParse(reference).success) return null;
    const found = await this.registered.resolve(viewer.teamId, reference);
    return 'id' in found ? this.registered.versionById(viewer, found.id) : null;
  }

  @ResolveField('runs', () => [Run], { description: 'Runs that use it, in any version, newest first.', complexity: pageCost(20) })
  runs(@CurrentViewer() viewer: Viewer, @Parent() dataset: Dataset, @Args('first', LISTED_ARGUMENT) first = 20) {
    const size = bounded('first', first, MAX_VERSIONS);
    return dataset.isBuiltIn ? [] : this.trained.ofDataset(viewer, { datasetId: dataset.id }, size);
  }

  @Query(() => [DatasetImport], {
    description: 'Imports by the api, newest first. One is kept for 31 days after its end.',
    complexity: pageCost(20),
  })
  datasetImports(@CurrentViewer() viewer: Viewer, @Args('first', LISTED_ARGUMENT) first = 20) {
    return this.importing.list(viewer, bounded('first', first, MAX_VERSIONS));
  }

  @Query(() => DatasetImport, { nullable: true, description: 'One import by the api.', complexity: readCost })
  datasetImport(@CurrentViewer() viewer: Viewer, @Args('id', { type: () => ID, description: 'Of the import.' }) id: string) {
    return this.importing.find(viewer, id);
  }

  @Mutation(() => RemoveDatasetResult, {
    description: 'Removes a dataset of the team, or one version of it (`name@version`). Refused while a run uses it.',
  })
  async removeDataset(
    @CurrentViewer() viewer: Viewer,
    @Args('dataset', { description: 'NAME, or NAME@VERSION.' }) reference: string,
    @Args('force', { type: () => Boolean, nullable: true, description: 'Also when runs that are over were trained on it.' })
    force?: boolean | null,
  ) {
    const removed = await this.removals.remove(viewer, reference, force ?? false);
    return 'versions' in removed ? new RemoveDatasetSuccess(removed.name, removed.versions) : removed;
  }

  @Mutation(() => ImportDatasetResult, {
    description:
      'Starts an import by the api, from an address or from files that were uploaded (POST /api/v1/datasets/uploads). Modules of people never run here: use `paceline data import` for those.',
  })
  importDataset(
    @CurrentViewer() viewer: Viewer,
    @Args('name', { description: 'The dataset that it makes, or gives a new version.' }) name: string,
    @Args('url', { nullable: true, description: 'https://…, or else `uploads`.' }) url?: string,
    @Args('uploads', { type: () => [ID], nullable: true, description: 'Ids of uploaded files.' }) uploads?: string[] | null,
    @Args('options', { type: () => DatasetImportOptions, nullable: true, description: 'How the files become a dataset.' })
    options?: DatasetImportOptions | null,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) key?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    return this.importing.start(viewer, { name, url, uploads, options }, { key, onReplay });
  }
}

@Resolver(() => DatasetVersion)
export class DatasetVersionsResolver {
  constructor(
    private readonly registered: Datasets,
    private readonly previews: Preview,
    private readonly trained: Runs,
  ) {}

  @ResolveField('schema', () => DatasetSchema, {
    description: 'Columns with statistics, splits and the label.',
    complexity: ({ args, childComplexity }) => READ_COST + (Math.max(1, Number(args['first'] ?? 100)) * childComplexity) / 4,
  })
  async schema(
    @CurrentViewer() viewer: Viewer,
    @Parent() { id }: DatasetVersion,
    @Args('first', { type: () => Int, nullable: true, defaultValue: 100, description: `Columns; at most ${MAX_COLUMNS}.` }) first = 100,
    @Args('offset', { type: () => Int, nullable: true, defaultValue: 0, description: 'Columns to pass over.' }) offset = 0,
  ) {
    const [size, from] = [bounded('first', first, MAX_COLUMNS), bounded('offset', offset, 2 ** 31 - 1)];
    const schema = await this.registered.ask(viewer.teamId, id, 'schema', { first: size, offset: from });
    if (!schema) throw new Fault('NOT_FOUND', 'The version was removed meanwhile.');
    return schema;
  }

  @ResolveField('preview', () => DatasetPreview, {
    description: 'A few rows, decoded.',
    complexity: ({ args, childComplexity }) => READ_COST + 10 * (Number(args['rows'] ?? 10) || 0) + childComplexity,
  })
  preview(
    @CurrentViewer() viewer: Viewer,
    @Parent() { id }: DatasetVersion,
    @Args('rows', { type: () => Int, nullable: true, defaultValue: 10, description: `At most ${MAX_PREVIEW_ROWS}.` }) rows = 10,
    @Args('from', { type: () => Int, nullable: true, defaultValue: 0, description: 'The first row, from 0.' }) from = 0,
    @Args('split', { type: () => String, nullable: true, defaultValue: 'train', description: 'train, validation or test.' })
    split = 'train',
    @Args('columns', { type: () => [String], nullable: true, description: 'At most 100; by default the first 100.' })
    columns?: string[] | null,
  ) {
    return this.previews.of(viewer, id, { rows, from, split, columns });
  }

  @ResolveField('runs', () => [Run], { description: 'Runs that use it, newest first.', complexity: pageCost(20) })
  runs(@CurrentViewer() viewer: Viewer, @Parent() { id }: DatasetVersion, @Args('first', LISTED_ARGUMENT) first = 20) {
    return this.trained.ofDataset(viewer, { id }, bounded('first', first, MAX_VERSIONS));
  }
}
