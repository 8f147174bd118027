/**
 * How a group comes together: every member listens at its address, and dials those before it, again and again until they are there. Both ends prove
 * that they know the secret (proof.ts) before anything else is said.
 */
import type { Clock, Connection } from '@paceline/exchange';
import { ProtocolError, type MessageOf } from '@paceline/protocol';
import { ClusterError, MemberLostError } from './errors.js';
import { beforeProof, expected, FINAL, NUMBERS, PROOF_DEADLINE_MS, WRONG_SECRET } from './greeting.js';
import { Link } from './link.js';
import { isProof, newNonce, proofOf, type Handshake } from './proof.js';

export interface Transport {
  /** Hands over connections whose `hello` has come as their first message. */
  listen(onConnection: (connection: Connection) => void): Promise<{ close(): Promise<void> }>;
  connect(member: number): Promise<Connection>;
}

export interface JoinOptions {
  readonly self: number;
  /** The names of all members, for people. */
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
const OTHER_GROUP =
  'it has another cluster, another number of replicas or another seed, or other options of the exchange: give every process the same ones';

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
  /** Their handshakes have begun. */
  private readonly greeting = new Set<Connection>();
  private isOver = false;
  private check: () => void = () => undefined;
  private fail: (error: Error) => void = () => undefined;

  constructor(private readonly options: JoinOptions) {
    this.links = options.names.map(() => undefined);
  }

  async complete(): Promise<readonly (Link | undefined)[]> {
    const { self, names, clock, deadlineMs } = this.options;
    let cancel = (): void => undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        this.fail = reject;
        this.check = () => {
          if (names.every((_, member) => member === self || this.isHere(member))) resolve();
        };
        cancel = clock.after(deadlineMs, () => reject(this.late()));
        for (let member = 0; member < self; member++) this.dial(member);
        this.check();
      });
      return this.links;
    } finally {
      cancel();
      this.isOver = true;
      for (const connection of this.greeting) connection.close();
    }
  }

  /** A member whose connection has ended may come again while the group is not complete. */
  private isHere(member: number): boolean {
    return this.links[member]?.isOpen === true;
  }

  stop(): void {
    this.isOver = true;
    for (const link of this.links) link?.connection.close();
  }

  private late(): MemberLostError {
    const { names, self, deadlineMs } = this.options;
    const late = names.flatMap((_, member) => (member !== self && !this.isHere(member) ? [member] : []));
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

  /** The side that dials: it sends hello with a nonce, gets the other's proof, and sends its own. */
  private introduce(connection: Connection, to: number, again: (why: string) => void): void {
    const { self, group, secret, names } = this.options;
    const dialNonce = newNonce();
    this.greeting.add(connection);
    connection.setReceiver(
      beforeProof({
        message: (message) => {
          const { nonce, proof } = expected(message);
          const handshake: Handshake = { group, from: self, to, dialNonce, acceptNonce: nonce };
          if (!isProof(proof, proofOf(secret, 'accepts', handshake))) {
            this.fail(new ClusterError(`${names[to]!}: ${WRONG_SECRET}`));
            throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
          }
          connection.sendMessage({ type: 'prove', nonce: dialNonce, proof: proofOf(secret, 'dials', handshake) }, NUMBERS);
          this.greeting.delete(connection);
          this.admit(to, connection, again);
        },
        closed: (description, error) => {
          this.greeting.delete(connection);
          if (error && FINAL.has(error.code)) this.fail(new ClusterError(`${names[to]!} refuses this process: ${error.detail}`));
          else again(error?.detail ?? description);
        },
      }),
    );
    const hello = { type: 'hello' as const, token: dialNonce, run: group, role: 'member' as const, id: String(self), host: '' };
    connection.sendMessage({ ...hello, seat: self, incarnation: 0, fingerprint: '', layout: '' }, NUMBERS);
  }

  /** The side that listens: it gets the other's hello, sends its own proof, and gets the other's. */
  accept(connection: Connection): void {
    const { self, secret, names, clock } = this.options;
    let from: number | undefined;
    let handshake: Handshake | undefined;
    const cancel = clock.after(PROOF_DEADLINE_MS, () =>
      connection.close(new ProtocolError('HELLO_EXPECTED', `no proof of the shared secret within ${PROOF_DEADLINE_MS} ms`)),
    );
    const settled = (): void => {
      cancel();
      this.greeting.delete(connection);
    };
    this.greeting.add(connection);
    connection.setReceiver(
      beforeProof({
        message: (message) => {
          if (message.type === 'hello') {
            if (handshake) throw new ProtocolError('BAD_MESSAGE', 'a second hello');
            if (message.seat > self && message.seat < names.length) from = message.seat;
            handshake = this.greeted(message);
            const answer = { nonce: handshake.acceptNonce, proof: proofOf(secret, 'accepts', handshake) };
            return connection.sendMessage({ type: 'prove', ...answer }, NUMBERS);
          }
          const { proof } = expected(message);
          if (!handshake || !isProof(proof, proofOf(secret, 'dials', handshake))) throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
          this.checkFree(handshake.from);
          settled();
          this.admit(handshake.from, connection, (why) => this.why.set(from!, why));
        },
        closed: (description, error) => {
          settled();
          if (from !== undefined && !this.isHere(from)) this.why.set(from, error?.detail ?? description);
        },
      }),
    );
  }

  /** @throws ProtocolError for who cannot be a member, or is one already */
  private greeted({ role, run, seat, token }: MessageOf<'hello'>): Handshake {
    const { self, group } = this.options;
    if (role !== 'member' || run !== group) throw new ProtocolError('RUN_UNKNOWN', OTHER_GROUP);
    this.checkFree(seat);
    return { group, from: seat, to: self, dialNonce: token, acceptNonce: newNonce() };
  }

  /** @throws ProtocolError SEAT_TAKEN */
  private checkFree(seat: number): void {
    const { self, names } = this.options;
    const name = names[seat] ?? `member ${seat}`;
    if (seat <= self || seat >= names.length || this.isHere(seat))
      throw new ProtocolError('SEAT_TAKEN', `another process is ${name}: every process needs a task of its own`);
    if (this.isOver) throw new ProtocolError('SEAT_TAKEN', `the group has begun with another ${name}: start all processes again`);
  }

  private admit(member: number, connection: Connection, onEnd: (why: string) => void): void {
    this.links[member] = new Link(connection, onEnd);
    this.check();
  }
}
