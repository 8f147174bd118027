/** A parameter server process: listens, admits by HELLO as libs/hosting/src/gate.ts does, and hands the connection to the attempt that it holds. */
import type { Connection } from '@paceline/exchange';
import type { RestorePoint } from '@paceline/jobs';
import { ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Cluster } from './cluster.js';
import { fenced } from './fences.js';
import { HostedAttempt } from './hosted-attempt.js';
import { SimProcess } from './process.js';

export class SimServer {
  readonly process: SimProcess;
  readonly address: string;
  hosted: HostedAttempt | undefined;

  constructor(
    readonly index: number,
    host: string,
    generation: number,
    private readonly cluster: Cluster,
  ) {
    this.address = `${host}/ps${index}.${generation}`;
    this.process = new SimProcess(cluster.world, `ps${index}.${generation}`, host, (error) => cluster.crashed(this.process, error));
    cluster.network.listen(this.address, this.process, (framed) => framed((connection) => this.accept(connection)));
  }

  /** A newer attempt ends the part of an older one. */
  place(attempt: number, restore: RestorePoint | undefined): HostedAttempt {
    this.hosted?.stop('a newer attempt of the run begins');
    this.hosted = new HostedAttempt(attempt, restore, this, this.cluster);
    return this.hosted;
  }

  /** As libs/hosting/src/gate.ts: the token takes a turn to verify, then run and attempt are compared. */
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
