/** The typed client of the api: one method for each query, mutation and subscription of docs/reference/schema.graphql. */
import type { RunSpecInput } from '@paceline/spec';
import { ApiConnection, type ConnectionOptions } from './api-connection.js';
import { PacelineApiError } from './api-error.js';
import { DatasetsClient } from './datasets.js';
import { follow, type FollowOptions as FollowedOptions, type SubscriptionOptions } from './follow.js';
import * as documents from './generated/operations.js';
import type { TypedDocument } from './graphql.js';
import { forTransfer, getJson, sendBytes } from './http.js';
import { ModelsClient } from './models.js';
import { sleep } from './sleep.js';
import type { SocketState } from './socket.js';
import type { ModelLike } from './training/tf-shapes.js';
import type { StrategyObject, TrainingSource, Training } from './training/train.js';
import type { TrainOptions } from './training/train-options.js';
import type {
  ApiKey,
  ClusterSpec,
  LimitedTeam,
  MetricSeries,
  ModelAlias,
  Page,
  RateLimit,
  Run,
  RunCheckpoint,
  RunEvent,
  RunMetric,
  RunPredictions,
  RunStatus,
  RunSummary,
  Server,
  Team,
  TeamLimits,
  Viewer,
  Worker,
} from './types.js';

export type ClientOptions = Pick<ConnectionOptions, 'url' | 'apiKey' | 'timeoutMs' | 'retry'>;

export interface FollowOptions extends Partial<SubscriptionOptions> {
  /** Only what comes after this number; by default everything. */
  readonly afterSeq?: number;
}

export interface KeyLimits {
  /** When the key ends by itself. */
  readonly expiresAt?: Date | undefined;
  /** It may look at everything of its team and change nothing. */
  readonly readOnly?: boolean | undefined;
}

export interface MetricsQuery {
  readonly names: readonly string[];
  readonly fromRound?: number;
  readonly toRound?: number;
  readonly maxPoints?: number;
}

/** In the JSON format of trace viewers; `ts` and `dur` are µs. */
export interface RunTrace {
  readonly traceEvents: readonly {
    readonly name: string;
    readonly ph: 'X' | 'M';
    readonly ts: number;
    readonly dur?: number;
    readonly pid: number;
    readonly tid: number;
    readonly args: Readonly<Record<string, unknown>>;
  }[];
  readonly otherData: {
    readonly runId: string;
    readonly fromRound: number;
    readonly toRound: number;
    readonly processes: number;
    /** Processes that have recorded too, beyond the bytes that a trace may have. */
    readonly leftOut: number;
    readonly isWhole: boolean;
  };
}

const DEFAULT_PREDICTIONS_MS = 300_000;
const PREDICTIONS_EVERY_MS = 1_000;
const DEFAULT_RECONNECT_FOR_MS = 60_000;
/** A subscription that was not refused for so long is back, also without news. */
const SETTLED_AFTER_MS = 1_500;

/** @throws PacelineApiError INVALID_URL */
export function createClient(options: ClientOptions): PacelineClient {
  const address = URL.canParse(options.url) ? new URL(options.url) : undefined;
  if (!address || !/^https?:$/.test(address.protocol)) {
    throw new PacelineApiError(
      'INVALID_URL',
      `${JSON.stringify(options.url)} is no address of an api; it looks like http://127.0.0.1:4100.`,
    );
  }
  if (address.pathname !== '/' || address.search !== '' || address.hash !== '') {
    throw new PacelineApiError(
      'INVALID_URL',
      `${JSON.stringify(options.url)} has a path, and the api answers at the root of its address: give ${address.origin}.`,
    );
  }
  return new PacelineClient(options);
}

/** All methods throw PacelineApiError and nothing else. */
export class PacelineClient {
  readonly #api: ApiConnection;
  #datasets: DatasetsClient | undefined;
  #models: ModelsClient | undefined;
  #isSocketOpen = false;

