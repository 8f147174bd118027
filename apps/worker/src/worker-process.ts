/** Wires one worker process: Redis, heartbeats, the seat loop. `main.ts` starts it. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { connectRedis, startHeartbeats } from '@paceline/control-plane';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import { createLogger, readEnvironment, usableMemoryBytes, userDirectories, VARIABLES } from '@paceline/runtime';
import { prepareForTensorflow } from '@paceline/tensorflow-addon';
import { watchDataStore } from './data-store-identity.js';
import { reportPredecessor } from './predecessor.js';
import { WorkerSeats } from './worker-seats.js';

const MAX_DEVICES = 16;

export const ENVIRONMENT = {
  REDIS_URL: VARIABLES.REDIS_URL,
  PACELINE_TRANSPORT: VARIABLES.PACELINE_TRANSPORT,
  PACELINE_DATA_STORE: VARIABLES.PACELINE_DATA_STORE,
  PACELINE_DATA_CACHE: VARIABLES.PACELINE_DATA_CACHE,
  PACELINE_DATA_CACHE_BYTES: VARIABLES.PACELINE_DATA_CACHE_BYTES,
  PACELINE_DATA_MEMORY_BYTES: VARIABLES.PACELINE_DATA_MEMORY_BYTES,
  PACELINE_PREDECESSOR: VARIABLES.PACELINE_PREDECESSOR,
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
 * @throws EnvironmentError
 */
export function startWorker(env: NodeJS.ProcessEnv, onOutgrown: () => void): WorkerProcess {
  const settings = readEnvironment(ENVIRONMENT, env);
  prepareForTensorflow();
  const id = `worker-${randomBytes(4).toString('hex')}`;
  const log = createLogger('worker', { worker: id });
  const redis = connectRedis(settings.REDIS_URL, id);
  const seats = new WorkerSeats({
    redisUrl: settings.REDIS_URL,
    redis,
    workerId: id,
    transport: settings.PACELINE_TRANSPORT,
    log,
    onOutgrown,
    rowsSettings: {
      dataStore: settings.PACELINE_DATA_STORE,
      cacheFolder: settings.PACELINE_DATA_CACHE ?? join(userDirectories().cache, 'datasets'),
      cacheBytes: settings.PACELINE_DATA_CACHE_BYTES,
      memoryBytes: settings.PACELINE_DATA_MEMORY_BYTES,
    },
    leakLimits: {
      tensors: settings.PACELINE_LEAK_TENSORS,
      buffers: settings.PACELINE_LEAK_TENSORS,
      bytes: settings.PACELINE_LEAK_TENSORS_MB * 1e6,
      rssBytes: settings.PACELINE_LEAK_RSS_MB * 1e6,
    },
  });
  const dataStore = watchDataStore(settings.PACELINE_DATA_STORE, log);
  const startedAtMs = Date.now();
  const fleet = startHeartbeats(redis, 'worker', () => ({
    id,
    host: hostname(),
    pid: process.pid,
    protocolVersion: PROTOCOL_VERSION,
    version: '0.1.0',
    startedAtMs,
    fingerprint: seats.fingerprint,
    engines: seats.engines.record(seats.fingerprint),
    devices: seats.devices.slice(0, MAX_DEVICES),
    rssBytes: process.memoryUsage.rss(),
    memoryBytes: usableMemoryBytes(),
    dataStore: dataStore.identity(),
    runId: seats.runId,
  }));
  void reportPredecessor(redis, settings.PACELINE_PREDECESSOR, log);
  seats.start();
  return {
    id,
    async stop() {
      await seats.stop();
      dataStore.stop();
      await fleet.stop();
      redis.disconnect();
    },
  };
}
