/**
 * The whole system for a test: PostgreSQL, Redis, one api, parameter servers and workers, each a process of its own on free ports and in
 * a folder of its own, and a client with a team's key.
 *
 *     PostgreSQL <── api ──> Redis <── ps × S, workers × W          all ended by pid, also when a start fails
 *
 * The databases can be stopped and hung, the api can be ended and started again on its address, and workers and servers come and go:
 * faults are injected from outside, by signals, as a machine would.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createClient, type PacelineClient } from '@paceline/client';
import {
  endProcess,
  findFreePort,
  guardDirectory,
  guardProcess,
  isAlive,
  startRedis,
  type RunningRedis,
  type RunningService,
} from '@paceline/runtime';
import { startMigratedPostgres } from './postgres.js';
import { startProcess, type TestProcess } from './processes.js';
import { patient } from './patience.js';

export interface StackOptions {
  readonly servers?: number;
  readonly workers?: number;
  readonly transport?: 'auto' | 'unix' | 'tcp';
  /** More of the api's environment than it needs. */
  readonly apiEnv?: Readonly<Record<string, string>>;
}

const PERIOD_MS = 100;

export class Stack {
  readonly servers: TestProcess[] = [];
  readonly workers: TestProcess[] = [];
  readonly folder = mkdtempSync(path.join(tmpdir(), 'paceline-stack-'));
  /** With the bootstrap key. */
  admin!: PacelineClient;
  /** With the key of a team. */
  client!: PacelineClient;
  key!: string;
  api!: TestProcess;
  postgres!: RunningService;
  redis!: RunningRedis;
  private readonly processes: TestProcess[] = [];
  private readonly services: RunningService[] = [];
  private readonly secret = { PACELINE_TOKEN_SECRET: randomBytes(32).toString('hex') };
  private readonly bootstrapKey = `pcl_${randomBytes(6).toString('hex')}_${randomBytes(24).toString('base64url')}`;
  private readonly keepFolder = guardDirectory(this.folder);
  private port = 0;

  private constructor(
    private readonly transport: 'auto' | 'unix' | 'tcp',
    private readonly apiEnv: Readonly<Record<string, string>>,
  ) {
    chmodSync(this.folder, 0o711); // PostgreSQL runs as another user when root starts it
    for (const made of ['data', 's']) mkdirSync(path.join(this.folder, made));
  }

  static async start({ servers = 1, workers = 1, transport = 'auto', apiEnv = {} }: StackOptions = {}): Promise<Stack> {
    const stack = new Stack(transport, apiEnv);
    try {
      await stack.begin(servers, workers);
      return stack;
    } catch (error) {
      await stack.stop();
      throw error;
    }
  }

