/**
 * A member's connections to all servers of its run. A broken one is opened again at once and then with pauses; when a server
 * cannot be reached for `giveUpMs`, does not answer HELLO, or breaks off again and again, the seat is given up with the server
 * named.
 */
import { connect, type Connection, type Member } from '@paceline/exchange';
import type { ServerAddress, StepTaskJob } from '@paceline/jobs';
import { ProtocolError, checkAttempt, type DataPlaneErrorCode, type MessageOf } from '@paceline/protocol';

const CONNECT_DEADLINE_MS = 2_000;
const PAUSE_MS = 100;
/** A finished node is queued whole; the bytes are references into the gradient arena, which is bounded. */
const MAX_QUEUED_BYTES = 2 ** 31;
const SILENT_AFTER_MS = 10_000;
const WELCOME_DEADLINE_MS = 5_000;

export interface LinkOptions {
  readonly job: StepTaskJob;
  readonly member: Member;
  readonly transport: 'auto' | 'unix' | 'tcp';
  hello(): Omit<MessageOf<'hello'>, 'type'>;
  /** Refused, or out of reach: the seat cannot be kept. */
  onGivenUp(code: string, message: string, serverIndex: number): void;
  readonly giveUpMs: number;
}

export class ServerLinks {
  private closed = false;
  private readonly connections = new Set<Connection>();
  private readonly lastHeardMs = new Map<Connection, number>();

  constructor(private readonly options: LinkOptions) {}

  open(): void {
    for (const server of this.options.job.servers) void this.keep(server, Date.now(), undefined);
  }

  close(): void {
    this.closed = true;
    for (const connection of this.connections) connection.close();
  }

  /** Closes connections on which nothing was heard (servers speak every second), so that they are opened again. */
  tick(): void {
    const now = Date.now();
    for (const [connection, heardMs] of this.lastHeardMs) {
      if (now - heardMs > SILENT_AFTER_MS) connection.close(new ProtocolError('SILENT_PEER', `nothing heard for ${now - heardMs} ms`));
    }
  }

  /** @param sinceMs start of the trouble; @param trouble what went wrong last, if anything did */
  private async keep(server: ServerAddress, sinceMs: number, trouble: string | undefined): Promise<void> {
    const { member, giveUpMs, transport } = this.options;
    for (;;) {
      if (trouble !== undefined && Date.now() - sinceMs > giveUpMs) {
        return this.giveUp(
          'SERVER_UNREACHABLE',
          `parameter server ${server.index} (${server.serverId}) cannot be reached: ${trouble}; the member waited for ${member.waitingFor()}`,
          server.index,
        );
      }
      if (trouble !== undefined) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      if (this.closed) return;
      try {
        const connection = await connect(server, { deadlineMs: CONNECT_DEADLINE_MS, transport, maxQueuedBytes: MAX_QUEUED_BYTES });
        if (this.closed) return connection.close();
        return this.use(server, connection, sinceMs);
      } catch (error) {
        trouble = (error as Error).message;
      }
    }
  }

  private use(server: ServerAddress, connection: Connection, sinceMs: number): void {
    const { member, job } = this.options;
    this.connections.add(connection);
    this.lastHeardMs.set(connection, Date.now());
    const openedMs = Date.now();
    let welcomed = false;
    const unanswered = setTimeout(
      () => connection.close(new ProtocolError('SILENT_PEER', `no answer to HELLO within ${WELCOME_DEADLINE_MS} ms`)),
      WELCOME_DEADLINE_MS,
    );
    connection.setReceiver({
      payloadFor: (header) => member.payloadFor(header),
      data: (header) => {
        this.lastHeardMs.set(connection, Date.now());
        member.data(header);
      },
      message: (message, header) => {
        this.lastHeardMs.set(connection, Date.now());
        if (message.type === 'refused') {
          if (isFinal(message.code)) this.giveUp(message.code, message.message, server.index);
          return;
        }
        checkAttempt(header, job.attempt);
        if (message.type === 'welcome') {
          welcomed = true;
          clearTimeout(unanswered);
          member.attach(server.index, connection);
        }
        member.message(server.index, message);
      },
      closed: ({ error, description }) => {
        clearTimeout(unanswered);
        this.connections.delete(connection);
        this.lastHeardMs.delete(connection);
        member.detach(server.index, connection);
        if (this.closed) return;
        if (error && isFinal(error.code)) return this.giveUp(error.code, error.message, server.index);
        // What held for a while and breaks is opened again at once; what breaks at once counts with the trouble before it.
        const held = welcomed && Date.now() - openedMs > this.options.giveUpMs;
        void this.keep(server, held ? Date.now() : sinceMs, held ? undefined : description);
      },
    });
    connection.sendMessage({ type: 'hello', ...this.options.hello() }, { attempt: job.attempt, term: 0, view: 0, round: 0 });
  }

  private giveUp(code: string, message: string, serverIndex: number): void {
    if (this.closed) return;
    this.close();
    this.options.onGivenUp(code, message, serverIndex);
  }
}

/** A broken frame or a slow moment is worth another connection; a refusal is not, nor a seat that was taken away for a reason. */
function isFinal(code: DataPlaneErrorCode): boolean {
  return !['BAD_FRAME', 'BAD_CHECKSUM', 'SLOW_CONSUMER', 'SILENT_PEER'].includes(code);
}
