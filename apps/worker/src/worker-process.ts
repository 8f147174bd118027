/** Wires one worker process: Redis, heartbeats, the seat loop. `main.ts` starts it. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import {
  connectRedis,
  ManualQueue,
  placementJobSchema,
  redisControlPlane,
  startHeartbeats,
  STEP_TASK_QUEUE,
  stepTaskJobSchema,
  WORKER_PLACEMENT_QUEUE,
} from '@paceline/control-plane';
import { Link, processClock, TlsIdentity } from '@paceline/exchange';
import { WorkerQueues } from '@paceline/hosting';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import {
  createLogger,
  followTlsFiles,
  readEnvironment,
  usableMemoryBytes,
  userDirectories,
  VARIABLES,
  type Logger,
} from '@paceline/runtime';
import { prepareForTensorflow } from '@paceline/tensorflow-addon';
import type { Redis } from 'ioredis';
import { watchDataStore } from './data-store-identity.js';
import { reportPredecessor } from './predecessor.js';
import { ShardHost } from './shard-host.js';
import { WorkerSeats } from './worker-seats.js';

const MAX_DEVICES = 16;

export const ENVIRONMENT = {
  REDIS_URL: VARIABLES.REDIS_URL,
  PACELINE_TRANSPORT: VARIABLES.PACELINE_TRANSPORT,
  PACELINE_LINK: VARIABLES.PACELINE_LINK,
  PACELINE_TLS_CA: VARIABLES.PACELINE_TLS_CA,
  PACELINE_TLS_CERT: VARIABLES.PACELINE_TLS_CERT,
  PACELINE_TLS_KEY: VARIABLES.PACELINE_TLS_KEY,
  PACELINE_DATA_STORE: VARIABLES.PACELINE_DATA_STORE,
  PACELINE_DATA_CACHE: VARIABLES.PACELINE_DATA_CACHE,
  PACELINE_DATA_CACHE_BYTES: VARIABLES.PACELINE_DATA_CACHE_BYTES,
  PACELINE_DATA_MEMORY_BYTES: VARIABLES.PACELINE_DATA_MEMORY_BYTES,
  PACELINE_PREDECESSOR: VARIABLES.PACELINE_PREDECESSOR,
  PACELINE_DATA_DIR: VARIABLES.PACELINE_DATA_DIR.optional(),
  PACELINE_CHECKPOINT_STORE: VARIABLES.PACELINE_CHECKPOINT_STORE,
  PACELINE_DATA_HOST: VARIABLES.PACELINE_DATA_HOST,
  PACELINE_DATA_BIND: VARIABLES.PACELINE_DATA_BIND,
  PACELINE_DATA_PORT: VARIABLES.PACELINE_DATA_PORT,
  PACELINE_SOCKET_DIR: VARIABLES.PACELINE_SOCKET_DIR,
  PACELINE_LEAK_TENSORS: VARIABLES.PACELINE_LEAK_TENSORS,
  PACELINE_LEAK_TENSORS_MB: VARIABLES.PACELINE_LEAK_TENSORS_MB,
  PACELINE_LEAK_RSS_MB: VARIABLES.PACELINE_LEAK_RSS_MB,
};

export interface WorkerProcess {
  readonly id: string;
  stop(): Promise<void>;
}

/**
 * @param onOutgrown the process holds memory that only its end gives back
 * @throws EnvironmentError, and what ShardHost.open throws
 */
