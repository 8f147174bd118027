/**
 * How a group comes together: every member listens at its address, and dials those before it, again and again until they are there. Both ends prove
 * that they know the secret (proof.ts) before anything else is said. When a member is lost, those that are left come together in the same way, without it.
 */
import type { CancelTimer, Clock, Connection } from '@paceline/exchange';
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
  /** This process may come for the place of one that was lost while the others went on. */
  readonly mayReplace?: boolean;
}

/** Members that may come together again after one was lost, and how long they have. */
export interface AgainOptions {
  readonly among: readonly number[];
  /** Members that are thought to be lost. */
  readonly suspects: readonly number[];
  /** A suspect may show for so long that it is none. */
  readonly graceMs: number;
  /** All others may come for so long. */
  readonly deadlineMs: number;
  /** This process is let in: others are about to hear of it. */
  readonly isAwaited?: boolean;
}

/** The members that have come, and what is known of the others. */
export interface Gathered {
  /** By member; undefined for this one, and for those that have not come. */
  readonly links: readonly (Link | undefined)[];
  /** Their hosts say that nobody listens at their addresses: their processes have ended. */
  readonly dead: readonly number[];
}

/** A member of a group that has begun, which will let this process in: it came for the place of one that was lost (admission.ts). */
export interface Offer {
  readonly member: number;
  readonly link: Link;
}

/** What a member of a group says to those that come. */
export interface Gate {
  /** It has no place any more. */
  isOut(member: number): boolean;
  /** A process that comes anew for that place may be let in. */
  offers(member: number): boolean;
  arrived(member: number, link: Link): void;
}

export interface Joined {
  /** For a process that comes for the place of a lost one; undefined for one that was there from the beginning. */
  readonly offer: Offer | undefined;
  /** Comes for it again. @throws MemberLostError `few` when nobody offers it within the deadline */
  apply(deadlineMs: number): Promise<Offer>;
  /** From now on those that go on ask for this process: it says no more that it has nothing to do with them. */
  awaits(): void;
  /** By member; undefined for this one. */
  readonly links: readonly (Link | undefined)[];
  /**
   * Connects again. It ends when everybody has come who may, but for those whose processes have ended, and for suspects after their grace; at the latest at
   * the deadline.
   * @throws MemberLostError `out` when the others have gone on without this member
   */
  again(options: AgainOptions): Promise<Gathered>;
  /** Whoever asks from now on is told that. */
  keep(gate: Gate): void;
  close(): Promise<void>;
}

/**
 * Whether the host says that nobody listens there; where a name has several addresses, at each of them. The path of a Unix socket goes with the process
 * that listened.
 */
function isNobodyThere(error: Error): boolean {
  const { code, errors } = (error.cause ?? error) as { readonly code?: unknown; readonly errors?: readonly Error[] };
  if (errors) return errors.length > 0 && errors.every(isNobodyThere);
  return code === 'ECONNREFUSED' || code === 'ENOENT';
}

/** Before a member is dialled again; the second where those that are left come together, which others learn within milliseconds. */
const [RETRY_MS, AGAIN_MS] = [200, 25];
/** Before a process asks members behind it too: if it is new, those before it may be lost. */
const KNOCK_AFTER_MS = 600;
const NO_GATE: Gate = { isOut: () => false, offers: () => false, arrived: () => undefined };
const WENT_ON = 'the others have given this process up and gone on without it: end it';
const OTHER_GROUP =
  'it has another cluster, another number of replicas or another seed, or other options of the exchange: give every process the same ones';

/**
 * @throws ClusterError when a member refuses this one, for another secret or another cluster
 * @throws MemberLostError when members have not come within the deadline
 */
export async function joinGroup(options: JoinOptions): Promise<Joined> {
  const gate: { now: Gate } = { now: NO_GATE };
  let joining = new Joining(options, gate);
  const listener = await options.transport.listen((connection) => joining.accept(connection));
  const again = async (asked: AgainOptions): Promise<Gathered> => {
    joining.stop();
    joining = new Joining({ ...options, deadlineMs: asked.deadlineMs }, gate, asked);
    try {
      return { links: await joining.complete(), dead: joining.dead };
    } catch (error) {
      joining.stop();
      throw error;
    }
  };
  const apply = async (deadlineMs: number): Promise<Offer> => {
    joining.stop();
    joining = new Joining({ ...options, deadlineMs }, gate);
    await joining.complete().catch((error: unknown) => {
      joining.stop();
      // Nobody is there who could be asked again.
      throw error instanceof MemberLostError ? new MemberLostError(error.members, error.message, 'few') : error;
    });
    if (joining.offer) return joining.offer;
    joining.stop();
    throw new MemberLostError([], 'all others have begun anew while this process came for its place: start it again', 'few');
  };
  try {
    return {
      links: await joining.complete(),
      offer: joining.offer,
      again,
      apply,
      awaits: () => void (joining.isAwaited = true),
      keep: (asked) => void (gate.now = asked),
      close: async () => {
        joining.end();
        await listener.close();
      },
    };
  } catch (error) {
    joining.stop();
    await listener.close();
    throw error;
  }
}