  /** Folder of the data store of the api and the workers. */
  get dataStore(): string {
    return path.join(this.folder, 'datasets');
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  private async begin(servers: number, workers: number): Promise<void> {
    const dataDir = (name: string): string => path.join(this.folder, name);
    this.postgres = this.keep(await startMigratedPostgres({ dataDir: dataDir('postgres'), temporary: true }));
    this.redis = this.keep(await startRedis({ dataDir: dataDir('redis'), temporary: true }));
    this.port = await findFreePort();
    // All are waited for, so that nothing is still starting while a failure is cleaned up.
    const members = [
      ...Array.from({ length: servers }, () => this.addServer()),
      ...Array.from({ length: workers }, () => this.addWorker()),
    ];
    const results = await Promise.allSettled([this.startApi(), ...members]);
    for (const result of results) if (result.status === 'rejected') throw result.reason as Error;
    this.admin = createClient({ url: this.url, apiKey: this.bootstrapKey });
    const team = await this.admin.createTeam('system');
    this.key = (await this.admin.createApiKey(team.id, 'test')).secret;
    this.client = createClient({ url: this.url, apiKey: this.key });
  }

  /** Also after it was ended: it comes back on the same address. */
  async startApi(): Promise<TestProcess> {
    const env = {
      ...this.apiEnv,
      ...this.secret,
      DATABASE_URL: this.postgres.url,
      REDIS_URL: this.redis.urlOf('api'),
      PACELINE_PORT: String(this.port),
      PACELINE_BOOTSTRAP_KEY: this.bootstrapKey,
      PACELINE_DATA_DIR: path.join(this.folder, 'data'),
      PACELINE_DATA_STORE: this.dataStore,
    };
    return (this.api = await this.launch('api', env));
  }

  /** @param more of its environment, beside what it needs */
  async addServer(more: Readonly<Record<string, string>> = {}): Promise<TestProcess> {
    const env = {
      ...more,
      ...this.secret,
      REDIS_URL: this.redis.urlOf('ps'),
      PACELINE_DATA_DIR: path.join(this.folder, 'data'),
      PACELINE_SOCKET_DIR: path.join(this.folder, 's'),
      PACELINE_TRANSPORT: this.transport,
    };
    const server = await this.launch('ps', env);
    this.servers.push(server);
    return server;
  }

  /** @param env of its environment, beside what it needs */
  async addWorker(env: Readonly<Record<string, string>> = {}): Promise<TestProcess> {
    const needed = {
      REDIS_URL: this.redis.urlOf('worker'),
      PACELINE_TRANSPORT: this.transport,
      PACELINE_DATA_DIR: path.join(this.folder, 'data'),
      PACELINE_SOCKET_DIR: path.join(this.folder, 's'),
    };
    const worker = await this.launch('worker', Object.assign({ PACELINE_DATA_STORE: this.dataStore }, env, needed));
    this.workers.push(worker);
    return worker;
  }

  /** Ends a process and takes it off the fleet. */
  async end(member: TestProcess, signal: NodeJS.Signals): Promise<void> {
    await member.kill(signal);
    for (const list of [this.servers, this.workers]) if (list.includes(member)) list.splice(list.indexOf(member), 1);
  }

  /** Starts or politely ends workers until there are `count`, and waits until the api counts so many. */
  async haveWorkers(count: number, deadlineMs = 30_000): Promise<void> {
    while (this.workers.length > count) await this.end(this.workers.at(-1)!, 'SIGTERM');
    await Promise.all(Array.from({ length: count - this.workers.length }, () => this.addWorker()));
    const ids = this.workers.map(({ ready }) => ready.id);
    await this.until(`${count} idle workers in the api`, deadlineMs, async () => {
      const seen = (await this.client.workers()).filter(({ status }) => status === 'IDLE' || status === 'BUSY');
      const isRight = seen.length === count && seen.every(({ id, status }) => ids.includes(id) && status === 'IDLE');
      return isRight || { seen: seen.map(({ id, status }) => `${id} ${status}`) };
    });
  }

  /** Ends PostgreSQL as an operator would; its data stay. */
  async stopPostgres(): Promise<void> {
    await endProcess(this.postgres.pid, { signal: 'SIGINT', killSignal: 'SIGQUIT' });
    await this.postgres.ended;
  }

  /** On the same port and data. */
  async startPostgres(): Promise<void> {
    const { port } = this.postgres;
    this.postgres = this.keep(await startMigratedPostgres({ dataDir: path.join(this.folder, 'postgres'), port, temporary: true }));
  }

  /** Redis takes connections and never answers, which is worse than a Redis that is gone. */
  hangRedis(): void {
    process.kill(this.redis.pid, 'SIGSTOP');
  }

  resumeRedis(): void {
    process.kill(this.redis.pid, 'SIGCONT');
  }

  /**
   * Waits for a condition. What a failing condition returns beside `undefined`, `false` and `true` is shown when the wait ends in vain,
   * as are failed calls: the api may be away meanwhile.
   * @throws Error naming what was waited for
   */
  async until(what: string, deadlineMs: number, condition: () => Promise<unknown>): Promise<void> {
    const deadline = Date.now() + patient(deadlineMs);
    let last: unknown;
    for (;;) {
      const from = performance.now();
      try {
        last = await condition();
        if (last === true) return;
      } catch (error) {
        last = error;
      }
      if (Date.now() > deadline) {
        const seen = last instanceof Error ? String(last) : JSON.stringify(last);
        throw new Error(`waited ${deadlineMs} ms for ${what}; last seen: ${seen?.slice(0, 1500)}`);
      }
      // Each poll takes processor time from the thing that is waited for, so a busy machine polls less often.
      const pauseMs = Math.min(1_000, Math.max(PERIOD_MS, 4 * (performance.now() - from)));
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  /** Workers, then servers, then the api, then what they all use. */
  async stop(): Promise<void> {
    if (this.redis && isAlive(this.redis.pid)) this.resumeRedis();
    await Promise.all([this.client, this.admin].map((client) => client?.close()));
    for (const role of ['worker', 'ps', 'api'])
      await Promise.all(this.processes.filter(({ app }) => app === role).map((member) => member.kill('SIGKILL')));
    for (const service of this.services.reverse()) await service.stop();
    this.keepLogs();
    rmSync(this.folder, { recursive: true, force: true });
    this.keepFolder();
  }

  /** For the search after a failure: `PACELINE_TEST_LOGS=FOLDER npm test -- cluster`. */
  private keepLogs(): void {
    const target = process.env['PACELINE_TEST_LOGS'];
    if (!target) return;
    mkdirSync(target, { recursive: true });
    for (const { logFile } of this.processes)
      if (existsSync(logFile)) copyFileSync(logFile, path.join(target, `${path.basename(this.folder)}-${path.basename(logFile)}`));
  }

  private async launch(app: TestProcess['app'], env: Readonly<Record<string, string>>): Promise<TestProcess> {
    const member = await startProcess(app, env, this.folder);
    this.processes.push(member);
    // A process that a test has stopped cannot notice that its parent is gone.
    member.child.once('exit', guardProcess(member.child.pid!));
    return member;
  }

  private keep<S extends RunningService>(service: S): S {
    this.services.push(service);
    return service;
  }
}
