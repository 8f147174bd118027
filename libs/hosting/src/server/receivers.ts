/** What comes over the connections of workers, and over those of other servers to the coordinator: from the frame to the method that takes it. */
import type { Connection, FrameReceiver, PeerTimeouts, ShardLink, ShardMachine } from '@paceline/exchange';
import { ProtocolError, checkAttempt, type FrameHeader, type Message } from '@paceline/protocol';
import type { Coordinator } from '@paceline/exchange';

type Closed = Parameters<FrameReceiver['closed']>[0];

/** The run that a worker's connection belongs to: HostedRun. */
export interface WorkersRun {
  readonly job: { readonly attempt: number };
  readonly shard: ShardMachine;
  /** On server 0. */
  readonly coordinator: { readonly machine: Coordinator } | undefined;
  /** The connections of the workers. */
  readonly silence: PeerTimeouts;
  /** Runs what may fail for this run alone. */
  guard(act: () => void): void;
}

export class WorkerReceiver implements FrameReceiver {
  constructor(
    private readonly run: WorkersRun,
    private readonly link: ShardLink,
  ) {
    run.silence.watch(link.connection);
  }

  payloadFor(header: FrameHeader): Uint8Array {
    let payload: Uint8Array | undefined;
    // No room for it: this run fails, the server's other runs go on.
    this.run.guard(() => (payload = this.run.shard.payloadFor(this.link, header)));
    if (!payload) throw new ProtocolError('RUN_OVER');
    return payload;
  }

  check(header: FrameHeader): void {
    this.run.guard(() => this.run.shard.check(this.link, header));
  }

  data(header: FrameHeader): void {
    this.run.guard(() => this.run.shard.data(this.link, header));
  }

  message(message: Message, header: FrameHeader): void {
    checkAttempt(header, this.run.job.attempt);
    this.run.guard(() => this.take(message, header.term));
  }

  closed({ description }: Closed): void {
    const { run, link } = this;
    run.silence.forget(link.connection);
    run.guard(() => {
      run.shard.detach(link);
      run.coordinator?.machine.memberClosed(link.id, link.connection, description);
    });
  }

  /** A message is for the shard, or else for the coordinator beside it. */
  private take(message: Message, term: number): void {
    const { run, link } = this;
    if (run.shard.fromWorker(link, message, term)) return;
    if (run.coordinator) return run.coordinator.machine.memberMessage(link.id, message);
    if (message.type !== 'heartbeat') throw new ProtocolError('BAD_MESSAGE', `${message.type} is for the coordinator`);
  }
}

/** The coordinator that a server's connection belongs to: CoordinatorHost. */
export interface ServersCoordinator {
  payloadFor(header: FrameHeader): Uint8Array;
  weights(header: FrameHeader, payload: Uint8Array): void;
  fromServer(index: number, connection: Connection, message: Message, header: FrameHeader): void;
  serverClosed(index: number, connection: Connection, why: string): void;
}

export class ServerReceiver implements FrameReceiver {
  constructor(
    private readonly coordinator: ServersCoordinator,
    private readonly index: number,
    private readonly connection: Connection,
  ) {}

  payloadFor(header: FrameHeader): Uint8Array {
    return this.coordinator.payloadFor(header);
  }

  data(header: FrameHeader, payload: Uint8Array): void {
    this.coordinator.weights(header, payload);
  }

  message(message: Message, header: FrameHeader): void {
    // The connection closes with what the server refused: serverLost names it.
    if (message.type !== 'refused') this.coordinator.fromServer(this.index, this.connection, message, header);
  }

  closed({ description }: Closed): void {
    this.coordinator.serverClosed(this.index, this.connection, description);
  }
}