type Side = Exclude<Parameters<typeof proofOf>[1], 'dials'>;

class Joining {
  private readonly links: (Link | undefined)[];
  private readonly why = new Map<number, string>();
  /** Their handshakes have begun. */
  private readonly greeting = new Set<Connection>();
  private isOver = false;
  private check: () => void = () => undefined;
  private fail: (error: Error) => void = () => undefined;

  /** Their processes have ended. */
  private readonly ended = new Set<number>();
  private hasGrace = true;
  offer: Offer | undefined;
  /** All have come, for the first time. */
  private isComplete = false;
  isAwaited = false;

  constructor(
    private readonly options: JoinOptions,
    private readonly gate: { readonly now: Gate },
    private readonly rejoining?: AgainOptions,
  ) {
    this.links = options.names.map(() => undefined);
  }

  get dead(): readonly number[] {
    return [...this.ended];
  }

  private get others(): readonly number[] {
    const { names, self } = this.options;
    return (this.rejoining?.among ?? names.map((_, member) => member)).filter((member) => member !== self);
  }

  async complete(): Promise<readonly (Link | undefined)[]> {
    const { self, clock, deadlineMs } = this.options;
    const { others, rejoining } = this;
    const timers: CancelTimer[] = [];
    try {
      await new Promise<void>((resolve, reject) => {
        this.fail = reject;
        this.check = () => {
          if (this.offer || others.every((member) => this.isHere(member) || this.isGivenUp(member))) resolve();
        };
        timers.push(clock.after(deadlineMs, () => (rejoining ? resolve() : reject(this.late()))));
        if (rejoining)
          timers.push(
            clock.after(rejoining.graceMs, () => {
              this.hasGrace = false;
              this.check();
            }),
          );
        for (const member of others)
          if (member < self) this.dial(member);
          else if (rejoining) this.knock(member);
          else if (this.options.mayReplace) timers.push(clock.after(KNOCK_AFTER_MS, () => this.knock(member)));
        this.check();
      });
      this.isComplete = !this.offer;
      if (this.offer) for (const link of this.links) link?.connection.close();
      return this.links;
    } finally {
      for (const cancel of timers) cancel();
      this.isOver = true;
      for (const connection of this.greeting) connection.close();
    }
  }

  /** A member whose connection has ended may come again while the group is not complete. */
  private isHere(member: number): boolean {
    return this.links[member]?.isOpen === true;
  }

  private get retryMs(): number {
    return this.rejoining ? AGAIN_MS : RETRY_MS;
  }

  private isGivenUp(member: number): boolean {
    const { rejoining } = this;
    return rejoining !== undefined && (this.ended.has(member) || (!this.hasGrace && rejoining.suspects.includes(member)));
  }

  /** @returns whether the process is known to have ended, where those that are left come together */
  private noteEnded(member: number, hasEnded: boolean): boolean {
    if (!this.rejoining || !hasEnded) return false;
    this.ended.add(member);
    this.check();
    return true;
  }

  /** A member that dials this one: whether its process has ended, has gone on without this one, or lets it in. */
  private knock(member: number): void {
    if (this.isHere(member)) return;
    this.reach(member, () => this.options.clock.after(this.retryMs, () => this.knock(member)));
  }

  /** Admission ends: a member that has not come by now comes no more, and those that have come stay. */
  end(): void {
    if (!this.isOver) this.stop();
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
    const again = (why: string): void => {
      this.why.set(member, why);
      this.options.clock.after(this.retryMs, () => this.dial(member));
    };
    this.reach(member, again);
  }

  private reach(member: number, again: (why: string) => void): void {
    if (this.isOver) return;
    this.options.transport.connect(member).then(
      (connection) => {
        if (this.isOver) connection.close();
        else this.introduce(connection, member, again);
      },
      (error: Error) => {
        if (!this.noteEnded(member, isNobodyThere(error))) again(error.message);
      },
    );
  }

  /** Whether a process comes for the first time, or comes again: both are not taken for each other. */
  private get incarnation(): number {
    return this.rejoining ? 1 : 0;
  }

