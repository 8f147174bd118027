/** The typed client of the api: one method for each query, mutation and subscription of docs/reference/schema.graphql. */
import type { RunSpecInput } from '@paceline/spec';
import { PacelineApiError } from './api-error.js';
import { DatasetsClient } from './datasets.js';
import { ModelsClient } from './models.js';
import { DOCUMENTS } from './documents.js';
import { getFile, getJson, postGraphql, type HttpOptions, type RetryOptions } from './http.js';
import type {
  ApiKey,
  ClusterSpec,
  ModelAlias,
  LimitedTeam,
  MetricSeries,
  Page,
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
} from './schema-types.js';
import type { SubscriptionOptions, SubscriptionRequest, SubscriptionSocket } from './subscription.js';

export interface ClientOptions {
  /** Origin of the api, e.g. `http://127.0.0.1:4100`. */
  readonly url: string;
  readonly apiKey?: string | undefined;
  /** For one request. */
  readonly timeoutMs?: number;
  /** Repeats what may be repeated while the api is away, for example because it is started again. By default nothing is. */
  readonly retry?: RetryOptions;
}

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

const DEFAULT_TIMEOUT_MS = 15_000;
const DEFAULT_PREDICTIONS_MS = 300_000;
const PREDICTIONS_EVERY_MS = 1_000;
const DEFAULT_RECONNECT_FOR_MS = 60_000;

/** @throws PacelineApiError INVALID_URL */
export function createClient(options: ClientOptions): PacelineClient {
  if (!URL.canParse(options.url) || !/^https?:$/.test(new URL(options.url).protocol)) {
    throw new PacelineApiError(
      'INVALID_URL',
      `${JSON.stringify(options.url)} is no address of an api; it looks like http://127.0.0.1:4100.`,
    );
  }
  return new PacelineClient(options);
}

/** All methods throw PacelineApiError and nothing else. */
export class PacelineClient {
  readonly #http: HttpOptions;
  #socket: SubscriptionSocket | undefined;
  #datasets: DatasetsClient | undefined;
  #models: ModelsClient | undefined;

  constructor({ url, apiKey, timeoutMs = DEFAULT_TIMEOUT_MS, retry = { forMs: 0 } }: ClientOptions) {
    this.#http = { url, apiKey, timeoutMs, retry };
  }

  get url(): string {
    return this.#http.url;
  }

