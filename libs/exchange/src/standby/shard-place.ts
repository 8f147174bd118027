/**
 * One server's place in the shard of an index, as primary or as standby, with its links to the coordinator and to each other:
 *
 *   primary   waits for its standby, then joins the coordinator; forwards what is reduced and what the coordinator says
 *   standby   dials its primary and follows it; when it is promoted it joins the coordinator in its place (index 0: makes one)
 *
 * A run without standbys has primaries alone, which join at once. Where the coordinator has a standby, a broken link to it is
 * opened again, at either address, until somebody there coordinates. Clock, transport and arbiter are arguments: server processes and
 * the simulator run this same file.
 */
import { ProtocolError, checkAttempt, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Clock } from '../clock.js';
import type { Connection, FrameReceiver } from '../connection.js';
import type { Replication } from './replication.js';
import type { ShardMachine } from './shard-machine.js';
import { ShardLink } from '../transfer/shard-transfer.js';
import { Standby } from './standby.js';
import { PeerTimeouts } from '../transports/peer-timeouts.js';
import type { LinkedServer } from '../attempt/server-links.js';

const PAUSE_MS = 50;
/** A standby that was told of the end closes its link; after this long its primary does. */
const HANG_UP_MS = 1_000;
/** A coordinator speaks every second; with another address to try, one that is stopped is not waited for longer. */
const ANSWER_MS = 2_500;
/** Longer than a coordinator waits for a server: of the two it is the coordinator that ends the attempt, with the cause. */
const SILENT_MS = 11_000;
/** The primary may not have begun yet. */
const LINK_WITHIN_MS = 15_000;
const RUN_OVER: Message = { type: 'end', outcome: 'finished', message: 'the run is over here' };

/**
 * Why a server has nothing to do in its place any more: the run is over, another server has the shard or may have it, its standby is
 * not needed or not wanted, or nobody coordinates.
 */
export type PlaceEnd = 'RUN_OVER' | 'REPLACED' | 'STANDBY_OVER' | 'COORDINATOR_GONE';

export interface ShardLead {
  /** Raised at each takeover inside the attempt. */
  readonly term: number;
  readonly primary: string;
  readonly standby: string | null;
}

export interface ShardPlaceOptions<Address extends LinkedServer> {
  readonly index: number;
  readonly attempt: number;
  readonly serverId: string;
  readonly isStandby: boolean;
  readonly clock: Clock;
  /** Opens a connection within its own deadline. */
  connect(address: Address): Promise<Connection>;
  hello(role: 'server' | 'standby'): MessageOf<'hello'>;
  /** Asks the arbiter; its answer comes through `answered`. Repeated until it does, or the place is given up. */
  ask(want: 'drop' | 'promote', term: number): void;
  /** Index 0: the near end of a connection to the coordinator in this process, made for the purpose after a promotion. */
  coordinatorHere(isPromoted: boolean): Connection;
  /** Workers may be admitted from now on. */
  onPromoted(): void;
  /** Nothing is left for this server to do. */
  onOver(end: PlaceEnd, why: string): void;
  /** Runs what may fail for this run alone. */
  guard(act: () => void): void;
  readonly giveUpMs?: number;
  readonly silentMs?: number;
  /** For how long the arbiter is asked. */
  readonly askAtMostMs?: number;
}

/** How often `tick` is called. */
const TICK_MS = 100;

/** Where the servers of the attempt are: primaries by index, and the standbys that there are. */
interface Addresses<Address> {
  readonly servers: readonly Address[];
  readonly standbys: readonly Address[];
}

export class ShardPlace<Address extends LinkedServer> {
  replication: Replication | undefined;
  standby: Standby | undefined;
  private shard!: ShardMachine;
  private addresses: Addresses<Address> = { servers: [], standbys: [] };
  private toCoordinator: Connection | undefined;
  private readonly timeouts: PeerTimeouts;
  private coordinatorTerm = 0;
  private toldTerm = 0;
  private hasJoined = false;
  private readonly untold: Message[] = [];
  private isOver = false;

