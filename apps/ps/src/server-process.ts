/** Wires one parameter-server process: listener, gate, placements, heartbeats. `main.ts` starts it. */
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import { connect, listen, memoryPair, processClock, type SocketListener } from '@paceline/exchange';
import { Gate, HostedRun, ParameterStore, PlacementLoop, TraceWatch, type ServerContext } from '@paceline/hosting';
import {
  ManualQueue,
  PLACEMENT_QUEUE,
  connectRedis,
  placementJobSchema,
  redisControlPlane,
  startHeartbeats,
  type FleetReporter,
} from '@paceline/control-plane';
import { Arena } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import { createLogger, readEnvironment, usableMemoryBytes, VARIABLES } from '@paceline/runtime';
import { Checkpoints, SafetensorsWriter, openStore } from '@paceline/storage';
import { dataAddress } from './data-address.js';
import { tokenVerifier } from './token-verifier.js';

const CONNECT_DEADLINE_MS = 5_000;
/** Part of the time to end, reserved for the last reports and the goodbye. */
const GOODBYE_MS = 1_800;
/** A member that joins is sent two generations of the shard at once. Queued bytes are references into the arenas, which are bounded. */
const MAX_QUEUED_BYTES = 2 ** 31;

export const ENVIRONMENT = {
  REDIS_URL: VARIABLES.REDIS_URL,
  PACELINE_TOKEN_SECRET: VARIABLES.PACELINE_TOKEN_SECRET,
  PACELINE_DATA_DIR: VARIABLES.PACELINE_DATA_DIR,
  PACELINE_CHECKPOINT_STORE: VARIABLES.PACELINE_CHECKPOINT_STORE,
  PACELINE_DATA_HOST: VARIABLES.PACELINE_DATA_HOST,
  PACELINE_DATA_BIND: VARIABLES.PACELINE_DATA_BIND,
  PACELINE_DATA_PORT: VARIABLES.PACELINE_DATA_PORT,
  PACELINE_SOCKET_DIR: VARIABLES.PACELINE_SOCKET_DIR,
  PACELINE_TRANSPORT: VARIABLES.PACELINE_TRANSPORT,
  PACELINE_STOP_MS: VARIABLES.PACELINE_STOP_MS,
};

export interface ServerProcess {
  readonly id: string;
  readonly address: string;
  /** For `stop`. */
  readonly stopDeadlineMs: number;
  stop(why: string): Promise<void>;
}

/** @throws EnvironmentError, ListenError */
export async function startServer(env: NodeJS.ProcessEnv): Promise<ServerProcess> {
  const settings = readEnvironment(ENVIRONMENT, env);
  const serverId = `ps-${randomBytes(4).toString('hex')}`;
  const log = createLogger('ps', { server: serverId });
  const redis = connectRedis(settings.REDIS_URL, serverId);
  const gate = new Gate(tokenVerifier(settings.PACELINE_TOKEN_SECRET), log, (runId) => placements.runs.get(runId));
  const { bind, advertise } = await dataAddress(settings.PACELINE_DATA_HOST, settings.PACELINE_DATA_BIND);
  const listener = await openListener(serverId, bind, settings, gate);
  const dataDir = path.resolve(settings.PACELINE_DATA_DIR);
  const store = openStore(settings.PACELINE_CHECKPOINT_STORE ?? dataDir);
  const context: ServerContext = {
    serverId,
    host: hostname(),
    clock: processClock,
    wallMs: Date.now,
    controlPlane: redisControlPlane(redis),
    checkpoints: new Checkpoints(store),
    weights: {
      pathOf: ({ runId, attempt }) => path.join(dataDir, 'runs', runId, `weights-a${attempt}.safetensors`),
      create: (...args) => SafetensorsWriter.create(...args),
    },
    log,
    connectTo: (address) =>
      connect(address, { deadlineMs: CONNECT_DEADLINE_MS, transport: settings.PACELINE_TRANSPORT, maxQueuedBytes: MAX_QUEUED_BYTES }),
    memoryPair: () => memoryPair(),
    createStore: (plan) => new ParameterStore({ ...plan, createArena: (options) => Arena.create(options) }),
    layoutOf: createLayout,
    stopDeadlineMs: settings.PACELINE_STOP_MS - GOODBYE_MS,
    refusals: () => ({ frames: dropped(), connections: gate.refusedConnections }),
  };
  const queue = new ManualQueue(PLACEMENT_QUEUE, placementJobSchema, settings.REDIS_URL, serverId);
  const placements = new PlacementLoop<HostedRun>({
    queue,
    context,
    address: { serverId, host: advertise, port: listener.port!, unixPath: listener.unixPath },
    createRun: (job, onGone) => new HostedRun(job, context, onGone),
  });
  const dropped = () => [...placements.runs.values()].reduce((sum, run) => sum + run.counters.droppedFrames, 0);
  const startedAtMs = Date.now();
  const fleet: FleetReporter = startHeartbeats(redis, 'server', () => ({
    id: serverId,
    host: hostname(),
    pid: process.pid,
    protocolVersion: PROTOCOL_VERSION,
    version: '0.1.0',
    startedAtMs,
    fingerprint: null,
    rssBytes: process.memoryUsage.rss(),
    memoryBytes: usableMemoryBytes(),
    runId: [...placements.runs.keys()][0] ?? null,
  }));
  placements.start();
  const trace = watchTraces(context, placements);
  return {
    id: serverId,
    address: listener.address,
    stopDeadlineMs: settings.PACELINE_STOP_MS,
    async stop(why) {
      trace.stop();
      await placements.stop(why);
      await fleet.stop();
      await listener.close();
      redis.disconnect();
    },
  };
}

function watchTraces({ controlPlane, clock, wallMs, serverId, host, log }: ServerContext, { runs }: PlacementLoop<HostedRun>): TraceWatch {
  return new TraceWatch({
    controlPlane,
    clock,
    wallMs,
    process: { role: 'server', id: serverId, host, pid: process.pid },
    runs: () => [...runs.values()].map(({ job }) => job),
    owner: (runId) => runId,
    failed: (error) => log.debug({ err: error }, 'a trace could not be looked for, or reported'),
  });
}

async function openListener(
  serverId: string,
  host: string,
  settings: ReturnType<typeof readEnvironment<typeof ENVIRONMENT>>,
  gate: Gate,
): Promise<SocketListener> {
  const directory = settings.PACELINE_SOCKET_DIR;
  if (directory !== undefined) await mkdir(directory, { recursive: true, mode: 0o700 });
  return listen(
    {
      host,
      port: settings.PACELINE_DATA_PORT,
      unixPath: directory === undefined || settings.PACELINE_TRANSPORT === 'tcp' ? undefined : path.join(directory, `${serverId}.sock`),
    },
    gate.accept,
    { maxQueuedBytes: MAX_QUEUED_BYTES },
  );
}
