/**
 * The dataset of a run, from the name in its spec to what servers and workers get to know: the version is pinned, so that whatever is imported
 * later changes nothing, and the features are resolved against its manifest.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { builtInRunData, preparedRunData, provisionalVocabularies, resolveFeatures } from '@paceline/data';
import {
  BUILT_IN_DATASETS,
  holdOut,
  parseDatasetReference,
  type DatasetManifest,
  type Features,
  type RunData,
  type RunSpec,
  type SpecIssue,
} from '@paceline/spec';
import { DataStore } from '../datasets/data-store.js';
import { Datasets, type FoundVersion } from '../datasets/datasets.js';
import { issuesFault, ManifestChild } from '../datasets/manifest-child.js';
import { Fault } from '../fault.js';
import { Fleet } from '../fleet/fleet.js';
import { Vocabularies } from './vocabularies.js';

/** A worker that begins tells of its store with its second heartbeat, and looks every two seconds for one that it cannot read yet. */
const WORKERS_LOOK_MS = 4_000;
const ASKED_AGAIN_MS = 250;
/** What of a spec the data of its run follows from, beside the dataset. */
type Chosen = Pick<RunSpec, 'features' | 'validation'>;

const REMOVED = 'was removed meanwhile';

export interface RunDataset {
  /** For messages. */
  readonly name: string;
  /** What the stored spec says of it: `name`, or `name@<64 digits>`; and features with the vocabularies that were made for them. */
  readonly pinned: Pick<RunSpec, 'dataset' | 'features'>;
  /** Row of the version; null with a built-in dataset. */
  readonly versionId: string | null;
  readonly data: RunData;
  /** Where vocabularies are still to be learned: all but what follows from them is right. Asked for when nothing else is wrong with the run. */
  readonly learn?: () => Promise<RunDataset | { readonly issues: SpecIssue[] }>;
}

@Injectable()
export class RunDatasets {
  private readonly vocabularies = new Vocabularies();

  constructor(
    private readonly datasets: Datasets,
    private readonly store: DataStore,
    private readonly fleet: Fleet,
  ) {}

  /** Reads no rows. @returns the dataset, or what is wrong with `dataset` or `features` @throws Fault SERVICE_UNAVAILABLE */
  async of(teamId: string, spec: RunSpec): Promise<RunDataset | { readonly issues: SpecIssue[] }> {
    const { name, version } = parseDatasetReference(spec.dataset);
    if ((BUILT_IN_DATASETS as readonly string[]).includes(name)) return builtIn(name, version, spec);
    const found = await this.datasets.resolve(teamId, spec.dataset);
    if (!('id' in found)) return { issues: [{ path: 'dataset', message: found.message }] };
    const elsewhere = await this.elsewhere();
    if (elsewhere !== undefined) return { issues: [{ path: 'dataset', message: elsewhere }] };
    return this.datasets.withManifest(teamId, found.id, (manifest) => {
      if (!manifest) return { issues: [{ path: 'dataset', message: REMOVED }] };
      const { isNeeded, features } = provisionalVocabularies(manifest, spec.features);
      const dataset = resolved(teamId, found, manifest, { features, validation: spec.validation });
      if (!isNeeded || 'issues' in dataset) return dataset;
      return Object.assign(dataset, { learn: () => this.learned(teamId, found, spec) });
    });
  }

  private async learned(
    teamId: string,
    found: FoundVersion,
    { features: given, validation }: Chosen,
  ): Promise<RunDataset | { readonly issues: SpecIssue[] }> {
    // Not in the turn of the manifest: learning takes long, and is one at a time.
    const make = async (): Promise<Features | undefined> => this.learn(teamId, found.version, given);
    try {
      const features = await this.vocabularies.of({ teamId, version: found.version, features: given }, make);
      return await this.datasets.withManifest(teamId, found.id, (manifest) =>
        resolved(teamId, found, required(manifest), { features, validation }),
      );
    } catch (error) {
      if (error instanceof Fault && error.issues) return { issues: [...error.issues] };
      throw error;
    }
  }

  /** Vocabularies of texts are made from the training split, in a process: it may be large. They stand in the spec from then on. */
  private async learn(teamId: string, version: string, features: Features | undefined): Promise<Features | undefined> {
    const child = new ManifestChild();
    try {
      return await this.store.use(() => child.learn({ storeUrl: this.store.url, teamId, version, features }));
    } finally {
      await child.end();
    }
  }

  /** Workers read the shards themselves: one at least must see the store of this api. A worker that comes later is asked when it takes its seat. */
  private async elsewhere(): Promise<string | undefined> {
    for (let waitedMs = 0; ; waitedMs += ASKED_AGAIN_MS) {
      const workers = (await this.fleet.list('worker')).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row));
      if (workers.length === 0) return undefined;
      const own = await this.store.identity();
      if (workers.some(({ dataStore }) => dataStore === own)) return undefined;
      const blind = workers.find(({ dataStore }) => !dataStore);
      if (blind && waitedMs < WORKERS_LOOK_MS) {
        await pause(ASKED_AGAIN_MS);
        continue;
      }
      const [one, has] = blind ? [blind, 'none, or cannot read it'] : [workers[0]!, 'another one'];
      return `no worker sees the data store of the api; ${one.id} on ${one.host} has ${has}. Set PACELINE_DATA_STORE for the workers to what the api has, and mount it`;
    }
  }
}

/** @throws Fault INVALID_INPUT when the version is gone */
function required(manifest: DatasetManifest | null): DatasetManifest {
  if (manifest) return manifest;
  throw issuesFault([{ path: 'dataset', message: REMOVED }]);
}

function resolved(
  teamId: string,
  { id, name, version }: FoundVersion,
  manifest: DatasetManifest,
  { features, validation }: Chosen,
): RunDataset | { readonly issues: SpecIssue[] } {
  const result = resolveFeatures(manifest, features);
  if (!result.ok) return { issues: [...result.issues] };
  const held = holdOut(preparedRunData(result.plan, { teamId, version }), validation);
  if (!held.ok) return { issues: [...held.issues] };
  return {
    name,
    pinned: Object.assign({ dataset: `${name}@${version}` }, features === undefined ? {} : { features }),
    versionId: id,
    data: held.data,
  };
}

function builtIn(
  name: string,
  version: string | undefined,
  { features, validation }: Chosen,
): RunDataset | { readonly issues: SpecIssue[] } {
  if (version !== undefined) return { issues: [{ path: 'dataset', message: `${name} is a built-in dataset, which has no versions` }] };
  const found = builtInRunData({ dataset: name, features, validation });
  if (!found.ok) return { issues: [...found.issues] };
  return { name, pinned: Object.assign({ dataset: name }, features && { features }), versionId: null, data: found.data };
}
