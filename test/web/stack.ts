/** A whole control plane for the dashboard: PostgreSQL, Redis and the api that serves apps/dashboard/dist, on free ports. */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, chmodSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient, type PacelineClient } from '@paceline/client';
import { findFreePort, guardDirectory, startRedis, type RunningService } from '@paceline/runtime';
import { pace, startMigratedPostgres, startProcess, type Pace, type TestProcess } from '@paceline/testkit';

const DASHBOARD = join(import.meta.dirname, '../../apps/dashboard/dist');

const SHARE = 1 / 6;
const isRunning = ({ child }: TestProcess): boolean => child.exitCode === null && child.signalCode === null;

export interface WebStack {
  readonly url: string;
  readonly redisUrl: string;
  /** What api and servers sign with. */
  readonly tokenSecret: string;
  /** The key of the team `web`. */
  readonly key: string;
  readonly client: PacelineClient;
  readonly api: () => TestProcess;
  startApi(): Promise<void>;
  start(app: 'ps' | 'worker'): Promise<TestProcess>;
  /** Until it is ended, workers have a sixth of a core each: a run lasts while somebody looks at it, and leaves the machine to the browser. */
  slowly(): Pace;
  stop(): Promise<void>;
}

export async function startWebStack(): Promise<WebStack> {
  if (!existsSync(join(DASHBOARD, 'index.html'))) throw new Error('The dashboard is not built. Run: npm run build');
  const folder = mkdtempSync(join(tmpdir(), 'paceline-web-'));
  chmodSync(folder, 0o711); // PostgreSQL runs as another user when root starts it
  const keepFolder = guardDirectory(folder);
  const started: (RunningService | TestProcess)[] = [];
  const stop = async (): Promise<void> => {
    for (const part of started.reverse()) await ('stop' in part ? part.stop() : part.kill('SIGTERM'));
    rmSync(folder, { recursive: true, force: true });
    keepFolder();
  };
  try {
    return await assemble(folder, started, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

async function assemble(folder: string, started: (RunningService | TestProcess)[], stop: () => Promise<void>): Promise<WebStack> {
  const keep = <T extends RunningService | TestProcess>(part: T): T => (started.push(part), part);
  const postgres = keep(await startMigratedPostgres({ dataDir: join(folder, 'postgres'), temporary: true }));
  const redis = keep(await startRedis({ dataDir: join(folder, 'redis'), temporary: true }));
  const dataDir = join(folder, 'data');
  const dataStore = join(folder, 'store');
  const socketDir = join(folder, 'sockets');
  for (const made of [dataDir, dataStore, socketDir]) mkdirSync(made);
  const port = await findFreePort();
  const adminKey = `pcl_${randomBytes(6).toString('hex')}_${randomBytes(24).toString('base64url')}`;
  const tokenSecret = randomBytes(32).toString('hex');
  const secret = { PACELINE_TOKEN_SECRET: tokenSecret };
  const ofApi = {
    ...secret,
    DATABASE_URL: postgres.url,
    REDIS_URL: redis.urlOf('api'),
    PACELINE_PORT: String(port),
    PACELINE_BOOTSTRAP_KEY: adminKey,
    PACELINE_DASHBOARD_DIR: DASHBOARD,
    PACELINE_DATA_DIR: dataDir,
    PACELINE_DATA_STORE: dataStore,
  };
  const ofServer = { ...secret, REDIS_URL: redis.urlOf('ps'), PACELINE_DATA_DIR: dataDir, PACELINE_SOCKET_DIR: socketDir };
  const ofWorker = { REDIS_URL: redis.urlOf('worker'), PACELINE_DATA_STORE: dataStore };
  let api: TestProcess;
  const startApi = async (): Promise<void> => {
    api = keep(await startProcess('api', ofApi, folder));
  };
  await startApi();
  const url = `http://127.0.0.1:${port}`;
  const admin = createClient({ url, apiKey: adminKey });
  const { secret: key } = await admin.createApiKey((await admin.createTeam('web')).id, 'browser');
  return {
    url,
    tokenSecret,
    redisUrl: redis.url,
    key,
    client: createClient({ url, apiKey: key }),
    api: () => api,
    startApi,
    start: async (app) => keep(await startProcess(app, app === 'ps' ? ofServer : ofWorker, folder)),
    slowly: () =>
      pace(() => started.flatMap((part) => ('app' in part && part.app === 'worker' && isRunning(part) ? [part.child.pid!] : [])), SHARE),
    stop,
  };
}
