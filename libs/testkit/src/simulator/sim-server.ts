/**
 * A parameter server process: takes placements with the loop that apps/ps runs, listens, admits by HELLO as the gate does, and hands
 * the connection to the part of the run that it holds. It says every second that it lives.
 */
import type { Connection } from '@paceline/exchange';
import { PlacementLoop, type Log } from '@paceline/hosting';
import type { ControlPlane, PlacementJob, ServerAddress } from '@paceline/jobs';
import { PROTOCOL_VERSION, ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Checkpoints } from '@paceline/storage';
import type { Cluster } from './cluster.js';
import { fenced } from './fences.js';
import { HostedAttempt } from './hosted-attempt.js';
import { SimProcess } from './process.js';
import { addressOf } from './tiny-spec.js';

const HEARTBEAT_MS = 1_000;
const DATA_PORT = 7_000;

export class SimServer {
  readonly process: SimProcess;
  readonly serverId: string;
  readonly controlPlane: ControlPlane;
  readonly checkpoints: Checkpoints;
  readonly clock: SimProcess;
  readonly log: Log;
  private readonly placements: PlacementLoop<HostedAttempt>;

  constructor(
    /** Of the process, not of what it holds. */
    readonly index: number,
    host: string,
    readonly generation: number,
    private readonly cluster: Cluster,
  ) {
    this.serverId = `ps${index}.${generation}`;
    const address: Omit<ServerAddress, 'index'> = { serverId: this.serverId, host, port: DATA_PORT + generation, unixPath: null };
    this.process = new SimProcess(cluster.world, this.serverId, host, (error) => cluster.crashed(this.process, error));
    this.clock = this.process;
    this.controlPlane = cluster.redis.controlPlane(this.process);
    this.checkpoints = cluster.disk.checkpointsOf(this.process);
    this.log = logOf(this.serverId, cluster);
    cluster.network.listen(addressOf(address), this.process, (framed) => framed((connection) => this.accept(connection)));
    this.placements = new PlacementLoop<HostedAttempt>({
      ...{ queue: cluster.redis.queue<PlacementJob>('placement', this.process), context: this, address },
      createRun: (job, onGone) => {
        const part = new HostedAttempt(job, this, cluster, onGone);
        cluster.hosted.push(part);
        return part;
      },
    });
    this.process.every(HEARTBEAT_MS, () => this.heartbeat());
    this.process.run(() => {
      this.heartbeat();
      this.placements.start();
    });
  }

  get hosted(): HostedAttempt | undefined {
    return this.placements.runs.get(this.cluster.runId);
  }

  /** SIGTERM: its part takes a last checkpoint, it says goodbye, and the process ends. */
  shutdown(): void {
    const goodbye = () => this.controlPlane.sendReport({ kind: 'goodbye', role: 'server', id: this.serverId }).catch(() => undefined);
    void this.placements
      .stop('the server is shutting down')
      .then(goodbye)
      .then(() => this.cluster.world.schedule(0, `${this.serverId} exits`, () => this.process.kill()));
  }

  private heartbeat(): void {
    const { serverId: id, process, cluster } = this;
    const member = {
      ...{
        id,
        host: process.host,
        pid: 1,
        protocolVersion: PROTOCOL_VERSION,
        version: '0',
        startedAtMs: 0,
        fingerprint: null,
        rssBytes: 0,
      },
      runId: this.hosted ? cluster.runId : null,
    };
    void this.controlPlane.sendReport({ kind: 'heartbeat', role: 'server', member }).catch(() => undefined);
  }

  /** As the gate does: the token takes a turn to verify, then run and attempt are compared. */
  private accept(connection: Connection): void {
    let started = false;
    const early: { message: Message; header: FrameHeader }[] = [];
    connection.setReceiver({
      payloadFor: () => {
        throw new ProtocolError('HELLO_EXPECTED');
      },
      data: () => undefined,
      message: (message, header) => {
        if (started) {
          if (early.push({ message, header }) > 16) throw new ProtocolError('HELLO_EXPECTED', 'too many messages before WELCOME');
          return;
        }
        started = true;
        if (message.type !== 'hello') throw new ProtocolError('HELLO_EXPECTED');
        this.process.after(0.05, () => this.admit(message, header.attempt, connection, early));
      },
      closed: ({ error }) => this.cluster.refused(this.process.name, error),
    });
  }

  private admit(
    hello: MessageOf<'hello'>,
    attempt: number,
    connection: Connection,
    early: readonly { message: Message; header: FrameHeader }[],
  ): void {
    try {
      const { hosted } = this;
      if (!hosted) throw new ProtocolError('RUN_UNKNOWN');
      if (attempt < hosted.attempt && !this.cluster.plant?.believesOldAttempts)
        throw new ProtocolError('STALE_FENCE', `attempt ${attempt}, present is ${hosted.attempt}`);
      if (attempt > hosted.attempt) throw new ProtocolError('RUN_UNKNOWN', `attempt ${attempt} is not known here`);
      if (!connection.isOpen) return;
      const receiver = fenced(hosted, this.cluster, attempt, 'a HELLO', () =>
        hello.role === 'worker' ? hosted.admitWorker(hello, connection) : hosted.admitServer(hello, connection),
      );
      for (const { message, header } of early) receiver.message(message, header);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      connection.close(error);
    }
  }
}

/** What it tells stands among the newest events of a seed that failed. */
function logOf(serverId: string, { world }: Cluster): Log {
  const line =
    (level: string) =>
    (_fields: Readonly<Record<string, unknown>>, message: string): void => {
      world.recent.push(`${world.nowMs.toFixed(3)} ${serverId} ${level}: ${message}`);
    };
  return { debug: () => undefined, info: line('info'), warn: line('warn'), error: line('error') };
}
