/**
 * Processes that hold shards, and parameter servers among them. A place for shards is the gate and the placement loop of libs/hosting, with the clock, the connections, the disk and the control
 * plane of that process. What apps/ps/src/server-process.ts and apps/worker/src/shard-host.ts give from the real ones.
 */
import type { CancelTimer, Connection } from '@paceline/exchange';
import { Gate, HostedRun, PlacementLoop, type HostingObserver, type Log, type ServerContext, type WeightsFile } from '@paceline/hosting';
import {
  RedisUnavailableError,
  type ControlPlane,
  type JobQueue,
  type PlacementJob,
  type Report,
  type ServerAddress,
  type TokenClaims,
} from '@paceline/control-plane';
import type { Layout } from '@paceline/learning';
import { PROTOCOL_VERSION, ProtocolError } from '@paceline/protocol';
import { StorageError } from '@paceline/storage';
import type { Cluster } from '../cluster.js';
import { diskError } from '../../faulty-disk.js';
import { ServerConnection } from '../checks/fences.js';
import { addressOf } from '../world/network.js';
import { SimProcess } from '../world/process.js';
import { Part } from './part.js';
import { WatchedStore } from './watched-store.js';

const CONNECT_DEADLINE_MS = 5_000;
const EXIT_DEADLINE_MS = 5_000;
/** Any day will do. */
const WALL_ZERO_MS = 1_800_000_000_000;

/** A process that holds shards: a parameter server, or a worker of a run without servers. */
export interface ShardHolder {
  readonly process: SimProcess;
  /** Place in `cluster.servers`; a process that is started again has the same. */
  readonly slot: number;
  readonly cluster: Cluster;
  /** The part that it holds now, or the last one that has not gone yet. */
  readonly hosted: Part | undefined;
  /** It was told to end. */
  readonly isEnding: boolean;
  /** SIGTERM. */
  shutdown(): void;
}

export interface HolderPlaceOptions {
  readonly port: number;
  readonly queue: JobQueue<PlacementJob>;
  /** Opens a connection inside the process; undefined for an address of others. */
  connectHere?(address: ServerAddress): Connection | undefined;
  /** The part that it held has gone. */
  onGone?(job: PlacementJob): void;
}

/** Says goodbye and ends the process when `stop` has come to its end, or soon without. */
export function endProcess({ process, cluster }: ShardHolder, stop: () => Promise<void>): void {
  const exit = (): void => void cluster.world.schedule(0, `${process.name} exits`, () => process.kill());
  process.after(EXIT_DEADLINE_MS, exit);
  void stop().then(exit);
}

export class HolderPlace {
  readonly address: Omit<ServerAddress, 'index'>;
  readonly loop: PlacementLoop<HostedRun>;
  readonly gate: Gate;
  readonly controlPlane: ControlPlane;
  readonly close: () => Promise<void>;
  private readonly cluster: Cluster;
  private readonly process: SimProcess;
  private readonly parts = new Map<HostedRun, Part>();

  constructor(
    readonly holder: ShardHolder,
    private readonly options: HolderPlaceOptions,
  ) {
    const { cluster, process } = holder;
    const { port, queue, onGone } = options;
    this.cluster = cluster;
    this.process = process;
    this.address = { serverId: process.name, host: process.host, port, unixPath: null };
    this.controlPlane = cluster.redis.controlPlane(process);
    const context = this.context();
    this.loop = new PlacementLoop<HostedRun>({
      queue,
      context,
      address: this.address,
      createRun: (job, gone) => {
        const left: typeof gone = (run, uncollected) => {
          gone(run, uncollected);
          onGone?.(job);
        };
        return new HostedRun(job, context, left, this.observer());
      },
    });
    this.gate = new Gate(
      (token) => this.claims(token),
      context.log,
      (runId) => this.loop.runs.get(runId),
    );
    this.close = cluster.network.listen(addressOf(this.address), process, (framed) =>
      framed((connection) => this.gate.accept(this.watched(connection))),
    );
  }

  get hosted(): Part | undefined {
    const run = this.loop.runs.get(this.cluster.runId);
    return run && this.parts.get(run);
  }

  /** A connection inside the process to whoever is behind this place. */
  connectHere(): Connection {
    const [here, there] = this.cluster.network.pair(this.process);
    this.gate.accept(this.watched(there));
    return here;
  }

  private context(): ServerContext {
    const { cluster, process } = this;
    const { network, world } = cluster;
    return {
      serverId: process.name,
      host: process.host,
      clock: process,
      // What comes between the slices of long work is what seeds should find.
      sliceMs: 0,
      windows: cluster.windows,
      log: this.log(),
      wallMs: () => WALL_ZERO_MS + Math.round(world.nowMs),
      controlPlane: this.controlPlane,
      checkpoints: cluster.disk.checkpointsOf(process),
      weights: { pathOf: () => 'weights', create: () => Promise.resolve(this.weights()) },
      connectTo: async (address) =>
        this.watched(this.options.connectHere?.(address) ?? (await network.connect(process, addressOf(address), CONNECT_DEADLINE_MS))),
      memoryPair: () => network.pair(process).map((end) => this.watched(end)) as [Connection, Connection],
      createStore: (plan) => new WatchedStore(plan, cluster),
      layoutOf: () => cluster.run.layout,
      refusals: () => ({ frames: 0, connections: this.gate.refusedConnections }),
    };
  }