export async function startWorker(env: NodeJS.ProcessEnv, onOutgrown: () => void): Promise<WorkerProcess> {
  const settings = readEnvironment(ENVIRONMENT, env);
  prepareForTensorflow();
  const id = `worker-${randomBytes(4).toString('hex')}`;
  const log = createLogger('worker', { worker: id });
  const redis = connectRedis(settings.REDIS_URL, id);
  // One without a folder takes seats alone.
  const holdsShards = settings.PACELINE_DATA_DIR !== undefined;
  const queues = new WorkerQueues({
    stepTasks: new ManualQueue(STEP_TASK_QUEUE, stepTaskJobSchema, settings.REDIS_URL, id),
    placements: new ManualQueue(WORKER_PLACEMENT_QUEUE, placementJobSchema, settings.REDIS_URL, id),
    controlPlane: redisControlPlane(redis),
    holdsShards,
    hosted: () => shards?.hosted,
  });
  const link = settings.PACELINE_LINK && new Link(settings.PACELINE_LINK, processClock);
  const identity = followTlsFiles(settings, (files) => TlsIdentity.of('worker', files), log)?.identity;
  const parts = { id, redis, log, queues, link, identity };
  const shards = await openShards(settings, { ...parts, onGone: (job) => seats.leaveRun(job, 'its shard is gone') });
  const seats = new WorkerSeats({
    redis,
    queue: queues.seats,
    isHosting: () => shards?.hosted !== undefined,
    connect: shards && ((...dialled) => shards.connect(...dialled)),
    shardOf: shards && ((job) => shards.shardOf(job)),
    workerId: id,
    transport: settings.PACELINE_TRANSPORT,
    link,
    identity,
    log,
    onOutgrown,
    rowsSettings: {
      dataStore: settings.PACELINE_DATA_STORE,
      cacheFolder: settings.PACELINE_DATA_CACHE ?? join(userDirectories().cache, 'datasets'),
      cacheBytes: settings.PACELINE_DATA_CACHE_BYTES,
      memoryBytes: settings.PACELINE_DATA_MEMORY_BYTES,
    },
    leakLimits: leakLimitsOf(settings),
  });
  const dataStore = watchDataStore(settings.PACELINE_DATA_STORE, log);
  const self = { id, host: hostname(), pid: process.pid, startedAtMs: Date.now() };
  const fleet = startHeartbeats(redis, 'worker', () => ({
    ...self,
    protocolVersion: PROTOCOL_VERSION,
    version: '0.1.0',
    fingerprint: seats.fingerprint,
    engines: seats.engines.record(seats.fingerprint),
    devices: seats.devices.slice(0, MAX_DEVICES),
    rssBytes: process.memoryUsage.rss(),
    memoryBytes: usableMemoryBytes(),
    dataStore: dataStore.identity(),
    holdsShards,
    runId: seats.runId ?? shards?.hosted?.runId ?? null,
  }));
  void reportPredecessor(redis, settings.PACELINE_PREDECESSOR, log);
  seats.start();
  shards?.start();
  return {
    id,
    async stop() {
      queues.stop();
      // While its shards write a last checkpoint, its seat still computes the round.
      await shards?.stop(`worker ${id} was stopped`);
      await seats.stop();
      await shards?.close();
      if (!shards) await queues.placements.close();
      dataStore.stop();
      await fleet.stop();
      redis.disconnect();
    },
  };
}

type Settings = ReturnType<typeof readEnvironment<typeof ENVIRONMENT>>;

const leakLimitsOf = (settings: Settings) => ({
  tensors: settings.PACELINE_LEAK_TENSORS,
  buffers: settings.PACELINE_LEAK_TENSORS,
  bytes: settings.PACELINE_LEAK_TENSORS_MB * 1e6,
  rssBytes: settings.PACELINE_LEAK_RSS_MB * 1e6,
});

interface ShardParts {
  readonly id: string;
  readonly redis: Redis;
  readonly log: Logger;
  readonly queues: WorkerQueues;
  readonly link: Link | undefined;
  readonly identity: TlsIdentity | undefined;
  readonly onGone: Parameters<typeof ShardHost.open>[0]['onGone'];
}

/** Undefined for a worker without a folder: it takes seats alone. */
async function openShards(
  settings: Settings,
  { id, redis, log, queues, link, identity, onGone }: ShardParts,
): Promise<ShardHost | undefined> {
  const { PACELINE_DATA_DIR: dataDir } = settings;
  if (dataDir === undefined) return undefined;
  return ShardHost.open({
    workerId: id,
    redis,
    log,
    dataDir: resolve(dataDir),
    checkpointStore: settings.PACELINE_CHECKPOINT_STORE,
    dataHost: settings.PACELINE_DATA_HOST,
    dataBind: settings.PACELINE_DATA_BIND,
    dataPort: settings.PACELINE_DATA_PORT,
    socketDir: settings.PACELINE_SOCKET_DIR,
    transport: settings.PACELINE_TRANSPORT,
    link,
    identity,
    placements: queues.placements,
    onGone,
  });
}