  /** The side that dials: it sends hello with a nonce, gets the other's proof, and sends its own. Who knocks at a member behind it is refused a seat there. */
  private introduce(connection: Connection, to: number, again: (why: string) => void): void {
    const { self, group, secret, names } = this.options;
    const dialNonce = newNonce();
    this.greeting.add(connection);
    connection.setReceiver(
      beforeProof({
        message: (message) => {
          const { nonce, proof } = expected(message);
          const handshake: Handshake = { group, from: self, to, dialNonce, acceptNonce: nonce };
          if (this.rejoining && isProof(proof, proofOf(secret, 'goes on', handshake)))
            // A process that is let in may come before all members have heard of it.
            if (this.rejoining.isAwaited && this.hasGrace) return connection.close(new ProtocolError('SEAT_TAKEN', WENT_ON));
            else return this.fail(new MemberLostError([self], `${names[to]!}: ${WENT_ON}`, 'out'));
          if (isProof(proof, proofOf(secret, 'is new', handshake))) {
            connection.close();
            return void this.noteEnded(to, true);
          }
          const isOffered = !this.rejoining && isProof(proof, proofOf(secret, 'admits', handshake));
          if (!isOffered && !isProof(proof, proofOf(secret, 'accepts', handshake))) {
            if (!this.rejoining) this.fail(new ClusterError(`${names[to]!}: ${WRONG_SECRET}`));
            throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
          }
          connection.sendMessage({ type: 'prove', nonce: dialNonce, proof: proofOf(secret, 'dials', handshake) }, NUMBERS);
          this.greeting.delete(connection);
          if (isOffered) this.offered(to, connection);
          else this.admit(to, connection, again);
        },
        closed: (description, error) => {
          this.greeting.delete(connection);
          const isFinal = error !== undefined && FINAL.has(error.code);
          // A process that is no member listens where one did.
          if (this.noteEnded(to, isFinal)) return;
          if (isFinal) this.fail(new ClusterError(`${names[to]!} refuses this process: ${error.detail}`));
          else again(error?.detail ?? description);
        },
      }),
    );
    const hello = { type: 'hello' as const, token: dialNonce, run: group, role: 'member' as const, id: String(self), host: '' };
    connection.sendMessage({ ...hello, seat: self, incarnation: this.incarnation, fingerprint: '', layout: '' }, NUMBERS);
  }

  /** The side that listens: it gets the other's hello, sends its own proof, and gets the other's. */
  accept(connection: Connection): void {
    const { self, secret, names, clock } = this.options;
    let from: number | undefined;
    let handshake: Handshake | undefined;
    let side: Side = 'accepts';
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
            side = this.sideFor(message);
            handshake = this.greeted(message, side);
            const answer = { nonce: handshake.acceptNonce, proof: proofOf(secret, side, handshake) };
            return connection.sendMessage({ type: 'prove', ...answer }, NUMBERS);
          }
          const { proof } = expected(message);
          if (!handshake || !isProof(proof, proofOf(secret, 'dials', handshake))) throw new ProtocolError('TOKEN_INVALID', WRONG_SECRET);
          if (side === 'goes on' || side === 'is new') throw new ProtocolError('SEAT_TAKEN', WENT_ON);
          if (side === 'admits') {
            settled();
            return this.gate.now.arrived(handshake.from, new Link(connection));
          }
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

  /** What this process is to who dials. */
  private sideFor({ seat, incarnation }: MessageOf<'hello'>): Side {
    if (incarnation > 0) {
      // It would come together again with whoever had this place before.
      if (!this.rejoining && !this.isComplete && !this.isAwaited) return 'is new';
      return this.gate.now.isOut(seat) ? 'goes on' : 'accepts';
    }
    return this.isOver && this.gate.now.offers(seat) ? 'admits' : 'accepts';
  }

  private offered(member: number, connection: Connection): void {
    this.offer ??= { member, link: new Link(connection) };
    if (this.offer.link.connection !== connection) connection.close();
    this.check();
  }

  /** @throws ProtocolError for who cannot be a member, or is one already */
  private greeted({ role, run, seat, token, incarnation }: MessageOf<'hello'>, side: Side): Handshake {
    const { self, group } = this.options;
    if (role !== 'member' || run !== group) throw new ProtocolError('RUN_UNKNOWN', OTHER_GROUP);
    if (side === 'accepts') this.checkFree(seat);
    if (side === 'accepts' && incarnation !== this.incarnation) throw new ProtocolError('SEAT_TAKEN', this.begun(seat));
    return { group, from: seat, to: self, dialNonce: token, acceptNonce: newNonce() };
  }

  /** @throws ProtocolError SEAT_TAKEN */
  private checkFree(seat: number): void {
    const { self, names } = this.options;
    const name = names[seat] ?? `member ${seat}`;
    if (seat <= self || seat >= names.length || this.isHere(seat))
      throw new ProtocolError('SEAT_TAKEN', `another process is ${name}: every process needs a task of its own`);
    if (this.isOver) throw new ProtocolError('SEAT_TAKEN', this.begun(seat));
  }

  private begun(seat: number): string {
    return `the group has begun with another ${this.options.names[seat] ?? `member ${seat}`}: start all processes again`;
  }

  private admit(member: number, connection: Connection, onEnd: (why: string) => void): void {
    this.links[member] = new Link(connection, onEnd);
    this.check();
  }
}
