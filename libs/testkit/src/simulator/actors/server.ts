/**
 * A parameter server process: the gate and the placement loop of libs/hosting, with the clock, the connections, the disk and the control plane
 * of a simulated process. What apps/ps/src/server-process.ts gives from the real ones.
 */
import type { CancelTimer, Connection } from '@paceline/exchange';
import { Gate, HostedRun, PlacementLoop, type HostingObserver, type Log, type ServerContext, type WeightsFile } from '@paceline/hosting';
import { RedisUnavailableError, type ControlPlane, type PlacementJob, type ServerAddress, type TokenClaims } from '@paceline/control-plane';
import type { Layout } from '@paceline/learning';
import { PROTOCOL_VERSION, ProtocolError } from '@paceline/protocol';
import { StorageError } from '@paceline/storage';
import type { Cluster } from '../cluster.js';
import { ServerConnection } from '../checks/fences.js';
import { addressOf } from '../world/network.js';
import { Part } from './part.js';
import { SimProcess } from '../world/process.js';
import { WatchedStore } from './watched-store.js';

const HEARTBEAT_MS = 1_000;
const CONNECT_DEADLINE_MS = 5_000;
const EXIT_DEADLINE_MS = 5_000;
const PORT = 4_200;
/** Any day will do. */
const WALL_ZERO_MS = 1_800_000_000_000;

export class SimServer {
  readonly process: SimProcess;
  readonly address: Omit<ServerAddress, 'index'>;
  readonly loop: PlacementLoop<HostedRun>;
  private readonly controlPlane: ControlPlane;
  private readonly gate: Gate;
  private readonly closeListener: () => Promise<void>;
  private readonly stopBeating: CancelTimer;
  /** It was told to end. */
  isEnding = false;
  private readonly parts = new Map<HostedRun, Part>();

  constructor(
    /** Place in `cluster.servers`; a process that is started again has the same. */
    readonly slot: number,
    host: string,
    readonly generation: number,
    readonly cluster: Cluster,
  ) {
    this.process = new SimProcess(cluster.world, `ps${slot}.${generation}`, host, (error) => cluster.crashed(this.process, error));
    this.address = { serverId: this.process.name, host, port: PORT + generation, unixPath: null };
    this.controlPlane = cluster.redis.controlPlane(this.process);
    const context = this.context();
    this.loop = new PlacementLoop<HostedRun>({
      queue: cluster.redis.queue<PlacementJob>('placement', this.process),
      context,
      address: this.address,
      createRun: (job, onGone) => new HostedRun(job, context, onGone, this.observer()),
    });
    this.gate = new Gate(
      (token) => this.claims(token),
      context.log,
      (runId) => this.loop.runs.get(runId),
    );
    this.closeListener = cluster.network.listen(addressOf(this.address), this.process, (framed) =>
      framed((connection) => this.gate.accept(this.watched(connection))),
    );
    this.stopBeating = this.process.every(HEARTBEAT_MS, () => this.heartbeat());
    this.process.run(() => {
      this.heartbeat();
      this.loop.start();
    });
  }

  /** The part that it holds now, or the last one that has not gone yet. */
  get hosted(): Part | undefined {
    const run = this.loop.runs.get(this.cluster.runId);
    return run && this.parts.get(run);
  }

  /** SIGTERM: a last checkpoint within the deadline, then the process ends. */
  shutdown(): void {
    const { world } = this.cluster;
    this.isEnding = true;
    const exit = (): void => void world.schedule(0, `${this.process.name} exits`, () => this.process.kill());
    this.process.after(EXIT_DEADLINE_MS, exit);
    const goodbye = (): Promise<void> => {
      this.stopBeating();
      return this.controlPlane.sendReport({ kind: 'goodbye', role: 'server', id: this.process.name }).catch(() => undefined); // Redis is away: the api misses its heartbeats
    };
    void this.loop.stop('the server is shutting down').then(goodbye).then(this.closeListener).then(exit);
  }

  private heartbeat(): void {
    const { process, cluster } = this;
    const member = {
      id: process.name,
      host: process.host,
      pid: 1,
      protocolVersion: PROTOCOL_VERSION,
      version: '0',
      startedAtMs: 0,
      fingerprint: null,
      rssBytes: 0,
      runId: this.hosted ? cluster.runId : null,
    };
    void this.controlPlane.sendReport({ kind: 'heartbeat', role: 'server', member }).catch(() => undefined); // the next one is newer
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
      connectTo: (address) =>
        network.connect(process, addressOf(address), CONNECT_DEADLINE_MS).then((connection) => this.watched(connection)),
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
        const part = new Part(run, this);
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
