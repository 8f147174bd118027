/**
 * Everything that a machine of its own needs, as OS processes:
 *
 *     PostgreSQL ──> api ─┐
 *     Redis ──> api, ps × S, workers × W ─> ready
 *
 * PostgreSQL and Redis are embedded unless an address is given. What can start side by side does; what failed to start is reported with the last
 * lines of its log, and everything else is ended again. Whatever dies is started again, the databases too, at the same addresses
 * (`restart`).
 *
 * The end goes the other way: first the servers, which finish the round of their runs and write a last checkpoint while workers, Redis and
 * the api are still there; then the workers, the api, and the databases. When another host has taken the data folder all are killed instead.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  findFreePort,
  guardDirectory,
  startPostgres,
  startRedis,
  superviseChild,
  superviseService,
  UserError,
  type ReadyInfo,
  type RedisRole,
  type RestartPolicy,
  type RunningRedis,
  type RunningService,
  type SupervisedChild,
  type SupervisedService,
  type SupervisorEvent,
} from '@paceline/runtime';
import { engineVariables } from '@paceline/tensorflow-addon';
import { keepsCertificates, variablesOf } from './stack-certificates.js';

export interface LocalStackOptions {
  /** Databases, weights and logs are below it. */
  readonly dataDir: string;
  /** Databases without fsync, removed at the end. */
  readonly temporary: boolean;
  readonly servers: number;
  readonly workers: number;
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  readonly databaseUrl?: string | undefined;
  readonly redisUrl?: string | undefined;
  readonly tokenSecret: string;
  readonly bootstrapKey: string;
  /** TCP between workers and servers is encrypted, with certificates of a CA below `dataDir`. */
  readonly tls?: boolean;
  /** Between each worker and the servers, such as 20mbit,30ms; left out: what PACELINE_LINK says. */
  readonly link?: string | undefined;
  readonly restart?: RestartPolicy;
  /** Another host has taken the data folder: no database may be started on it, and `stop` is `abandon`. */
  readonly isTaken?: () => boolean;
  /** Ends it, also while it is still starting: `startLocalStack` then rejects once nothing is left. */
  readonly signal?: AbortSignal;
  readonly onStep?: (text: string) => void;
  readonly onEvent?: (event: SupervisorEvent) => void;
}

export interface LocalStack {
  /** Origin of the api and the dashboard. */
  readonly url: string;
  readonly logDir: string;
  /** The administrator's key that the api has just made, when none was left. */
  readonly madeAdminKey: string | undefined;
  readonly services: { readonly postgres: string; readonly redis: string };
  readonly children: readonly SupervisedChild[];
  processes(): { name: string; pid: number }[];
  /** TCP addresses of the parameter servers, as a cluster spec names them. */
  serverAddresses(): string[];
  /** Settles when a part cannot be kept running. */
  readonly failed: Promise<string>;
  stop(): Promise<void>;
  /** Kills everything, the databases first: the data folder is another host's, and nothing may be written there. Also while it stops. */
  abandon(): Promise<void>;
}

const READY_DEADLINE_MS = 60_000;
/** The present round and a last checkpoint of every run have this long when the stack ends. */
export const LAST_CHECKPOINT_MS = 20_000;
/** A Unix socket's path has at most 107 bytes; `/ps-xxxxxxxx.sock` needs 17, `/worker-xxxxxxxx-1.sock` 23. */
const LONGEST_SOCKET_DIR = 82;

let isBundled = true;
/** For who changes single files of the processes: `npm run dev`. */
export function runSingleFiles(): void {
  isBundled = false;
}

/** From its bundle, which loads in a third of the time. */
function appMain(app: string): string {
  const [bundled, single] = ['bundle/main.js', 'main.js'].map((file) =>
    fileURLToPath(new URL(`../../../${app}/dist/${file}`, import.meta.url)),
  ) as [string, string];
  return isBundled && existsSync(bundled) ? bundled : single;
}
export const dashboardDir = (): string => fileURLToPath(new URL('../../../dashboard/dist', import.meta.url));

/** In the form that the api gives its own keys. */
export const newApiKey = (): string => `pcl_${randomBytes(6).toString('hex')}_${randomBytes(24).toString('base64url')}`;
export const newTokenSecret = (): string => randomBytes(32).toString('hex');

/** @throws UserError, StartError */
export async function startLocalStack(options: LocalStackOptions): Promise<LocalStack> {
  const starter = new Starter(options);
  const abort = (): void => void starter.stop();
  options.signal?.addEventListener('abort', abort, { once: true });
  try {
    return await starter.start();
  } catch (error) {
    await starter.stop();
    throw error;
  }
}

