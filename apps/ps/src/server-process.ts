/** Wires one parameter-server process: listener, gate, placements, heartbeats. `main.ts` starts it. */
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import {
  connect,
  Link,
  listen,
  memoryPair,
  processClock,
  refusalLog,
  TlsIdentity,
  type SocketListener,
  type TlsSettings,
} from '@paceline/exchange';
import { Gate, HostedRun, ParameterStore, PlacementLoop, TraceWatch, type ServerContext } from '@paceline/hosting';
import {
  ManualQueue,
  PLACEMENT_QUEUE,
  connectRedis,
  placementJobSchema,
  redisControlPlane,
  reportKey,
  startHeartbeats,
  tokenVerifier,
  type FleetMember,
  type KeyOfReport,
} from '@paceline/control-plane';
import { Arena } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import { createLogger, dataAddress, followTlsFiles, readEnvironment, usableMemoryBytes, VARIABLES, type Logger } from '@paceline/runtime';
import { serverPartBytes } from '@paceline/spec';
import { Checkpoints, SafetensorsWriter, openStore } from '@paceline/storage';

/** Part of the time to end, reserved for the last reports and the goodbye. */
const GOODBYE_MS = 1_800;
/** A member that joins is sent two generations of the shard at once. Queued bytes are references into the arenas, which are bounded. */
const MAX_QUEUED_BYTES = 2 ** 31;
const dialling = { deadlineMs: 5_000, maxQueuedBytes: MAX_QUEUED_BYTES };

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
  PACELINE_LINK: VARIABLES.PACELINE_LINK,
  PACELINE_TLS_CA: VARIABLES.PACELINE_TLS_CA,
  PACELINE_TLS_CERT: VARIABLES.PACELINE_TLS_CERT,
  PACELINE_TLS_KEY: VARIABLES.PACELINE_TLS_KEY,
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
  const gate = new Gate(
    tokenVerifier(() => settings.PACELINE_TOKEN_SECRET),
    log,
    (runId) => placements.runs.get(runId),
  );
  const { bind, advertise } = await dataAddress(settings.PACELINE_DATA_HOST, settings.PACELINE_DATA_BIND);
  const link = settings.PACELINE_LINK && new Link(settings.PACELINE_LINK, processClock);
  const identity = followTlsFiles(settings, (files) => TlsIdentity.of('server', files), log)?.identity;
  const tls: TlsSettings | undefined = identity && { identity, peers: ['server'] };
  const listener = await openListener(bind, settings, gate, { serverId, link, identity, log });
  const dataDir = path.resolve(settings.PACELINE_DATA_DIR);
  const keyOfReport: KeyOfReport = (report) => reportKey(settings.PACELINE_TOKEN_SECRET, report);
  const context: ServerContext = {
    serverId,
    host: hostname(),
    clock: processClock,
    wallMs: Date.now,
    controlPlane: redisControlPlane(redis, keyOfReport),
    checkpoints: new Checkpoints(openStore(settings.PACELINE_CHECKPOINT_STORE ?? dataDir)),
    weights: {
      pathOf: ({ runId, attempt }) => path.join(dataDir, 'runs', runId, `weights-a${attempt}.safetensors`),
      create: (...args) => SafetensorsWriter.create(...args),
    },
    log,
    connectTo: (address) => connect(address, { ...dialling, transport: settings.PACELINE_TRANSPORT, link, tls }),
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
    memory: { bytes: usableMemoryBytes(), needs: ({ spec, model }) => serverPartBytes(spec, model) },
    createRun: (job, onGone) => new HostedRun(job, context, onGone),
  });
  const dropped = () => [...placements.runs.values()].reduce((sum, run) => sum + run.counters.droppedFrames, 0);
  const self = { id: serverId, host: hostname(), pid: process.pid, startedAtMs: Date.now() };
  const fleet = startHeartbeats(redis, 'server', () => presence(self, placements), keyOfReport);
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

const presence = (
  self: Pick<FleetMember, 'id' | 'host' | 'pid' | 'startedAtMs'>,
  { runs }: Pick<PlacementLoop<HostedRun>, 'runs'>,
): FleetMember => ({
  ...self,
  protocolVersion: PROTOCOL_VERSION,
  version: '0.1.0',
  fingerprint: null,
  rssBytes: process.memoryUsage.rss(),
  memoryBytes: usableMemoryBytes(),
  runId: [...runs.keys()][0] ?? null,
});

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

interface ListenerParts {
  readonly serverId: string;
  readonly link: Link | undefined;
  readonly identity: TlsIdentity | undefined;
  readonly log: Logger;
}

async function openListener(
  host: string,
  settings: ReturnType<typeof readEnvironment<typeof ENVIRONMENT>>,
  gate: Gate,
  { serverId, link, identity, log }: ListenerParts,
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
    {
      maxQueuedBytes: MAX_QUEUED_BYTES,
      link,
      tls: identity && { identity, peers: ['server', 'worker'] },
      onTlsRefused: refusalLog((fields, message) => log.warn(fields, message), processClock.now),
    },
  );
}
