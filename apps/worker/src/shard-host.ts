/**
 * The shards that a worker holds in runs without parameter servers (strategies multi-worker-mirrored, model-parallel, mirrored, one-device and tpu): the server side of
 * libs/hosting in this process, on its main thread, as in apps/ps. It has two places: one for a shard of its own, and one for the standby of another worker's shard.
 *
 *     queue of worker placements ──> own shard ── goes with it ──> standby of the next shard
 *
 * What this worker sends to a place of its own goes over connections inside the process; all others connect by Unix socket or TCP.
 */
import { mkdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import {
  connect,
  createCounters,
  listen,
  memoryPair,
  processClock,
  type Connection,
  refusalLog,
  type Link,
  type SocketListener,
  type TlsIdentity,
  type TlsRole,
} from '@paceline/exchange';
import { Gate, HostedRun, ParameterStore, PlacementLoop, StandbyQueue, type AppliedRounds, type ServerContext } from '@paceline/hosting';
import { memberKey, redisControlPlane, tokenVerifier, type JobQueue, type PlacementJob, type ServerAddress } from '@paceline/control-plane';
import { Arena } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { dataAddress, type Logger } from '@paceline/runtime';
import { Checkpoints, SafetensorsWriter, openStore } from '@paceline/storage';
import type { Redis } from 'ioredis';

const CONNECT_DEADLINE_MS = 5_000;
/** A member that joins is sent two generations of the shard at once. Queued bytes are references into the arenas, which are bounded. */
const MAX_QUEUED_BYTES = 2 ** 31;

/** Keys that are kept. A report may be sent after its part is gone. */
const MOST_KEYS = 16;

export interface ShardHostOptions {
  readonly workerId: string;
  readonly redis: Redis;
  readonly log: Logger;
  /** Folder for weights, and for checkpoints where `checkpointStore` names no other place. */
  readonly dataDir: string;
  readonly checkpointStore: string | undefined;
  readonly dataHost: string;
  readonly dataBind: string | undefined;
  /** The port of the first place; the second place has the one behind it. 0 takes free ones. */
  readonly dataPort: number;
  readonly socketDir: string | undefined;
  readonly transport: 'auto' | 'unix' | 'tcp';
  /** The slow link that all connections to other processes go over, for tests; undefined: none. */
  readonly link: Link | undefined;
  /** For connections by TCP; undefined: they are not encrypted. */
  readonly identity: TlsIdentity | undefined;
  /** Worker placements, as long as this worker may take one. */
  readonly placements: JobQueue<PlacementJob>;
  /** The shard of its own is gone: the seat that goes with it is of no use. */
  onGone(job: PlacementJob): void;
}

/** One listener with whoever may speak to it, and the run whose shard is behind it. */
interface Place {
  readonly listener: SocketListener;
  readonly gate: Gate;
  readonly loop: PlacementLoop<HostedRun>;
}

export class ShardHost {
  private readonly places: Place[] = [];
  /** Keys of the last attempts that it had a part of, by run and attempt: its reports are signed with them. */
  private readonly tokenKeys = new Map<string, string>();
  /** Counts the bytes of the connections that this process opens. */
  private readonly dialled = createCounters();
  private counted = { sent: 0, received: 0 };

  private constructor(private readonly options: ShardHostOptions) {}

  /** @throws ListenError, UserError DATA_HOST_NOT_OWN, StorageError */
  static async open(options: ShardHostOptions): Promise<ShardHost> {
    const host = new ShardHost(options);
    const { bind, advertise } = await dataAddress(options.dataHost, options.dataBind);
    await host.addPlace('own', bind, advertise, options.placements);
    await host.addPlace('standby', bind, advertise, host.standbyQueue());
    return host;
  }

  start(): void {
    for (const { loop } of this.places) loop.start();
  }

  /** The placement of the shard of its own: the newest, while that of an attempt that is over still lets go. */
  get hosted(): PlacementJob | undefined {
    return this.runs(0).at(-1)?.job;
  }

  /** The part of a shard that this worker has, of an attempt, in which the worker applies the optimizer. */
  shardOf({ runId, attempt }: Pick<PlacementJob, 'runId' | 'attempt'>): AppliedRounds | undefined {
    return this.runs(0).find(({ job }) => job.runId === runId && job.attempt === attempt)?.store.byWorker;
  }

  /** Opens a connection to a place of this worker, inside the process; undefined for those of others. */
  connectHere(address: ServerAddress): Connection | undefined {
    const place =
      address.serverId === this.options.workerId ? this.places.find(({ listener }) => listener.port === address.port) : undefined;
    if (!place) return undefined;
    const [here, there] = memoryPair({ maxQueuedBytes: MAX_QUEUED_BYTES });
    place.gate.accept(there);
    return here;
  }

  /**
   * @param deadlineMs for everything until the connection stands
   * @param peer the role in whose certificate the other side must be
   * @param link of the run, if it is not that of this process
   * @throws ConnectError
   */
  connect(address: ServerAddress, deadlineMs: number, peer: TlsRole, link = this.options.link): Promise<Connection> {
    const here = this.connectHere(address);
    if (here) return Promise.resolve(here);
    const { transport, identity } = this.options;
    const tls = identity && { identity, peers: [peer] };
    return connect(address, { deadlineMs, transport, link, tls, maxQueuedBytes: MAX_QUEUED_BYTES, counters: this.dialled });
  }

  /** Its attempts take a last checkpoint, or hand over to a standby, as long as there is time. */
  async stop(why: string): Promise<void> {
    await Promise.all(this.places.map(({ loop }) => loop.stop(why)));
  }

  async close(): Promise<void> {
    await Promise.all(this.places.map(({ listener }) => listener.close()));
  }

  private standbyQueue(): StandbyQueue {
    const hasStandby = ({ runId, attempt }: PlacementJob): boolean =>
      this.runs(1).some(({ job, isOver }) => job.runId === runId && job.attempt === attempt && !isOver);
    return new StandbyQueue({ hosted: () => this.hosted, hasStandby, nowMs: () => processClock.now() });
  }

  /** The standby goes with the shard: another worker that has the shard by now takes the standby too. */
  private dropStandby({ runId, attempt }: PlacementJob): void {
    for (const run of this.runs(1)) if (run.job.runId === runId && run.job.attempt === attempt && !run.hasStarted) run.drop();
  }

  private keepKey({ runId, attempt, member }: PlacementJob): void {
    const name = `${runId}/${attempt}`;
    this.tokenKeys.delete(name); // the newest last
    if (member) this.tokenKeys.set(name, member.tokenKey);
    if (this.tokenKeys.size > MOST_KEYS) this.tokenKeys.delete(this.tokenKeys.keys().next().value!);
  }

  private runs(place: number): HostedRun[] {
    return [...(this.places[place]?.loop.runs.values() ?? [])];
  }

  private async addPlace(name: 'own' | 'standby', bind: string, advertise: string, queue: JobQueue<PlacementJob>): Promise<void> {
    const { workerId, log, socketDir, dataPort, transport, link, identity } = this.options;
    const at = this.places.length;
    const keyOf = (runId: string, attempt: number): string | undefined => {
      const job = loop.runs.get(runId)?.job;
      return memberKey(job && { attempt: job.attempt, tokenKey: job.member?.tokenKey }, attempt);
    };
    const gate = new Gate(tokenVerifier(keyOf), log, (runId) => loop.runs.get(runId));
    if (socketDir !== undefined) await mkdir(socketDir, { recursive: true, mode: 0o700 });
    const unixPath = socketDir === undefined || transport === 'tcp' ? undefined : path.join(socketDir, `${workerId}-${at}.sock`);
    const port = dataPort === 0 ? 0 : dataPort + at;
    const listener = await listen({ host: bind, port, unixPath }, gate.accept, {
      maxQueuedBytes: MAX_QUEUED_BYTES,
      link,
      tls: identity && { identity, peers: ['worker'] },
      onTlsRefused: refusalLog((fields, message) => log.warn(fields, message), processClock.now),
    });
    const context = this.context(gate, () => this.runs(at));
    const loop = new PlacementLoop<HostedRun>({
      queue,
      context,
      address: { serverId: workerId, host: advertise, port: listener.port!, unixPath: listener.unixPath },
      createRun: (job, onGone) => {
        this.keepKey(job);
        if (this.places.every(({ loop: { runs } }) => runs.size === 0)) this.counted = this.passed();
        return new HostedRun(job, context, (run, uncollected) => {
          onGone(run, uncollected);
          this.tellBytes(job);
          if (name !== 'own') return;
          this.dropStandby(job);
          this.options.onGone(job);
        });
      },
    });
    this.places.push({ listener, gate, loop });
  }

  private context(gate: Gate, runs: () => readonly HostedRun[]): ServerContext {
    const { workerId, redis, log, dataDir, checkpointStore } = this.options;
    const dropped = (): number => runs().reduce((sum, run) => sum + run.counters.droppedFrames, 0);
    return {
      serverId: workerId,
      host: hostname(),
      clock: processClock,
      wallMs: Date.now,
      controlPlane: redisControlPlane(redis, (report) =>
        'runId' in report ? this.tokenKeys.get(`${report.runId}/${report.attempt}`) : undefined,
      ),
      checkpoints: new Checkpoints(openStore(checkpointStore ?? dataDir)),
      weights: {
        pathOf: ({ runId, attempt }) => path.join(dataDir, 'runs', runId, `weights-a${attempt}.safetensors`),
        create: (...args) => SafetensorsWriter.create(...args),
      },
      log,
      connectTo: (address) => this.connect(address, CONNECT_DEADLINE_MS, 'worker'),
      memoryPair: () => memoryPair({ maxQueuedBytes: MAX_QUEUED_BYTES }),
      createStore: (plan) => new ParameterStore({ ...plan, createArena: (options) => Arena.create(options) }),
      layoutOf: createLayout,
      refusals: () => ({ frames: dropped(), connections: gate.refusedConnections }),
    };
  }

  /** What has passed between this process and others since the placement came, or since the one before it was told. */
  private tellBytes({ runId, attempt, index }: PlacementJob): void {
    const { sent, received } = this.passed();
    const bytes = { sentBytes: sent - this.counted.sent, receivedBytes: received - this.counted.received };
    this.options.log.info({ run: runId, attempt, index, ...bytes }, 'bytes between this process and others');
    this.counted = { sent, received };
  }

  /** Bytes between this process and others since it began, those of runs with parameter servers too. */
  private passed(): { sent: number; received: number } {
    const all = [this.dialled, ...this.places.map(({ listener }) => listener.counters)];
    return { sent: all.reduce((sum, { bytesOut }) => sum + bytesOut, 0), received: all.reduce((sum, { bytesIn }) => sum + bytesIn, 0) };
  }
}