  /** Of the release and of the team; imports of data that lies here. */
  get datasets(): DatasetsClient {
    return (this.#datasets ??= new DatasetsClient(this.#http, {
      query: (name, variables, field) => this.#query(name, variables, field),
      make: (name, variables) => this.#make(name, variables),
      mutate: (name, variables) => this.#mutate(name, variables),
    }));
  }

  /** Weights of other programs, for runs that begin with them. */
  get models(): ModelsClient {
    return (this.#models ??= new ModelsClient(this.#http));
  }

  /* ---------- queries ---------- */

  async viewer(): Promise<Viewer> {
    return this.#query('viewer');
  }
  /** The type of any object of the team, by its id; null when there is none. */
  async node(id: string): Promise<{ __typename: string; id: string } | null> {
    return this.#query('node', { id });
  }
  async team(id: string): Promise<Team | null> {
    return this.#query('team', { id });
  }
  async clusterSpecs(): Promise<readonly ClusterSpec[]> {
    return this.#query('clusterSpecs');
  }
  /** Names of the team for trained models; with `name`, that one or none. */
  async modelAliases(name?: string): Promise<readonly ModelAlias[]> {
    return this.#query('modelAliases', { name });
  }
  async run(id: string): Promise<Run | null> {
    return this.#query('run', { id });
  }
  /** What lists and progress bars need of a run. Not repeated when the api is away: who shows a progress asks again anyway, and says that it waits. */
  async runProgress(id: string): Promise<RunSummary | null> {
    const { run } = await postGraphql({ ...this.#http, retry: { forMs: 0 } }, DOCUMENTS.runProgress, { id }, true);
    return run as RunSummary | null;
  }
  /** Newest first. */
  async runs(
    query: { readonly first?: number; readonly after?: string; readonly status?: readonly RunStatus[]; readonly name?: string } = {},
  ): Promise<Page<RunSummary>> {
    const connection = await this.#query<Connection<RunSummary> & { totalCount: number }>('runs', query);
    return { ...pageOf(connection), totalCount: connection.totalCount };
  }
  /** What a person may mean by an id, `@last`, a name, or the first or last characters of an id: at most 10, newest first. */
  async runsMeant(reference: string): Promise<readonly RunSummary[]> {
    return this.#query('runsMeant', { reference });
  }
  /** Stored events, oldest first; with `last`, the newest of them. */
  async events(
    runId: string,
    query: { readonly first?: number; readonly after?: string; readonly last?: number } = {},
  ): Promise<Omit<Page<RunEvent>, 'totalCount'>> {
    const run = await this.#query<{ events: Connection<RunEvent> } | null>(
      query.last === undefined ? 'eventsOfRun' : 'lastEventsOfRun',
      { id: runId, ...query },
      'run',
    );
    return pageOf(found(run, runId).events);
  }
  /** Downsampled by the server. */
  async metrics(runId: string, query: MetricsQuery): Promise<readonly MetricSeries[]> {
    const run = await this.#query<{ metrics: MetricSeries[] } | null>('metricsOfRun', { id: runId, ...query }, 'run');
    return found(run, runId).metrics;
  }
  /** Newest first; those that were removed again are left out. */
  async checkpoints(runId: string): Promise<readonly RunCheckpoint[]> {
    const run = await this.#query<{ checkpoints: RunCheckpoint[] } | null>('checkpointsOfRun', { id: runId }, 'run');
    return found(run, runId).checkpoints;
  }
  /**
   * What the result says of the evaluation split: confusions and wrong examples, or predicted values beside true ones. Computed when somebody
   * asks first, which is waited for as long as `waitMs` says. Throws CONFLICT before the run has SUCCEEDED, PREDICTIONS_UNAVAILABLE with the
   * reason when they cannot be made, TIMEOUT when they are not there in time.
   */
  async predictions(runId: string, { waitMs = DEFAULT_PREDICTIONS_MS }: { readonly waitMs?: number } = {}): Promise<RunPredictions> {
    const untilMs = Date.now() + waitMs;
    for (;;) {
      const run = found(await this.#query<PredictionsOfRun | null>('predictionsOfRun', { id: runId }, 'run'), runId);
      if (!run.predictions) throw new PacelineApiError('CONFLICT', `The run is ${run.status}, so there is no result that could be asked.`);
      const { state, reason, ...predictions } = run.predictions;
      if (state === 'READY') return predictions;
      if (state === 'UNAVAILABLE') throw new PacelineApiError('PREDICTIONS_UNAVAILABLE', reason ?? 'The predictions cannot be made.');
      if (Date.now() >= untilMs)
        throw new PacelineApiError('TIMEOUT', `The predictions were not there after ${waitMs} ms; they are still being computed.`);
      await new Promise((resolve) => setTimeout(resolve, PREDICTIONS_EVERY_MS));
    }
  }
  async workers(): Promise<readonly Worker[]> {
    return this.#query('workers');
  }
  async servers(): Promise<readonly Server[]> {
    return this.#query('servers');
  }

  /** A client that tries each request again for some time needs no second loop around it. */
  get #attempts(): number {
    return this.#http.retry.forMs > 0 ? 1 : DEFAULT_ATTEMPTS;
  }

  /* ---------- mutations ---------- */

  /** Needs the bootstrap key. */
  async createTeam(name: string): Promise<Team> {
    return (await this.#make<{ team: Team }>('createTeam', { name })).team;
  }
  /** Needs the bootstrap key. Limits that are left out stay; null takes the limit of all teams. */
  async setTeamLimits(teamId: string, limits: Partial<TeamLimits>): Promise<LimitedTeam> {
    return (await this.#mutate<{ team: LimitedTeam }>('setTeamLimits', { teamId, limits })).team;
  }
  /** The secret is returned here once. @throws PacelineApiError CONFLICT, which names the key, when it was made and the answer was lost */
  async createApiKey(teamId: string, name: string, limits: KeyLimits = {}): Promise<{ readonly apiKey: ApiKey; readonly secret: string }> {
    const variables = { teamId, name, expiresAt: limits.expiresAt?.toISOString(), readOnly: limits.readOnly };
    const { apiKey, secret } = await this.#make<{ apiKey: ApiKey; secret: string }>('createApiKey', variables);
    return { apiKey, secret };
  }
  async revokeApiKey(id: string): Promise<ApiKey> {
    return (await this.#mutate<{ apiKey: ApiKey }>('revokeApiKey', { id })).apiKey;
  }
  async createClusterSpec(input: {
    readonly name: string;
    readonly servers?: readonly string[];
    readonly workers?: readonly string[];
  }): Promise<ClusterSpec> {
    return (await this.#make<{ clusterSpec: ClusterSpec }>('createClusterSpec', { input })).clusterSpec;
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
    const { attempts = this.#attempts, idempotencyKey = globalThis.crypto.randomUUID(), ...rest } = options;
    const variables = { spec: toGraphqlSpec(spec), idempotencyKey, ...rest };
    return (await withRetries(attempts, () => this.#mutate<{ run: Run }>('createRun', variables))).run;
  }
  async cancelRun(id: string): Promise<Run> {
    return (await this.#mutate<{ run: Run }>('cancelRun', { id })).run;
  }
  /** PAUSED within 10 s, with a checkpoint of the last committed round. */
  async pauseRun(id: string): Promise<Run> {
    return (await this.#mutate<{ run: Run }>('pauseRun', { id })).run;
  }
  /** Goes on from the last checkpoint; `servers` is another number of parameter servers. */
  async resumeRun(id: string, options: { readonly servers?: number | undefined } = {}): Promise<Run> {
    return (await this.#mutate<{ run: Run }>('resumeRun', { id, ...options })).run;
  }
  /** How many workers may hold a seat at the same time, 1 to replicas. */
  async scaleRun(id: string, workers: number): Promise<Run> {
    return (await this.#mutate<{ run: Run }>('scaleRun', { id, workers })).run;
  }
  /** So many rounds or epochs more, for a PAUSED or SUCCEEDED run. */
  async extendRun(
    id: string,
    more: ({ readonly rounds: number } | { readonly epochs: number }) & { readonly idempotencyKey?: string; readonly attempts?: number },
  ): Promise<Run> {
    const { attempts = this.#attempts, idempotencyKey = globalThis.crypto.randomUUID(), ...rest } = more;
    return (await withRetries(attempts, () => this.#mutate<{ run: Run }>('extendRun', { id, idempotencyKey, ...rest }))).run;
  }

  /** Names the model of a run, or of its checkpoint; an alias that is there moves on to it. */
  async setModelAlias(name: string, runId: string, round?: number): Promise<ModelAlias> {
    return (await this.#mutate<{ alias: ModelAlias }>('setModelAlias', { name, runId, round })).alias;
  }
  async removeModelAlias(name: string): Promise<void> {
    await this.#mutate('removeModelAlias', { name });
  }

  /* ---------- subscriptions ---------- */

  /** Events after `afterSeq`, stored ones first, then live; ends when the run is over. A broken connection is taken up again. */
  runEvents(runId: string, { afterSeq = 0, ...options }: FollowOptions = {}): AsyncGenerator<RunEvent, void, void> {
    const resume = (last: number | undefined) => ({ runId, afterSeq: last ?? afterSeq });
    return this.#follow<RunEvent>({ query: DOCUMENTS.runEvents, field: 'runEvents', resume }, (event) => event.seq, withDefaults(options));
  }
  /** Metric rows after the round `afterRound`; at most 10 a second. */
  runMetrics(
    runId: string,
    { afterRound = -1, ...options }: Partial<SubscriptionOptions> & { readonly afterRound?: number } = {},
  ): AsyncGenerator<RunMetric, void, void> {
    const resume = (last: number | undefined) => ({ runId, afterRound: last ?? afterRound });
    return this.#follow<RunMetric>(
      { query: DOCUMENTS.runMetrics, field: 'runMetrics', resume },
      (metric) => metric.round,
      withDefaults(options),
    );
  }

  /* ---------- REST ---------- */

  /** `/readyz`: whether the api and what it needs work. Needs no key. */
  async readiness(): Promise<{ readonly ready: boolean; readonly report: unknown }> {
    const { status, body } = await getJson(this.#http, '/readyz');
    return { ready: status === 200, report: body };
  }

  /** The trained weights as a safetensors file: `bytes` of `body`. Throws NOT_FOUND when the run has none. */
  async weights(runId: string): Promise<{ readonly body: AsyncIterable<Uint8Array>; readonly bytes: number }> {
    return getFile(this.#http, `/api/v1/runs/${encodeURIComponent(runId)}/weights`);
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
    return getFile(this.#http, `/api/v1/runs/${encodeURIComponent(runId)}/export?${query.toString()}`);
  }

  /** Closes the WebSocket; running subscriptions end. */
  async close(): Promise<void> {
    await this.#socket?.dispose();
    this.#socket = undefined;
  }

  /** The libraries for sockets are loaded with the first subscription: a program that only asks and is answered starts in less time. */
  async *#follow<T>(
    request: SubscriptionRequest,
    numberOf: (item: T) => number,
    options: SubscriptionOptions,
  ): AsyncGenerator<T, void, void> {
    const { openSocket, resumable } = await import('./subscription.js');
    const url = new URL('/graphql', this.#http.url);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    this.#socket ??= openSocket(url.href, this.#http.apiKey, this.#http.timeoutMs);
    yield* resumable<T>(this.#socket, request, numberOf, options);
  }

  async #query<T>(name: keyof typeof DOCUMENTS, variables: Readonly<Record<string, unknown>> = {}, field: string = name): Promise<T> {
    const mayRepeat = !DOCUMENTS[name].startsWith('mutation') || variables['idempotencyKey'] !== undefined;
    const data = await postGraphql(this.#http, DOCUMENTS[name], variables, mayRepeat);
    return data[field] as T;
  }

  /** Under a key made up for it, so that it can be sent again when the answer was lost. */
  #make<T>(name: keyof typeof DOCUMENTS, variables: Readonly<Record<string, unknown>>): Promise<T> {
    const keyed = { ...variables, idempotencyKey: globalThis.crypto.randomUUID() };
    return withRetries(this.#attempts, () => this.#mutate<T>(name, keyed));
  }

  /** Members of the result union other than success become errors with their code. */
  async #mutate<T>(name: keyof typeof DOCUMENTS, variables: Readonly<Record<string, unknown>>): Promise<T> {
    const result = await this.#query<{ __typename: string; code?: string; message?: string; issues?: PacelineApiError['issues'] }>(
      name,
      variables,
    );
    if (result.__typename.endsWith('Success')) return result as T;
    throw new PacelineApiError(result.code ?? result.__typename, result.message ?? result.__typename, { issues: result.issues ?? [] });
  }
}

interface PredictionsOfRun {
  readonly status: RunStatus;
  readonly predictions: ({ readonly state: 'COMPUTING' | 'READY' | 'UNAVAILABLE'; readonly reason: string | null } & RunPredictions) | null;
}

interface Connection<T> {
  readonly edges: readonly { readonly node: T }[];
  readonly pageInfo: { readonly hasNextPage: boolean; readonly endCursor: string | null };
}

function pageOf<T>({ edges, pageInfo }: Connection<T>): { nodes: readonly T[]; nextCursor: string | null } {
  return { nodes: edges.map((edge) => edge.node), nextCursor: pageInfo.hasNextPage ? pageInfo.endCursor : null };
}

function found<T>(run: T | null, runId: string): T {
  if (run === null) throw new PacelineApiError('NOT_FOUND', `There is no run ${runId}.`);
  return run;
}

function withDefaults(options: Partial<SubscriptionOptions>): SubscriptionOptions {
  return { reconnectForMs: DEFAULT_RECONNECT_FOR_MS, ...options };
}

const DEFAULT_ATTEMPTS = 3;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;

/** Sends a request that is safe to repeat again, while it may succeed later. @throws PacelineApiError of the last attempt */
async function withRetries<T>(attempts: number, send: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof PacelineApiError) || !error.isTemporary || attempt >= attempts) throw error;
      const delayMs = Math.min(MAX_RETRY_MS, error.retryAfterMs ?? FIRST_RETRY_MS * 2 ** (attempt - 1));
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
  }
}

/** GraphQL has no input unions, so a topology travels in a field of its own. */
function toGraphqlSpec(spec: RunSpecInput): Record<string, unknown> {
  const { model, ...rest } = spec;
  if (model === undefined) return rest;
  return typeof model === 'string' ? { ...rest, model } : { ...rest, modelTopology: model.topology };
}