  /** Makes a part of each run that is hosted here. */
  private observer(): HostingObserver {
    const { cluster } = this;
    return {
      hosted: (run) => {
        const part = new Part(run, this.holder);
        this.parts.set(run, part);
        cluster.partMade(part);
      },
      coordinates: (run, { machine }) => cluster.coordinatorMade(this.parts.get(run)!, machine),
      placed: (run) => cluster.placeMade(run),
    };
  }

  private watched(connection: Connection): Connection {
    return new ServerConnection(connection, this.process.name, () => this.hosted, this.cluster);
  }

  /** A work item is its role and attempt; to look at the signature takes a turn. */
  private claims(token: string): Promise<TokenClaims> {
    const [role, attempt] = token.split('/');
    const present = this.hosted?.attempt;
    const claims = {
      run: this.cluster.runId,
      role: role as TokenClaims['role'],
      attempt: this.cluster.plant?.believesOldAttempts && present !== undefined ? present : Number(attempt),
      exp: 2 ** 40,
    };
    return new Promise((resolve) => this.process.after(0.05, () => resolve(claims)));
  }

  /** A logged error counts as a crash unless it comes from the disk, Redis or a peer. */
  private log(): Log {
    const note = (_fields: object, message: string): void => this.cluster.world.note(message);
    const error: Log['error'] = ({ err }, message) => {
      this.cluster.world.note(message);
      const isExpected = [StorageError, ProtocolError, RedisUnavailableError].some((kind) => err instanceof kind);
      if (err instanceof Error && !isExpected) this.cluster.crashed(this.process, err);
    };
    return { debug: () => undefined, info: note, warn: note, error };
  }

  /**
   * The collected weights are those of the undisturbed run; in modes async and ssp those that the shards hold. An attempt that began behind the best
   * generation has it from a checkpoint alone: where that was never written, or is damaged, the run may end with its last weights.
   */
  private weights(): WeightsFile {
    const { cluster } = this;
    const { attempt, restore } = this.hosted!;
    let next = 0;
    let ends: readonly number[] | undefined;
    const isUndisturbed = (chunk: Layout['chunks'][number], values: Float32Array): boolean => {
      if (!cluster.isFollowed({ attempt })) return true;
      const { reference } = cluster;
      const { rounds, weights } = reference.end();
      ends ??= (restore?.round ?? 0) >= weights ? [weights, rounds] : [weights];
      ends = ends.filter((round) => reference.holds(round, chunk, values));
      return ends.length > 0;
    };
    return {
      append: (bytes) => {
        const { run, items, checks } = cluster;
        if (cluster.disk.refusesWrite()) return Promise.reject(diskError('ENOSPC', 'weights'));
        const chunk = run.layout.chunks[next++]!;
        const values = new Float32Array(Uint8Array.from(bytes).buffer);
        const isRight = items ? items.collected(attempt, chunk.index, values) : isUndisturbed(chunk, values);
        const expected = items ? 'shard' : 'undisturbed run';
        checks.expect(isRight, 'I8', () => `the collected chunk ${chunk.index} is not that of the ${expected}`);
        return Promise.resolve();
      },
      finish: () => {
        cluster.endsWithLast = ends !== undefined && !ends.includes(cluster.reference.end().weights);
        return Promise.resolve();
      },
      abort: () => Promise.resolve(),
    };
  }
}

export const HEARTBEAT_MS = 1_000;
export const PORT = 4_200;

/** What a process that holds shards says of itself. */
export const heartbeatOf = ({ process, hosted, cluster }: ShardHolder, role: 'server' | 'worker'): Report => ({
  kind: 'heartbeat',
  role,
  member: {
    id: process.name,
    host: process.host,
    pid: 1,
    protocolVersion: PROTOCOL_VERSION,
    version: '0',
    startedAtMs: 0,
    fingerprint: null,
    rssBytes: 0,
    runId: hosted ? cluster.runId : null,
  },
});

export class SimServer implements ShardHolder {
  readonly process: SimProcess;
  readonly place: HolderPlace;
  private readonly stopBeating: CancelTimer;
  isEnding = false;

  constructor(
    readonly slot: number,
    host: string,
    readonly generation: number,
    readonly cluster: Cluster,
  ) {
    this.process = new SimProcess(cluster.world, `ps${slot}.${generation}`, host, (error) => cluster.crashed(this.process, error));
    this.place = new HolderPlace(this, {
      port: PORT + generation,
      queue: cluster.redis.queue<PlacementJob>('placement', this.process),
    });
    this.stopBeating = this.process.every(HEARTBEAT_MS, () => this.heartbeat());
    this.process.run(() => {
      this.heartbeat();
      this.place.loop.start();
    });
  }

  get hosted(): Part | undefined {
    return this.place.hosted;
  }

  /** SIGTERM: a last checkpoint within the deadline, then the process ends. */
  shutdown(): void {
    const { place } = this;
    this.isEnding = true;
    endProcess(this, async () => {
      await place.loop.stop('the server is shutting down');
      this.stopBeating();
      await place.controlPlane.sendReport({ kind: 'goodbye', role: 'server', id: this.process.name }).catch(() => undefined); // Redis is away: the api misses its heartbeats
      await place.close();
    });
  }

  private heartbeat(): void {
    void this.place.controlPlane.sendReport(heartbeatOf(this, 'server')).catch(() => undefined); // the next one is newer
  }
}