  constructor(private readonly options: ShardPlaceOptions<Address>) {
    this.timeouts = new PeerTimeouts(options.clock, { silentAfterMs: options.silentMs ?? SILENT_MS, tickMs: TICK_MS });
  }

  /** The shard tells through `tell` and takes what comes; it is made with it. */
  use(shard: ShardMachine): void {
    this.shard = shard;
  }

  /** All servers of the attempt are claimed. */
  start(addresses: Addresses<Address>): void {
    this.addresses = addresses;
    const { isStandby, index } = this.options;
    if (isStandby) void this.dialPrimary((this.standby = this.createStandby()));
    else if (addresses.standbys.some((address) => address.index === index)) this.replication = this.createReplication();
    else this.join(false);
  }

  private createReplication(): Replication {
    const { options } = this;
    return this.shard.replicate({
      ...this.requestOptions(),
      numbers: () => this.shard.numbers(),
      askToDrop: () => options.ask('drop', this.shard.term),
      tellCoordinator: (message) => this.send(message),
      onReady: () => this.join(false),
      onDeposed: (why) => this.over('REPLACED', why),
    });
  }

  private createStandby(): Standby {
    const { options } = this;
    return new Standby({
      ...this.requestOptions(),
      attempt: options.attempt,
      shard: () => this.shard,
      askToPromote: () => options.ask('promote', this.shard.term),
      onPromoted: () => {
        options.onPromoted();
        this.join(true);
      },
      onOver: (why) => this.over('STANDBY_OVER', why),
    });
  }

  private requestOptions() {
    const { clock, silentMs, askAtMostMs } = this.options;
    return {
      now: () => clock.now(),
      ...(silentMs === undefined ? {} : { silentMs }),
      ...(askAtMostMs === undefined ? {} : { askAtMostMs }),
    };
  }

  /** True when workers and servers may speak to this one. */
  get isPrimary(): boolean {
    if (this.isOver) return false;
    return this.options.isStandby ? this.standby?.table.state === 'PROMOTED' : this.replication?.table.state !== 'DEPOSED';
  }

  /** Somebody waits for the arbiter. */
  get isAsking(): boolean {
    return (this.replication ?? this.standby)?.table.state === 'ASKING';
  }

  waitingFor(): string | null {
    return (this.replication ?? this.standby)?.waitingFor() ?? null;
  }

  /** A standby has shown its token. @throws ProtocolError */
  admitStandby(id: string, connection: Connection): FrameReceiver {
    const { replication, options } = this;
    const expected = this.addresses.standbys.find(({ index }) => index === options.index);
    if (!replication || expected?.serverId !== id) throw new ProtocolError('NOT_PRIMARY', `${id} is no standby of this server`);
    const receiver: FrameReceiver = {
      payloadFor: () => {
        throw new ProtocolError('BAD_FRAME', 'a standby sends no data');
      },
      data: () => undefined,
      message: (message, header) => {
        // The connection closes with what the standby refused: `closed` says it.
        if (message.type === 'refused') return;
        checkAttempt(header, options.attempt);
        options.guard(() => replication.message(connection, message));
      },
      closed: ({ description }) => options.guard(() => replication.closed(connection, description)),
    };
    options.guard(() => replication.join(id, connection));
    connection.setReceiver(receiver);
    return receiver;
  }

  /** What the shard has for the coordinator. */
  tell(message: Message): void {
    if (this.options.isStandby && !this.isPrimary) return; // where it stands is said when it joins
    if (this.replication) this.replication.tell(message);
    else this.send(message);
  }

  /** The coordinator here has come to the end of the attempt: acts when no standby goes on with it. */
  conclude(act: () => void): void {
    if (this.replication) this.replication.conclude(RUN_OVER, act);
    else act();
  }

  /** What the arbiter has written about this index. */
  answered(lead: ShardLead): void {
    const { serverId, guard } = this.options;
    const isPrimary = lead.primary === serverId;
    guard(() => {
      this.replication?.answered({ isPrimary, hasStandby: lead.standby !== null });
      this.standby?.answered({ isPrimary, isStandby: lead.standby === serverId, term: lead.term });
    });
  }

