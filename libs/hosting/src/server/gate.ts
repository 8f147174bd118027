/**
 * The gate decides who may speak to this server (docs/protocol.md §4.2). The transport has already insisted on a HELLO; here its token is checked
 * (`TokenVerifier`, then run, role, attempt, and whether it was said on this connection) before anything of a run is touched.
 */
import { type Connection } from '@paceline/exchange';
import type { TokenClaims } from '@paceline/control-plane';
import { ProtocolError, type DataPlaneErrorCode, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { HostedRun } from './hosted-run.js';
import type { Log } from './server-context.js';

/** Messages a peer may send before its token is checked; an honest one sends none. */
const MAX_EARLY_MESSAGES = 16;

interface Early {
  readonly message: Message;
  readonly header: FrameHeader;
}

/** What a token says that is whole, signed and not expired. @throws ProtocolError TOKEN_INVALID */
export type TokenVerifier = (token: string) => Promise<TokenClaims>;

export class Gate {
  /** Connections refused, by code. */
  readonly refused = new Map<DataPlaneErrorCode, number>();

  constructor(
    private readonly verifyToken: TokenVerifier,
    private readonly log: Log,
    private readonly findRun: (runId: string) => HostedRun | undefined,
  ) {}

  get refusedConnections(): number {
    return [...this.refused.values()].reduce((sum, n) => sum + n, 0);
  }

  /** Takes over a new connection. */
  readonly accept = (connection: Connection): void => {
    let started = false;
    const early: Early[] = [];
    connection.setReceiver({
      payloadFor: () => {
        throw new ProtocolError('HELLO_EXPECTED');
      },
      data: () => undefined,
      message: (message, header) => {
        if (started) {
          if (early.push({ message, header }) > MAX_EARLY_MESSAGES)
            throw new ProtocolError('HELLO_EXPECTED', 'too many messages before WELCOME');
          return;
        }
        started = true;
        if (message.type !== 'hello') throw new ProtocolError('HELLO_EXPECTED');
        void this.admit(message, header, connection, early);
      },
      // Refusals of `admit` come here too: closing with an error tells its own receiver.
      closed: ({ error }) => {
        if (error) this.count(error.code);
      },
    });
  };

  private async admit(
    hello: MessageOf<'hello'>,
    { attempt, term, round, view }: FrameHeader,
    connection: Connection,
    early: readonly Early[],
  ): Promise<void> {
    try {
      const claims = await this.verify(hello);
      const run = this.findRun(hello.run);
      if (!run) throw new ProtocolError('RUN_UNKNOWN');
      if (attempt < run.job.attempt || claims.attempt < run.job.attempt)
        throw new ProtocolError('STALE_FENCE', `attempt ${Math.min(attempt, claims.attempt)}, present is ${run.job.attempt}`);
      if (attempt !== run.job.attempt || claims.attempt !== attempt)
        throw new ProtocolError('RUN_UNKNOWN', `attempt ${attempt} is not known here`);
      if (hello.challenge !== connection.challenge) throw new ProtocolError('HELLO_REPLAYED');
      if (!connection.isOpen) return;
      const isWorker = hello.role === 'worker';
      const receiver = isWorker ? run.admitWorker(hello, connection, { round, view }) : run.admitServer(hello, connection, term);
      for (const { message, header } of early) receiver.message(message, header);
    } catch (error) {
      const refusal = error instanceof ProtocolError ? error : new ProtocolError('SERVER_FULL', (error as Error).message);
      if (!(error instanceof ProtocolError)) this.log.error({ err: error as Error }, 'a connection could not be admitted');
      this.log.warn({ code: refusal.code, run: hello.run, peer: hello.id, remote: connection.remote }, 'connection refused');
      connection.close(refusal);
    }
  }

  private async verify(hello: MessageOf<'hello'>): Promise<TokenClaims> {
    if (hello.token === '') throw new ProtocolError('TOKEN_MISSING');
    const claims = await this.verifyToken(hello.token);
    if (claims.run !== hello.run || claims.role !== (hello.role === 'standby' ? 'server' : hello.role))
      throw new ProtocolError('TOKEN_WRONG_RUN');
    return claims;
  }

  private count(code: DataPlaneErrorCode): void {
    this.refused.set(code, (this.refused.get(code) ?? 0) + 1);
  }
}