class Starter {
  readonly #services: SupervisedService<RunningService>[] = [];
  readonly #children: SupervisedChild[] = [];
  readonly #logDir: string;
  readonly #socketDir: string;
  readonly #releaseSocketDir: () => void;
  #port = 0;
  #madeAdminKey: string | undefined;
  #stopping: Promise<void> | undefined;
  #renewing: NodeJS.Timeout | undefined;

  constructor(private readonly options: LocalStackOptions) {
    for (const app of ['api', 'ps', 'worker']) {
      if (!existsSync(appMain(app)))
        throw new UserError('NOT_BUILT', `${appMain(app)} does not exist.`, { hint: 'Run: npm run build', exit: 'configuration' });
    }
    this.#logDir = join(options.dataDir, 'logs');
    mkdirSync(this.#logDir, { recursive: true, mode: 0o700 });
    this.#socketDir = mkdtempSync(join(tmpdir().length < LONGEST_SOCKET_DIR - 20 ? tmpdir() : '/tmp', 'paceline-sock-'));
    this.#releaseSocketDir = guardDirectory(this.#socketDir);
  }

  async start(): Promise<LocalStack> {
    const { options } = this;
    const step = options.onStep ?? (() => undefined);
    // An api that is started again must have the address that everybody knows.
    this.#port = options.port === 0 && options.restart ? await findFreePort(options.host) : options.port;
    if (options.tls) this.#renewing = await keepsCertificates(options.dataDir, step);
    const postgres = this.#postgres(step);
    const redis = this.#redis(step);
    const rest = redis.then(async ({ urlOf }) => {
      const members = [
        ...Array.from({ length: options.servers }, (_, i) => this.#launch(`ps-${i + 1}`, 'ps', this.#serverEnvironment(urlOf('ps')))),
        ...Array.from({ length: options.workers }, (_, i) =>
          this.#launch(`worker-${i + 1}`, 'worker', this.#workerEnvironment(urlOf('worker'), i)),
        ),
      ];
      step(
        `starting ${options.servers} parameter server${options.servers === 1 ? '' : 's'} and ${options.workers} worker${options.workers === 1 ? '' : 's'}`,
      );
      await Promise.all(members.map((member) => member.ready));
    });
    const api = Promise.all([postgres, redis]).then(async ([database, queue]) => {
      step('starting the api and migrating the database');
      const child = this.#launch('api', 'api', this.#apiEnvironment(database.url, queue.urlOf('api')));
      const info = await child.ready;
      if (typeof info['bootstrapKey'] === 'string') this.#madeAdminKey = info['bootstrapKey'];
      return addressOf(info, options);
    });
    // All are waited for, so that a failure of one does not leave another still starting behind the clean-up.
    const [address, members, database, queue] = await Promise.allSettled([api, rest, postgres, redis]);
    for (const part of [database, queue, members, address]) if (part.status === 'rejected') throw part.reason as Error;
    return {
      url: (address as PromiseFulfilledResult<string>).value,
      logDir: this.#logDir,
      madeAdminKey: this.#madeAdminKey,
      services: {
        postgres: (database as PromiseFulfilledResult<Service>).value.text,
        redis: (queue as PromiseFulfilledResult<Service>).value.text,
      },
      children: this.#children,
      processes: () =>
        [...this.#services, ...this.#children].flatMap((part) => {
          const pid = part.pid();
          return pid === undefined ? [] : [{ name: part.name, pid }];
        }),
      serverAddresses: () =>
        this.#children.flatMap((child) => {
          const address = /[^/\s]+:\d+$/.exec(String(child.info()?.['address'] ?? ''))?.[0];
          return child.name.startsWith('ps-') && address ? [address] : [];
        }),
      failed: this.#failure(),
      stop: () => this.stop(),
      abandon: () => this.abandon(),
    };
  }

  stop(): Promise<void> {
    return (this.#stopping ??= this.options.isTaken?.() ? this.#abandon() : this.#stop());
  }

  abandon(): Promise<void> {
    return (this.#stopping = this.#abandon());
  }

  async #abandon(): Promise<void> {
    clearInterval(this.#renewing);
    await Promise.all([...this.#services, ...this.#children].map((part) => part.kill()));
    this.#removeSocketDir();
  }

  async #stop(): Promise<void> {
    clearInterval(this.#renewing);
    for (const role of ['ps', 'worker', 'api'])
      await Promise.all(this.#children.filter((child) => child.name.startsWith(role)).map((child) => child.stop()));
    await Promise.all(this.#services.map((service) => service.stop()));
    this.#removeSocketDir();
  }

  #removeSocketDir(): void {
    rmSync(this.#socketDir, { recursive: true, force: true });
    this.#releaseSocketDir();
  }

  async #postgres(step: (text: string) => void): Promise<Service> {
    const { databaseUrl, dataDir, temporary } = this.options;
    if (databaseUrl) return { url: databaseUrl, text: 'from DATABASE_URL' };
    step('starting PostgreSQL and Redis');
    const start = (port = 0) => startPostgres({ dataDir: join(dataDir, 'postgres'), temporary, port });
    const service = await this.#keep('postgresql', (former) => start(former?.port));
    return { url: service.url, text: `embedded, port ${service.port}` };
  }

  async #redis(step: (text: string) => void): Promise<RedisService> {
    const { redisUrl, dataDir, temporary } = this.options;
    if (redisUrl) return { url: redisUrl, urlOf: () => redisUrl, text: 'from REDIS_URL' };
    const password = randomBytes(24).toString('base64url');
    const start = (port = 0) => startRedis({ dataDir: join(dataDir, 'redis'), temporary, port, password, onProgress: step });
    const service = await this.#keep<RunningRedis>('redis', (former) => start(former?.port));
    return { url: service.url, urlOf: (role) => service.urlOf(role), text: `embedded (${service.source}), port ${service.port}` };
  }

  /** A database that became ready after everything else was stopped is stopped too. */
  async #keep<S extends RunningService>(name: string, start: (former: S | undefined) => Promise<S>): Promise<S> {
    const { restart, onEvent, isTaken, dataDir } = this.options;
    const startOnOwn = (former: S | undefined): Promise<S> => {
      if (isTaken?.()) throw new UserError('ALREADY_RUNNING', `another host has taken ${dataDir}`, { exit: 'temporary' });
      return start(former);
    };
    const supervised = await superviseService({ name, start: startOnOwn, restart, onEvent });
    if (this.#stopping) {
      await (isTaken?.() ? supervised.kill() : supervised.stop());
      throw stopped();
    }
    this.#services.push(supervised);
    return supervised.service;
  }

  #launch(name: string, app: string, env: NodeJS.ProcessEnv): SupervisedChild {
    if (this.#stopping) throw stopped();
    const { restart, onEvent } = this.options;
    const child = superviseChild({
      name,
      command: process.execPath,
      args: [...inspectorOf(name), appMain(app)],
      env,
      logFile: join(this.#logDir, `${name}.log`),
      readyDeadlineMs: READY_DEADLINE_MS,
      ...(app === 'ps' ? { stopDeadlineMs: LAST_CHECKPOINT_MS + 2_000 } : {}),
      ...(restart ? { restart } : {}),
      ...(onEvent ? { onEvent } : {}),
    });
    this.#children.push(child);
    return child;
  }

  #failure(): Promise<string> {
    const ofServices = this.#services.map((service) =>
      service.failed.then((event) => `${event.name}: ${event.message}; its log is ${service.service.logFile}`),
    );
    const ofChildren = this.#children.map((child) =>
      child.failed.then((event) => `${event.name}: ${event.message}; its log is ${child.logFile}`),
    );
    return new Promise((resolve) => {
      // What ends because it was told to is no failure.
      for (const reason of [...ofServices, ...ofChildren]) void reason.then((text) => this.#stopping ?? resolve(text));
    });
  }

  #apiEnvironment(databaseUrl: string, redisUrl: string): NodeJS.ProcessEnv {
    const { host, tokenSecret, bootstrapKey, dataDir } = this.options;
    return {
      ...inherited(this.options),
      ...passed(API_LIMITS),
      DATABASE_URL: databaseUrl,
      REDIS_URL: redisUrl,
      PACELINE_HOST: host,
      PACELINE_PORT: String(this.#port),
      PACELINE_TOKEN_SECRET: tokenSecret,
      PACELINE_BOOTSTRAP_KEY: bootstrapKey,
      PACELINE_DATA_DIR: join(dataDir, 'data'),
      PACELINE_DATA_STORE: dataStoreOf(this.options),
      ...(existsSync(join(dashboardDir(), 'index.html')) ? { PACELINE_DASHBOARD_DIR: dashboardDir() } : {}),
    };
  }

  #serverEnvironment(redisUrl: string): NodeJS.ProcessEnv {
    const { tokenSecret, dataDir } = this.options;
    const transport = process.env['PACELINE_TRANSPORT'] || 'auto';
    return {
      ...inherited(this.options),
      REDIS_URL: redisUrl,
      PACELINE_TOKEN_SECRET: tokenSecret,
      PACELINE_DATA_DIR: join(dataDir, 'data'),
      PACELINE_SOCKET_DIR: this.#socketDir,
      PACELINE_STOP_MS: String(LAST_CHECKPOINT_MS),
      PACELINE_TRANSPORT: transport,
      ...this.#tlsEnvironment('server'),
    };
  }

  #workerEnvironment(redisUrl: string, index: number): NodeJS.ProcessEnv {
    const { dataDir } = this.options;
    return {
      ...inherited(this.options),
      ...passed(WORKER_LIMITS),
      // It lies at the worker, in both directions; at the server as well each byte would wait twice.
      ...(this.options.link === undefined ? {} : { PACELINE_LINK: this.options.link }),
      ...engineVariables(index),
      REDIS_URL: redisUrl,
      PACELINE_DATA_STORE: dataStoreOf(this.options),
      PACELINE_TRANSPORT: process.env['PACELINE_TRANSPORT'] || 'auto',
      // For runs whose workers hold the parameters.
      PACELINE_DATA_DIR: join(dataDir, 'data'),
      PACELINE_SOCKET_DIR: this.#socketDir,
      ...this.#tlsEnvironment('worker'),
    };
  }

  #tlsEnvironment(role: 'server' | 'worker'): NodeJS.ProcessEnv {
    const { tls, dataDir } = this.options;
    return tls ? variablesOf(dataDir, role) : {};
  }
}