  /** This process has to end. */
  leaves(why: string): void {
    this.standby?.leaves(why);
  }

  /** A standby follows that could take over at once. */
  get canHandOver(): boolean {
    return this.replication?.canHandOver ?? false;
  }

  /** This process has to end, and leaves the shard to its standby. False when it cannot. */
  handOver(): boolean {
    return this.replication?.handOver() ?? false;
  }

  /** Every second. */
  heartbeat(): void {
    if (this.toCoordinator) this.send({ type: 'heartbeat', progress: this.shard.round });
    this.replication?.heartbeat();
    this.standby?.heartbeat();
  }

  /** Every 100 ms or so. */
  tick(): void {
    this.replication?.tick();
    this.standby?.tick();
    if (this.options.index !== 0) this.timeouts.tick();
  }

  /** @param isRunOver the standby is told, so that it does not take over */
  end(isRunOver = false): void {
    if (this.isOver) return;
    this.isOver = true;
    const link = this.replication?.end(isRunOver ? RUN_OVER : undefined);
    if (link) this.options.clock.after(HANG_UP_MS, () => link.close());
    this.standby?.end('the run is over here');
    this.toCoordinator?.close();
  }

  private over(end: PlaceEnd, why: string): void {
    if (this.isOver) return;
    this.end();
    this.options.onOver(end, why);
  }

  // ---- to the coordinator ----

  private send(message: Message): void {
    if (this.toCoordinator?.isOpen) this.toCoordinator.sendMessage(message, this.shard.numbers());
    else if (!this.hasJoined) this.untold.push(message);
    // Else it is said again, as far as it matters, by `standing` of the next connection.
  }

  private join(isPromoted: boolean): void {
    const { index, coordinatorHere, clock } = this.options;
    const { servers, standbys } = this.addresses;
    if (index === 0) return this.useCoordinator(coordinatorHere(isPromoted), undefined);
    const addresses = [servers[0]!, ...standbys.filter((address) => address.index === 0)];
    void this.dialCoordinator(addresses, 0, clock.now(), undefined);
  }

  private async dialCoordinator(addresses: readonly Address[], turn: number, sinceMs: number, trouble: string | undefined): Promise<void> {
    const { clock, connect, giveUpMs = 300_000 } = this.options;
    for (;;) {
      if (trouble !== undefined && (addresses.length === 1 || clock.now() - sinceMs > giveUpMs))
        return this.over('COORDINATOR_GONE', `the coordinator is gone: ${trouble}`);
      if (trouble !== undefined) await new Promise<void>((resolve) => clock.after(PAUSE_MS, resolve));
      if (this.isOver) return;
      try {
        const connection = await connect(addresses[turn % addresses.length]!);
        if (this.isOver) return connection.close();
        return this.useCoordinator(connection, { addresses, turn });
      } catch (error) {
        trouble = (error as Error).message;
        turn++;
      }
    }
  }

