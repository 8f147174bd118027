/**
 * A member's connections to all servers of its run. A broken one is opened again at once and then with pauses; when a server
 * cannot be reached for `giveUpMs`, does not answer HELLO, or breaks off again and again, the seat is given up with the server
 * named. A shard with a standby has two addresses, tried in turn: whoever does not lead it says NOT_PRIMARY, and as long as
 * somebody says so the seat is kept. Clock and transport are arguments: the worker and the simulator run this same file.
 */
import { ProtocolError, checkAttempt, type DataPlaneErrorCode, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Clock } from '../clock.js';
import type { Connection, FrameNumbers } from '../connection.js';
import { PeerTimeouts } from '../transports/peer-timeouts.js';

const PAUSE_MS = 100;
const TICK_MS = 100;
const SILENT_AFTER_MS = 10_000;
const WELCOME_DEADLINE_MS = 5_000;
/** With another address to try, a server that is stopped is not waited for as long. */
const WELCOME_OR_OTHER_MS = 1_000;
export const GIVE_UP_MS = 3_000;

/** What the links need of the machine on the worker's side. */
export interface LinkedMember {
  attach(server: number, connection: Connection): void;
  detach(server: number, connection: Connection): void;
  payloadFor(header: FrameHeader): Uint8Array;
  check(header: FrameHeader): void;
  data(header: FrameHeader): void;
  /** A message is about to come, in this term. @throws ProtocolError STALE_TERM when it is one of a former primary */
  hears(server: number, term: number): void;
  message(server: number, message: Message): void;
  waitingFor(): string;
  /** Where the member stands: a coordinator that has just taken over learns from it which rounds are committed. */
  numbers(): FrameNumbers;
}

export interface LinkedServer {
  readonly index: number;
  readonly serverId: string;
}

export interface LinkOptions<Server extends LinkedServer> {
  readonly servers: readonly Server[];
  /** Second addresses, of the shards that have a standby. */
  readonly standbys?: readonly Server[];
  readonly attempt: number;
  readonly member: LinkedMember;
  readonly clock: Clock;
  /** Opens a connection within its own deadline. It reads nothing before it has its receiver. */
  connect(server: Server): Promise<Connection>;
  hello(): Omit<MessageOf<'hello'>, 'type'>;
  /** A server has answered HELLO, after so long. */
  onWelcome?(afterMs: number): void;
  /** Refused, or out of reach: the seat cannot be kept. */
  onGivenUp(code: string, message: string, serverIndex: number): void;
  readonly giveUpMs?: number;
}

export class ServerLinks<Server extends LinkedServer> {
  private closed = false;
  private readonly connections = new Set<Connection>();
  private readonly silence: PeerTimeouts;
  private readonly giveUpMs: number;

  constructor(private readonly options: LinkOptions<Server>) {
    this.silence = new PeerTimeouts(options.clock, { silentAfterMs: SILENT_AFTER_MS, tickMs: TICK_MS });
    this.giveUpMs = options.giveUpMs ?? GIVE_UP_MS;
  }

  open(): void {
    const { servers, clock } = this.options;
    for (const server of servers) void this.keep(server, clock.now(), undefined);
  }

  /** The other address of the shard, or the same where it has one. */
  private other(server: Server): Server {
    const { servers, standbys = [] } = this.options;
    const standby = standbys.find(({ index }) => index === server.index);
    if (!standby) return server;
    return server.serverId === standby.serverId ? servers.find(({ index }) => index === server.index)! : standby;
  }

  close(): void {
    this.closed = true;
    for (const connection of this.connections) connection.close();
  }

  /** Closes connections on which nothing was heard, so that they are opened again. Call it every 100 ms. */
  tick(): void {
    this.silence.tick();
  }

  /** @param sinceMs start of the trouble; @param trouble what went wrong last, if anything did */
  private async keep(server: Server, sinceMs: number, trouble: string | undefined): Promise<void> {
    const { member, clock } = this.options;
    for (;;) {
      if (trouble !== undefined && clock.now() - sinceMs > this.giveUpMs) {
        return this.giveUp(
          'SERVER_UNREACHABLE',
          `parameter server ${server.index} (${server.serverId}) cannot be reached: ${trouble}; the member waited for ${member.waitingFor()}`,
          server.index,
        );
      }
      if (trouble !== undefined) await new Promise<void>((resolve) => clock.after(PAUSE_MS, resolve));
      if (this.closed) return;
      try {
        const connection = await this.options.connect(server);
        if (this.closed) return connection.close();
        return this.use(server, connection, sinceMs);
      } catch (error) {
        trouble = (error as Error).message;
        server = this.other(server);
      }
    }
  }

  private use(server: Server, connection: Connection, sinceMs: number): void {
    const { member, attempt, clock } = this.options;
    this.connections.add(connection);
    this.silence.watch(connection);
    const openedMs = clock.now();
    const other = this.other(server);
    let welcomed = false;
    let standsBy = false;
    const welcomeMs = other === server ? WELCOME_DEADLINE_MS : WELCOME_OR_OTHER_MS;
    const cancelUnanswered = clock.after(welcomeMs, () =>
      connection.close(new ProtocolError('SILENT_PEER', `no answer to HELLO within ${welcomeMs} ms`)),
    );
    const ends = (code: DataPlaneErrorCode): boolean => isFinal(code) && !(code === 'RUN_UNKNOWN' && other !== server);
    connection.setReceiver({
      payloadFor: (header) => member.payloadFor(header),
      check: (header) => member.check(header),
      data: (header) => member.data(header),
      message: (message, header) => {
        if (message.type === 'refused') {
          standsBy ||= message.code === 'NOT_PRIMARY';
          if (ends(message.code)) this.giveUp(message.code, message.message, server.index);
          return;
        }
        checkAttempt(header, attempt);
        member.hears(server.index, header.term);
        if (message.type === 'welcome') {
          if (!welcomed) this.options.onWelcome?.(clock.now() - helloAtMs);
          welcomed = true;
          cancelUnanswered();
          member.attach(server.index, connection);
        }
        member.message(server.index, message);
      },
      closed: ({ error, description }) => {
        cancelUnanswered();
        this.connections.delete(connection);
        this.silence.forget(connection);
        member.detach(server.index, connection);
        if (this.closed) return;
        if (error && ends(error.code)) return this.giveUp(error.code, error.message, server.index);
        // What held for a while and breaks is opened again at once; what breaks at once counts with the trouble before it.
        const held = welcomed && clock.now() - openedMs > this.giveUpMs;
        void this.keep(other, held || standsBy ? clock.now() : sinceMs, held ? undefined : description);
      },
    });
    const helloAtMs = clock.now();
    connection.sendMessage({ type: 'hello', ...this.options.hello() }, { ...member.numbers(), attempt });
  }

  private giveUp(code: string, message: string, serverIndex: number): void {
    if (this.closed) return;
    this.close();
    this.options.onGivenUp(code, message, serverIndex);
  }
}

/** A broken frame or a slow moment is worth another connection; a refusal is not, nor a seat that was taken away for a reason. */
function isFinal(code: DataPlaneErrorCode): boolean {
  return !['BAD_FRAME', 'BAD_CHECKSUM', 'SLOW_CONSUMER', 'SILENT_PEER', 'NOT_PRIMARY', 'STALE_TERM'].includes(code);
}