/** For debuggers: from the port that PACELINE_INSPECT names, the api has the first one, ps-1 the eleventh on, worker-1 the twenty-first on. */
function inspectorOf(name: string): string[] {
  const first = Number(process.env['PACELINE_INSPECT'] || Number.NaN);
  const [role, index = '0'] = name.split('-');
  const port = first + { api: 0, ps: 10, worker: 20 }[role as 'api'] + Number(index);
  return Number.isSafeInteger(port) ? [`--inspect=127.0.0.1:${port}`] : [];
}

/** Datasets of teams lie beside the weights, unless another place is named. */
const dataStoreOf = ({ dataDir }: LocalStackOptions): string => process.env['PACELINE_DATA_STORE'] || join(dataDir, 'datasets');

const stopped = (): UserError => new UserError('STOPPED', 'The local stack was stopped while it was starting.', { exit: 'interrupted' });

interface Service {
  readonly url: string;
  /** For people; holds no password. */
  readonly text: string;
}

interface RedisService extends Service {
  /** Each process has a user of its own; with REDIS_URL all have the one that it names. */
  urlOf(role: RedisRole): string;
}

/** What a process gets from the user's environment. Addresses and secrets of other stacks do not pass, and a stack that is gone at the end leaves no checkpoints elsewhere. */
export function inherited({ temporary }: Pick<LocalStackOptions, 'temporary'>): NodeJS.ProcessEnv {
  const names = ['PATH', 'HOME', 'TMPDIR', 'LANG', 'LC_ALL', 'TZ', 'NODE_OPTIONS', 'NODE_EXTRA_CA_CERTS', 'PACELINE_LOG_LEVEL'];
  if (!temporary) names.push('PACELINE_CHECKPOINT_STORE');
  const hasStore = process.env['PACELINE_DATA_STORE'] || (!temporary && process.env['PACELINE_CHECKPOINT_STORE']);
  if (hasStore) names.push(...Object.keys(process.env).filter((name) => name.startsWith('AWS_')));
  return { NODE_ENV: 'production', ...passed(names) };
}