  private useCoordinator(connection: Connection, dialled: { addresses: readonly Address[]; turn: number } | undefined): void {
    const { options, shard } = this;
    const { clock } = options;
    this.toCoordinator = connection;
    this.timeouts.watch(connection);
    const coordinator = new ShardLink('coordinator', connection, false);
    const hasOther = dialled !== undefined && dialled.addresses.length > 1;
    const cancelUnanswered = hasOther
      ? clock.after(ANSWER_MS, () => connection.close(new ProtocolError('SILENT_PEER', `no answer to HELLO within ${ANSWER_MS} ms`)))
      : () => undefined;
    connection.setReceiver({
      payloadFor: () => {
        throw new ProtocolError('BAD_FRAME', 'the coordinator sends no data');
      },
      data: () => undefined,
      message: (message, header) => {
        if (message.type === 'refused') return;
        cancelUnanswered();
        checkAttempt(header, options.attempt);
        this.checkTerm(header);
        options.guard(() => this.fromCoordinator(coordinator, message));
      },
      closed: ({ description }) => {
        cancelUnanswered();
        this.timeouts.forget(connection);
        if (this.toCoordinator === connection) this.toCoordinator = undefined;
        if (this.isOver) return;
        if (!hasOther) return this.over('COORDINATOR_GONE', `the coordinator is gone: ${description}`);
        void this.dialCoordinator(dialled.addresses, dialled.turn + 1, clock.now(), description);
      },
    });
    shard.finishWork();
    const numbers = shard.numbers();
    if (dialled) connection.sendMessage(options.hello('server'), numbers);
    if (this.addresses.standbys.length > 0) shard.stand((standing) => connection.sendMessage(standing, shard.numbers()));
    // A coordinator that has taken over has not heard it yet.
    const link = this.hasJoined ? this.replication?.standbyLink : undefined;
    if (link) connection.sendMessage(link, numbers);
    this.hasJoined = true;
    for (const message of this.untold.splice(0)) this.send(message);
  }

  private tellAgain(): void {
    this.shard.finishWork();
    this.shard.tellAgain();
  }

  /** @throws ProtocolError STALE_TERM when a former coordinator speaks */
  private checkTerm({ term }: FrameHeader): void {
    if (term < this.coordinatorTerm) throw new ProtocolError('STALE_TERM', `term ${term}, present is ${this.coordinatorTerm}`);
    this.coordinatorTerm = term;
  }

  private fromCoordinator(link: ShardLink, message: Message): void {
    const { shard, replication } = this;
    if (message.type === 'heartbeat') return;
    if (message.type === 'end' && !replication) return this.over('RUN_OVER', 'the run is over');
    // Before its standby is told what comes next.
    shard.finishWork();
    switch (message.type) {
      case 'end':
        replication?.follow(message);
        return this.over('RUN_OVER', 'the run is over');
      case 'tell-again':
        return this.tellAgain();
      default:
        replication?.order(message);
        if (!shard.fromCoordinator(link, message))
          throw new ProtocolError('BAD_MESSAGE', `the coordinator does not send ${message.type} to a server`);
    }
    if (message.type !== 'view') return;
    if (message.term > this.toldTerm && this.toldTerm > 0) this.tellAgain();
    this.toldTerm = message.term;
  }

  // ---- standby to its primary ----

  private async dialPrimary(standby: Standby): Promise<void> {
    const { clock, connect, index, hello } = this.options;
    const sinceMs = clock.now();
    for (;;) {
      let trouble: string;
      try {
        const connection = await connect(this.addresses.servers[index]!);
        if (this.isOver) return connection.close();
        connection.setReceiver(this.primaryReceiver(standby, connection, sinceMs));
        connection.sendMessage(hello('standby'), this.shard.numbers());
        return;
      } catch (error) {
        trouble = (error as Error).message;
      }
      if (clock.now() - sinceMs > LINK_WITHIN_MS) return standby.broken(`the primary cannot be reached: ${trouble}`);
      await new Promise<void>((resolve) => clock.after(PAUSE_MS, resolve));
      if (this.isOver) return;
    }
  }

  private primaryReceiver(standby: Standby, connection: Connection, sinceMs: number): FrameReceiver {
    const { guard, clock } = this.options;
    let isLinked = false;
    return {
      payloadFor: (header) => standby.payloadFor(header),
      data: (header) => guard(() => standby.data(header)),
      message: (message, header) => {
        if (message.type === 'refused') return;
        if (!isLinked) standby.linked(connection);
        isLinked = true;
        guard(() => standby.message(message, header));
      },
      closed: ({ description }) => {
        if (this.isOver) return;
        if (isLinked) return guard(() => standby.closed(connection, description));
        // It has not begun yet: asked again.
        if (clock.now() - sinceMs > LINK_WITHIN_MS) return guard(() => standby.broken(`the primary did not take it: ${description}`));
        clock.after(PAUSE_MS, () => !this.isOver && void this.dialPrimary(standby));
      },
    };
  }
}
