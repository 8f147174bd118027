/**
 * Datasets over the api. An import runs where the data lies: the importer (`importDataset` of @paceline/ingest, or any other) hands shards to
 * a sink that uploads them, and the manifest is committed at its end. Shards are named by their hash, so an import that was interrupted is
 * begun again and sends what is missing.
 */
import { sha256 } from '#platform';
import type { DatasetManifest } from '@paceline/spec';
import type { ApiConnection } from './api-connection.js';
import { PacelineApiError } from './api-error.js';
import * as documents from './generated/operations.js';
import { forTransfer, getFile, headOf, sendBytes, sendStream, whileBusy, type HttpOptions } from './http.js';
import type { Dataset, DatasetDetail, DatasetImport, DatasetPreview } from './types.js';

/** Loaded by the call that needs it: its schemas take a third of a second, which no `paceline runs` should pay. */
const loadSpec = () => import('@paceline/spec');

/** Where an importer puts its shards. */
export interface ShardSink {
  has(sha256: string): Promise<boolean>;
  put(sha256: string, bytes: Uint8Array): Promise<void>;
}

export interface CommittedVersion {
  readonly datasetId: string;
  readonly name: string;
  /** SHA-256 of the manifest. */
  readonly version: string;
  readonly rows: number;
  readonly bytes: number;
}

export interface Verification {
  readonly version: string;
  readonly shards: number;
  readonly bytes: number;
  /** Shards that are missing or have other bytes than their hash says. */
  readonly broken: readonly { readonly sha256: string; readonly split: string; readonly why: string }[];
}

/** For an import by the api: an address, or files that were uploaded. */
export interface ServerImport {
  readonly url?: string | undefined;
  readonly uploads?: readonly string[] | undefined;
  readonly options?:
    | {
        readonly format?: string | undefined;
        readonly label?: string | undefined;
        readonly columns?: Readonly<Record<string, string>> | undefined;
        /** train, validation, test. */
        readonly split?: readonly number[] | undefined;
        readonly inOrder?: boolean | undefined;
        readonly seed?: number | undefined;
        readonly missing?: 'refuse' | 'drop' | 'fill' | undefined;
        readonly oneSeries?: boolean | undefined;
        readonly decimal?: '.' | ',' | undefined;
        readonly delimiter?: string | undefined;
      }
    | undefined;
}

const PAGE = 100;

const shardPath = (sha256: string): string => `/api/v1/datasets/shards/${sha256}`;

/** All methods throw PacelineApiError, and `import` what its importer throws. */
export class DatasetsClient {
  readonly #http: HttpOptions;
  readonly #api: ApiConnection;

  constructor(api: ApiConnection) {
    this.#http = api.http;
    this.#api = api;
  }