const API_LIMITS = [
  'PACELINE_TEAM_ACTIVE_RUNS',
  'PACELINE_TEAM_SERVER_PLACES',
  'PACELINE_TEAM_WORKERS',
  'PACELINE_TEAM_PARAMETERS',
  'PACELINE_TEAM_DATASET_BYTES',
  'PACELINE_TEAM_SHARE_PERCENT',
  'PACELINE_REQUESTS_PER_MINUTE',
  'PACELINE_SOCKETS_PER_KEY',
  'PACELINE_SOCKETS_PER_TEAM',
  'PACELINE_TRUSTED_PROXIES',
  'PACELINE_IMPORT_HOSTS',
  'PACELINE_METRICS_TOKEN',
];
const WORKER_LIMITS = [
  'PACELINE_LEAK_TENSORS',
  'PACELINE_LEAK_TENSORS_MB',
  'PACELINE_LEAK_RSS_MB',
  'PACELINE_DATA_CACHE',
  'PACELINE_DATA_CACHE_BYTES',
  'PACELINE_DATA_MEMORY_BYTES',
  'PACELINE_LINK',
];

function passed(names: readonly string[]): NodeJS.ProcessEnv {
  return Object.fromEntries(names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])));
}

function addressOf(info: ReadyInfo, { host }: LocalStackOptions): string {
  // 0.0.0.0 is every address of the machine; people open the one that works everywhere.
  if (typeof info['url'] === 'string') return new URL(info['url']).origin.replace(/\/\/(0\.0\.0\.0|\[::\])(?=:|$)/, '//127.0.0.1');
  const { port } = info;
  if (typeof port !== 'number') throw new Error(`the api's ready line names no port: ${JSON.stringify(info)}`);
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
