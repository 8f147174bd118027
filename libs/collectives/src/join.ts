/**
 * How a group comes together: every member listens at its address, and dials those before it, again and again until they are there. Both ends prove
 * that they know the secret (proof.ts) before anything else is said.
 */
import type { Clock, Connection } from '@paceline/exchange';
import { ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import { ClusterError, MemberLostError } from './errors.js';
import { Link } from './link.js';
import { isProof, newNonce, proofOf, type Handshake } from './proof.js';

export interface Transport {
  /** Hands over connections whose `hello` has come as their first message. */
  listen(onConnection: (connection: Connection) => void): Promise<{ close(): Promise<void> }>;
  connect(member: number): Promise<Connection>;
}

export interface JoinOptions {
  readonly self: number;
  /** Of all members, for people. */
  readonly names: readonly string[];
  /** UUID of what all members must have in common. */
  readonly group: string;
  readonly secret: string;
  readonly transport: Transport;
  readonly clock: Clock;
  /** For all members to come. */
  readonly deadlineMs: number;
}

export interface Joined {
  /** By member; undefined for this one. */
  readonly links: readonly (Link | undefined)[];
  close(): Promise<void>;
}

const RETRY_MS = 200;
/** Answers of a member that do not change by asking again. */
const FINAL: ReadonlySet<string> = new Set(['TOKEN_INVALID', 'RUN_UNKNOWN', 'SEAT_TAKEN', 'PROTOCOL_VERSION']);
const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };
const WRONG_SECRET = 'the proof of the shared secret is wrong: give every process the same secret';

/**
 * @throws ClusterError when a member refuses this one, for another secret or another cluster
 * @throws MemberLostError when members have not come within the deadline
 */
export async function joinGroup(options: JoinOptions): Promise<Joined> {
  const joining = new Joining(options);
  const listener = await options.transport.listen((connection) => joining.accept(connection));
  try {
    return { links: await joining.complete(), close: () => listener.close() };
  } catch (error) {
    joining.stop();
    await listener.close();
    throw error;
  }
}

class Joining {
  private readonly links: (Link | undefined)[];
  private readonly why = new Map<number, string>();
  private isOver = false;
  private check: () => void = () => undefined;
  private fail: (error: Error) => void = () => undefined;

  constructor(private readonly options: JoinOptions) {
    this.links = options.names.map(() => undefined);
  }

  async complete(): Promise<readonly (Link | undefined)[]> {
    const { self, names, clock, deadlineMs } = this.options;
    if (names.length === 1) return this.links;
    let cancel = (): void => undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        this.fail = reject;
        this.check = () => {
          if (this.links.every((link, member) => member === self || link)) resolve();
        };
        cancel = clock.after(deadlineMs, () => reject(this.late()));
        for (let member = 0; member < self; member++) this.dial(member);
        this.check();
      });
      return this.links;
    } finally {
      cancel();
      this.isOver = true;
    }
  }

  stop(): void {
    this.isOver = true;
    for (const link of this.links) link?.connection.close();
  }

  private late(): MemberLostError {
    const { names, self, deadlineMs } = this.options;
    const late = names.flatMap((_, member) => (member !== self && !this.links[member] ? [member] : []));
    const said = late.map((member) => names[member]! + (this.why.has(member) ? ` (${this.why.get(member)!})` : '')).join(', ');
    return new MemberLostError(
      late,
      `waited ${deadlineMs} ms for ${said} to join. Start every process of the cluster with the same cluster and secret, and see that its port is open`,
    );
  }

  private dial(member: number): void {
    if (this.isOver) return;
    const again = (why: string): void => {
      this.why.set(member, why);
      this.options.clock.after(RETRY_MS, () => this.dial(member));
    };
    this.options.transport.connect(member).then(
      (connection) => {
        if (this.isOver) connection.close();
        else this.introduce(connection, member, again);
      },
      (error: Error) => again(error.message),
    );
  }

  /** Of who dials: hello with a nonce, the other's proof, the own proof. */
  private introduce(connection: Connection, to: number, again: (why: string) => void): void {
    const { self, group, secret, names } = this.options;
    const dialNonce = newNonce();
    connection.setReceiver(
      beforeProof({
        message: (message) => {
          if (message.type === 'refused') return;
          const { nonce, proof } = expected(message);
          const handshake: Handshake = { group, from: self, to, dialNonce, acceptNonce: nonce };
          if (!isProof(proof, proofOf(secret, 'accepts', handshake))) {
            this.fail(new ClusterError(`${names[to]!}: ${WRONG_SECRET}`));
            throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
          }
          connection.sendMessage({ type: 'prove', nonce: dialNonce, proof: proofOf(secret, 'dials', handshake) }, NUMBERS);
          this.admit(to, connection);
        },
        closed: (description, error) => {
          if (error && FINAL.has(error.code)) this.fail(new ClusterError(`${names[to]!} refuses this process: ${error.detail}`));
          else again(description);
        },
      }),
    );
    const hello = { type: 'hello' as const, token: dialNonce, run: group, role: 'member' as const, id: String(self), host: '' };
    connection.sendMessage({ ...hello, seat: self, incarnation: 0, fingerprint: '', layout: '' }, NUMBERS);
  }

  /** Of who listens. */
  accept(connection: Connection): void {
    const { self, group, secret, names } = this.options;
    let handshake: Handshake | undefined;
    connection.setReceiver(
      beforeProof({
        message: (message) => {
          if (message.type === 'hello') {
            const { role, run, seat, token } = message;
            if (role !== 'member' || run !== group)
              throw new ProtocolError(
                'RUN_UNKNOWN',
                'it has another cluster, or other numbers of replicas: give every process the same ones',
              );
            if (seat <= self || seat >= names.length || this.links[seat])
              throw new ProtocolError(
                'SEAT_TAKEN',
                `another process is ${names[seat] ?? `member ${seat}`}: every process needs a task of its own`,
              );
            handshake = { group, from: seat, to: self, dialNonce: token, acceptNonce: newNonce() };
            const answer = { nonce: handshake.acceptNonce, proof: proofOf(secret, 'accepts', handshake) };
            return connection.sendMessage({ type: 'prove', ...answer }, NUMBERS);
          }
          const { proof } = expected(message);
          if (!handshake || !isProof(proof, proofOf(secret, 'dials', handshake))) throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
          if (this.links[handshake.from]) throw new ProtocolError('SEAT_TAKEN', `another process is ${names[handshake.from]!}`);
          this.admit(handshake.from, connection);
        },
        closed: () => undefined,
      }),
    );
  }

  private admit(member: number, connection: Connection): void {
    this.links[member] = new Link(connection);
    this.check();
  }
}

function expected(message: Message): MessageOf<'prove'> {
  if (message.type !== 'prove') throw new ProtocolError('BAD_MESSAGE', `${message.type} came before the proof`);
  return message;
}

function beforeProof(on: { message(message: Message): void; closed(description: string, error: ProtocolError | undefined): void }) {
  const refuse = (_: FrameHeader): never => {
    throw new ProtocolError('HELLO_EXPECTED', 'data came before the proof');
  };
  return {
    payloadFor: refuse,
    data: refuse,
    message: (message: Message) => on.message(message),
    closed: ({ description, error }: { description: string; error?: ProtocolError | undefined }) => on.closed(description, error),
  };
}