  /** Datasets of the release, then those of the team, by name. */
  async list(): Promise<readonly Dataset[]> {
    const found: Dataset[] = [];
    for (let after: string | undefined; ;) {
      const { edges, pageInfo } = (await this.#api.request(documents.datasets, { first: PAGE, after })).datasets;
      found.push(...edges.map(({ node }) => node));
      if (!pageInfo.hasNextPage || pageInfo.endCursor === null) return found;
      after = pageInfo.endCursor;
    }
  }

  /** @param reference NAME, or NAME@VERSION @returns null when there is none of this name */
  async show(reference: string, columns: { readonly first?: number; readonly offset?: number } = {}): Promise<DatasetDetail | null> {
    const { parseDatasetReference } = await loadSpec();
    const variables = Object.assign({}, parseDatasetReference(reference), { columns: columns.first ?? PAGE, offset: columns.offset ?? 0 });
    return (await this.#api.request(documents.dataset, variables)).dataset;
  }

  /** A few rows, decoded: texts and lists are cut, images are data URLs. @throws PacelineApiError NOT_FOUND */
  async preview(
    reference: string,
    what: {
      readonly rows?: number;
      readonly from?: number;
      readonly split?: string;
      readonly columns?: readonly string[] | undefined;
    } = {},
  ): Promise<DatasetPreview> {
    const { parseDatasetReference } = await loadSpec();
    const variables = Object.assign({}, parseDatasetReference(reference), what);
    const { dataset } = await this.#api.request(documents.datasetPreview, variables);
    if (!dataset?.version) throw new PacelineApiError('NOT_FOUND', `There is no dataset ${reference} with rows to show.`);
    return dataset.version.preview;
  }

  /** What the api holds of a version: columns, statistics, and the hash of each shard. @throws PacelineApiError NOT_FOUND */
  async manifest(reference: string): Promise<{ readonly manifest: DatasetManifest; readonly version: string }> {
    const { body } = await getFile(forTransfer(this.#http), `/api/v1/datasets/${encodeURIComponent(reference)}/manifest`);
    const parts: Uint8Array[] = [];
    for await (const part of body) parts.push(part);
    const text = await new Blob(parts as Uint8Array<ArrayBuffer>[]).arrayBuffer();
    const manifest = JSON.parse(new TextDecoder().decode(text)) as DatasetManifest;
    return { manifest, version: await sha256(new Uint8Array(text)) };
  }

  /** A shard as a stream of bytes. @throws PacelineApiError NOT_FOUND */
  async shard(sha256: string): Promise<{ readonly body: AsyncIterable<Uint8Array>; readonly bytes: number }> {
    return getFile(forTransfer(this.#http), shardPath(sha256));
  }

  /** Downloads every shard and compares its hash. */
  async verify(reference: string, onProgress?: (bytes: number, ofBytes: number) => void): Promise<Verification> {
    const { manifest, version } = await this.manifest(reference);
    const { SPLITS } = await loadSpec();
    const places = SPLITS.flatMap((split) => (manifest.splits[split]?.shards ?? []).map((shard) => Object.assign({ split }, shard)));
    const all = [...new Map(places.map((place) => [place.sha256, place])).values()];
    const total = all.reduce((sum, { bytes }) => sum + bytes, 0);
    const broken: { sha256: string; split: string; why: string }[] = [];
    let done = 0;
    for (const { sha256, split, bytes } of all) {
      const why = await this.#faultOf(sha256);
      if (why !== undefined) broken.push({ sha256, split, why });
      onProgress?.((done += bytes), total);
    }
    return { version, shards: all.length, bytes: total, broken };
  }

  /** @param reference NAME, or NAME@VERSION for one version; with `force` also when runs that are over were trained on it */
  async remove(
    reference: string,
    { force = false }: { readonly force?: boolean } = {},
  ): Promise<{ readonly name: string; readonly versions: readonly string[] }> {
    const { name, versions } = await this.#api.mutate(documents.removeDataset, { dataset: reference, force });
    return { name, versions };
  }

  /**
   * An import from here: `client.datasets.import('flowers', (sink) => importDataset({ sources: ['flowers.csv'] }, sink, { workFolder }))`.
   * @param source where it came from, in words
   */
  async import(
    name: string,
    convert: (sink: ShardSink) => Promise<{ readonly manifest: DatasetManifest }>,
    { source = '' }: { readonly source?: string } = {},
  ): Promise<CommittedVersion> {
    const { manifest } = await convert(this.sink());
    return this.commit(name, manifest, { source });
  }

  /** Uploads shards that the api does not have. */
  sink(): ShardSink {
    return {
      has: (sha256) => whileBusy(() => headOf(this.#http, shardPath(sha256))),
      put: async (sha256, bytes) => {
        await whileBusy(() => sendBytes(forTransfer(this.#http), 'PUT', shardPath(sha256), bytes, 'application/octet-stream'));
      },
    };
  }

  /** Makes a version; every shard was uploaded before. Equal content is the same version. */
  async commit(name: string, manifest: DatasetManifest, { source = '' }: { readonly source?: string } = {}): Promise<CommittedVersion> {
    const path = `/api/v1/datasets/${encodeURIComponent(name)}/versions?source=${encodeURIComponent(source)}`;
    const body = new TextEncoder().encode(JSON.stringify(manifest));
    const made = await whileBusy(() => sendBytes(forTransfer(this.#http), 'POST', path, body, 'application/json'));
    return made as unknown as CommittedVersion;
  }

  /** A file as it is, for `importByApi`. */
  async upload(
    fileName: string,
    body: AsyncIterable<Uint8Array>,
    bytes: number,
    { signal }: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<{ readonly id: string; readonly bytes: number }> {
    const path = `/api/v1/datasets/uploads?name=${encodeURIComponent(fileName)}`;
    return (await sendStream(forTransfer(this.#http), path, body, bytes, signal)) as unknown as { id: string; bytes: number };
  }

  /** The api reads and converts, in a process of its own; `importState` says how far it is. */
  async importByApi(name: string, what: ServerImport): Promise<DatasetImport> {
    return (await this.#api.make(documents.importDataset, { name, ...what })).import;
  }

  async importState(id: string): Promise<DatasetImport | null> {
    return (await this.#api.request(documents.datasetImport, { id })).datasetImport;
  }

  /** Newest first. */
  async imports(first = 20): Promise<readonly DatasetImport[]> {
    return (await this.#api.request(documents.datasetImports, { first })).datasetImports;
  }

  async #faultOf(expected: string): Promise<string | undefined> {
    try {
      const { body } = await getFile(forTransfer(this.#http), shardPath(expected));
      const found = await sha256(body);
      return found === expected ? undefined : `has the SHA-256 ${found}`;
    } catch (error) {
      if (error instanceof PacelineApiError && error.code === 'NOT_FOUND') return 'is missing';
      throw error;
    }
  }
}