  constructor(options: ClientOptions) {
    const onSocket = (state: SocketState): void => void (this.#isSocketOpen = state === 'open');
    this.#api = new ApiConnection(Object.assign({}, options, { onSocket }));
  }

  get url(): string {
    return this.#api.http.url;
  }

  /** Datasets of the release and of the team; imports of data that lies here. */
  get datasets(): DatasetsClient {
    return (this.#datasets ??= new DatasetsClient(this.#api));
  }

  /** Weights of other programs, for runs that begin with them. */
  get models(): ModelsClient {
    return (this.#models ??= new ModelsClient(this.#api.http));
  }

  /* ---------- queries ---------- */

  async viewer(): Promise<Viewer> {
    return (await this.#api.request(documents.viewer, {})).viewer;
  }
  /** How many requests this key has left at the api, and what an operation may cost there. To ask is a request too. */
  async rateLimit(): Promise<RateLimit> {
    return (await this.#api.request(documents.rateLimit, {})).rateLimit;
  }
  /** The type of any object of the team, by its id; null when there is none. */
  async node(id: string): Promise<{ readonly __typename: string; readonly id: string } | null> {
    return (await this.#api.request(documents.node, { id })).node;
  }
  async team(id: string): Promise<Team | null> {
    return (await this.#api.request(documents.team, { id })).team;
  }
  async clusterSpecs(): Promise<readonly ClusterSpec[]> {
    return (await this.#api.request(documents.clusterSpecs, {})).clusterSpecs;
  }
  /** Names of the team for trained models; with `name`, that one or none. */
  async modelAliases(name?: string): Promise<readonly ModelAlias[]> {
    return (await this.#api.request(documents.modelAliases, { name })).modelAliases;
  }
  async run(id: string): Promise<Run | null> {
    return (await this.#api.request(documents.run, { id })).run;
  }
  /** What lists and progress bars need of a run. Not repeated when the api is away: who shows a progress asks again anyway, and says that it waits. */
  async runProgress(id: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<RunSummary | null> {
    return (await this.#api.request(documents.runProgress, { id }, { once: true, signal })).run;
  }
  /** Newest first. */
  async runs(
    query: { readonly first?: number; readonly after?: string; readonly status?: readonly RunStatus[]; readonly name?: string } = {},
  ): Promise<Page<RunSummary>> {
    const { runs } = await this.#api.request(documents.runs, query);
    return { ...pageOf(runs), totalCount: runs.totalCount };
  }
  /** What a person may mean by an id, `@last`, a name, or the first or last characters of an id: at most 10, newest first. */
  async runsMeant(reference: string): Promise<readonly RunSummary[]> {
    return (await this.#api.request(documents.runsMeant, { reference })).runsMeant;
  }
  /** Stored events, oldest first; with `last`, the newest of them. */
  async events(
    id: string,
    { last, ...query }: { readonly first?: number; readonly after?: string; readonly last?: number } = {},
  ): Promise<Omit<Page<RunEvent>, 'totalCount'>> {
    const run =
      last === undefined ? this.#ofRun(documents.eventsOfRun, { id, ...query }) : this.#ofRun(documents.lastEventsOfRun, { id, last });
    return pageOf((await run).events);
  }
  /** Downsampled by the server. */
  async metrics(id: string, query: MetricsQuery): Promise<readonly MetricSeries[]> {
    return (await this.#ofRun(documents.metricsOfRun, { id, ...query })).metrics;
  }
  /** Newest first; those that were removed again are left out. */
  async checkpoints(id: string): Promise<readonly RunCheckpoint[]> {
    return (await this.#ofRun(documents.checkpointsOfRun, { id })).checkpoints;
  }
  /**
   * Predictions of the result for the evaluation split: confusions and wrong examples, or predicted values beside true ones. Computed when somebody
   * asks first, which is waited for as long as `waitMs` says. Throws CONFLICT before the run has SUCCEEDED, PREDICTIONS_UNAVAILABLE with the
   * reason when they cannot be made, TIMEOUT when they are not there in time.
   */
  async predictions(id: string, { waitMs = DEFAULT_PREDICTIONS_MS }: { readonly waitMs?: number } = {}): Promise<RunPredictions> {
    const untilMs = Date.now() + waitMs;
    for (;;) {
      const run = await this.#ofRun(documents.predictionsOfRun, { id });
      if (!run.predictions) throw new PacelineApiError('CONFLICT', `The run is ${run.status}, so it has no result yet.`);
      const { state, reason, ...predictions } = run.predictions;
      if (state === 'READY') return predictions as RunPredictions;
      if (state === 'UNAVAILABLE') throw new PacelineApiError('PREDICTIONS_UNAVAILABLE', reason ?? 'The predictions cannot be made.');
      if (Date.now() >= untilMs)
        throw new PacelineApiError('TIMEOUT', `The predictions were not there after ${waitMs} ms; they are still being computed.`);
      await sleep(PREDICTIONS_EVERY_MS);
    }
  }
  async workers(): Promise<readonly Worker[]> {
    return (await this.#api.request(documents.workers, {})).workers;
  }
  async servers(): Promise<readonly Server[]> {
    return (await this.#api.request(documents.servers, {})).servers;
  }

  /* ---------- mutations ---------- */

  /** Needs the bootstrap key. */
  async createTeam(name: string): Promise<Team> {
    return (await this.#api.make(documents.createTeam, { name })).team;
  }
  /** Needs the bootstrap key. Limits that are left out stay; null takes the limit of all teams. */
  async setTeamLimits(teamId: string, limits: Partial<TeamLimits>): Promise<LimitedTeam> {
    return (await this.#api.mutate(documents.setTeamLimits, { teamId, limits })).team;
  }
  /** The secret is returned here once. @throws PacelineApiError CONFLICT, which names the key, when it was made and the answer was lost */
  async createApiKey(teamId: string, name: string, limits: KeyLimits = {}): Promise<{ readonly apiKey: ApiKey; readonly secret: string }> {
    const variables = { teamId, name, expiresAt: limits.expiresAt?.toISOString(), readOnly: limits.readOnly };
    const { apiKey, secret } = await this.#api.make(documents.createApiKey, variables);
    return { apiKey, secret };
  }
  async revokeApiKey(id: string): Promise<ApiKey> {
    return (await this.#api.mutate(documents.revokeApiKey, { id })).apiKey;
  }
  async createClusterSpec(input: {
    readonly name: string;
    readonly servers?: readonly string[];
    readonly workers?: readonly string[];
  }): Promise<ClusterSpec> {
    return (await this.#api.make(documents.createClusterSpec, { input })).clusterSpec;
  }
  /**
   * With the same idempotencyKey and spec, the run that was created first is returned. Without a key one is made up, so that a request
   * whose answer was lost can be sent again: up to `attempts` times, all in all, while the api cannot be reached or asks to wait.
   */
  async createRun(
    spec: RunSpecInput,
    options: {
      readonly clusterSpecId?: string | undefined;
      readonly idempotencyKey?: string | undefined;
      /** How often it is sent at most; 1 sends it once. */
      readonly attempts?: number;
      /** Begin with a checkpoint of another run: its newest, or that of the round. */
      readonly resumeFrom?: { readonly runId: string; readonly round?: number } | undefined;
    } = {},
  ): Promise<Run> {
    const { attempts, ...rest } = options;
    return (await this.#api.make(documents.createRun, { spec: toGraphqlSpec(spec), ...rest }, attempts)).run;
  }
  /**
   * A run that trains a compiled model of tf.js: optimizer, loss and metrics are those of `compile`, the weights begin as they are in the model. Throws TrainError.
   * @param strategy an object of the library, or the strategy of a run spec
   */
  async train(
    model: ModelLike,
    source: TrainingSource,
    strategy: NonNullable<RunSpecInput['strategy']> | StrategyObject,
    options: TrainOptions = {},
  ): Promise<Training> {
    const { train } = await import('./training/train.js');
    return train(this, model, source, strategy, options);
  }
  async cancelRun(id: string): Promise<Run> {
    return (await this.#api.mutate(documents.cancelRun, { id })).run;
  }
  /** PAUSED within 10 s, with a checkpoint of the last committed round. */
  async pauseRun(id: string): Promise<Run> {
    return (await this.#api.mutate(documents.pauseRun, { id })).run;
  }
  /** Goes on from the last checkpoint; `servers` is another number of parameter servers. */
  async resumeRun(id: string, options: { readonly servers?: number | undefined } = {}): Promise<Run> {
    return (await this.#api.mutate(documents.resumeRun, { id, ...options })).run;
  }
  /** How many workers may hold a seat at the same time, 1 to replicas. */
  async scaleRun(id: string, workers: number): Promise<Run> {
    return (await this.#api.mutate(documents.scaleRun, { id, workers })).run;
  }
  /** Adds rounds or epochs to a PAUSED or SUCCEEDED run. */
  async extendRun(
    id: string,
    more: ({ readonly rounds: number } | { readonly epochs: number }) & { readonly idempotencyKey?: string; readonly attempts?: number },
  ): Promise<Run> {
    const { attempts, ...rest } = more;
    return (await this.#api.make(documents.extendRun, { id, ...rest }, attempts)).run;
  }

  /** Names the model of a run, or of its checkpoint; an alias that is there moves on to it. */
  async setModelAlias(name: string, runId: string, round?: number): Promise<ModelAlias> {
    return (await this.#api.mutate(documents.setModelAlias, { name, runId, round })).alias;
  }
  async removeModelAlias(name: string): Promise<void> {
    await this.#api.mutate(documents.removeModelAlias, { name });
  }

  /* ---------- subscriptions ---------- */

  /** Events after `afterSeq`, stored ones first, then live; ends when the run is over. A broken connection is taken up again. */
  async *runEvents(runId: string, { afterSeq = 0, ...options }: FollowOptions = {}): AsyncGenerator<RunEvent, void, void> {
    let last = afterSeq;
    const open = (signal: AbortSignal) => this.#api.subscribe(documents.runEvents, { runId, afterSeq: last }, signal);
    for await (const { runEvents: event } of follow(open, this.#followed(options))) {
      if (event.seq <= last) continue;
      last = event.seq;
      yield event;
    }
  }
  /** Metric rows after the round `afterRound`; at most 10 a second. */
  async *runMetrics(
    runId: string,
    { afterRound = -1, ...options }: Partial<SubscriptionOptions> & { readonly afterRound?: number } = {},
  ): AsyncGenerator<RunMetric, void, void> {
    let last = afterRound;
    const open = (signal: AbortSignal) => this.#api.subscribe(documents.runMetrics, { runId, afterRound: last }, signal);
    for await (const { runMetrics: metric } of follow(open, this.#followed(options))) {
      if (metric.round <= last) continue;
      last = metric.round;
      yield metric;
    }
  }

  /* ---------- REST ---------- */

  /** `/readyz`: whether the api and what it needs work. Needs no key. */
  async readiness(): Promise<{ readonly ready: boolean; readonly report: unknown }> {
    const { status, body } = await getJson(this.#api.http, '/readyz');
    return { ready: status === 200, report: body };
  }

  /** The trained weights as a safetensors file: `bytes` of `body`. Throws NOT_FOUND when the run has none. */
  async weights(runId: string): Promise<{ readonly body: AsyncIterable<Uint8Array>; readonly bytes: number }> {
    return this.#api.file(`/api/v1/runs/${encodeURIComponent(runId)}/weights`);
  }

  /**
   * The trained model as a zip archive: tfjs, safetensors, npz or keras, each with its card and its preprocessing. Of the result, or of a kept
   * checkpoint. Throws NOT_FOUND when there are no weights, INVALID_INPUT with the layer's path when the form cannot hold the model.
   */
  async exportModel(
    runId: string,
    { format = 'tfjs', round }: { readonly format?: string | undefined; readonly round?: number | undefined } = {},
  ): Promise<{ readonly body: AsyncIterable<Uint8Array> }> {
    const query = new URLSearchParams({ format });
    if (round !== undefined) query.set('round', String(round));
    return this.#api.file(`/api/v1/runs/${encodeURIComponent(runId)}/export?${query.toString()}`);
  }

  /**
   * Where the time of the next rounds of a RUNNING run goes: a trace in the JSON format of Chrome and Perfetto. It takes some seconds. Throws CONFLICT when
   * the run does not train, or is traced already.
   */
  async traceRun(runId: string, { rounds }: { readonly rounds?: number | undefined } = {}): Promise<RunTrace> {
    const body = new TextEncoder().encode(JSON.stringify(rounds === undefined ? {} : { rounds }));
    const path = `/api/v1/runs/${encodeURIComponent(runId)}/trace`;
    return (await sendBytes(forTransfer(this.#api.http), 'POST', path, body, 'application/json')) as unknown as RunTrace;
  }

  /** Closes the WebSocket; running subscriptions end. */
  async close(): Promise<void> {
    await this.#api.close();
  }

  #followed(options: Partial<SubscriptionOptions>): FollowedOptions {
    const isOpen = (): boolean => this.#isSocketOpen;
    return Object.assign({ reconnectForMs: DEFAULT_RECONNECT_FOR_MS, settledAfterMs: SETTLED_AFTER_MS, isOpen }, options);
  }

  /** @throws PacelineApiError NOT_FOUND */
  async #ofRun<T, V extends { readonly id: string }>(document: TypedDocument<{ readonly run: T | null }, V>, variables: V): Promise<T> {
    const { run } = await this.#api.request(document, variables);
    if (run === null) throw new PacelineApiError('NOT_FOUND', `There is no run ${variables.id}.`);
    return run;
  }
}

interface Connection<T> {
  readonly edges: readonly { readonly node: T }[];
  readonly pageInfo: { readonly hasNextPage: boolean; readonly endCursor: string | null };
}

function pageOf<T>({ edges, pageInfo }: Connection<T>): { nodes: readonly T[]; nextCursor: string | null } {
  return { nodes: edges.map((edge) => edge.node), nextCursor: pageInfo.hasNextPage ? pageInfo.endCursor : null };
}

/**
 * GraphQL has no input unions, so a topology travels in a field of its own. A model in another form is refused here: the api would not see it, and
 * would train its default. @throws PacelineApiError INVALID_INPUT
 */
function toGraphqlSpec(spec: RunSpecInput): Record<string, unknown> {
  const { model, ...rest } = spec as Readonly<Record<string, unknown>>;
  if (model === undefined) return rest;
  if (typeof model === 'string') return { ...rest, model };
  const { topology, ...others } = (typeof model === 'object' ? (model ?? {}) : {}) as Readonly<Record<string, unknown>>;
  if (typeof topology === 'object' && topology !== null && Object.keys(others).length === 0) return { ...rest, modelTopology: topology };
  const message =
    'give the name of a model of the zoo, or { topology } with what model.toJSON(null, false) returns, and nothing else in it';
  throw new PacelineApiError('INVALID_INPUT', `model: ${message}`, { issues: [{ path: 'model', message }] });
}
