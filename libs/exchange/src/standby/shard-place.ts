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
import { ProtocolError, checkAttempt, type Message } from '@paceline/protocol';
import type { LinkedServer } from '../attempt/server-links.js';
import type { CoordinatorPort } from '../attempt/shard-ports.js';
import type { Connection, FrameNumbers, FrameReceiver } from '../connection.js';
import { CoordinatorLink, type LinkedPlace } from './coordinator-link.js';
import type { PlaceAddresses, PlaceEnd, ShardLead, ShardPlaceOptions } from './place-options.js';
import { PrimaryLink } from './primary-link.js';
import type { PrimaryPlace, Replication } from './replication.js';
import type { ShardMachine } from './shard-machine.js';
import { Standby, type StandbyPlace } from './standby.js';

/** A standby that was told of the end closes its link; after this long its primary does. */
const HANG_UP_MS = 1_000;
const RUN_OVER: Message = { type: 'end', outcome: 'finished', message: 'the run is over here' };

export class ShardPlace<Address extends LinkedServer> implements CoordinatorPort, LinkedPlace, PrimaryPlace, StandbyPlace {
  replication: Replication | undefined;
  standby: Standby | undefined;
  isOver = false;
  private shard!: ShardMachine;
  private addresses: PlaceAddresses<Address> = { servers: [], standbys: [] };
  private readonly coordinator: CoordinatorLink<Address>;
  private primaryLink: PrimaryLink<Address> | undefined;

  constructor(private readonly options: ShardPlaceOptions<Address>) {
    this.coordinator = new CoordinatorLink(options, this);
  }

  /** All servers of the attempt are claimed. @param shard tells through `tell`, and takes what comes */
  start(shard: ShardMachine, addresses: PlaceAddresses<Address>): void {
    const { isStandby, index, attempt, clock, silentMs, askAtMostMs } = this.options;
    this.shard = shard;
    this.addresses = addresses;
    const request = {
      now: () => clock.now(),
      ...(silentMs === undefined ? {} : { silentMs }),
      ...(askAtMostMs === undefined ? {} : { askAtMostMs }),
    };
    if (isStandby) {
      this.standby = new Standby({ ...request, attempt, shard, place: this });
      this.primaryLink = new PrimaryLink(this.options, shard, this.standby, addresses.servers[index]!);
      void this.primaryLink.dial();
    } else if (addresses.standbys.some((address) => address.index === index))
      this.replication = shard.replicate({ ...request, place: this, coordinator: this.coordinator });
    else this.ready();
  }

  // ---- from replication or standby ----

  numbers(): FrameNumbers {
    return this.shard.numbers();
  }

  askToDrop(): void {
    this.options.surroundings.ask('drop', this.shard.term);
  }

  ready(): void {
    this.coordinator.join(this.shard, this.addresses, false);
  }

  deposed(why: string): void {
    this.over('REPLACED', why);
  }

  askToPromote(): void {
    this.options.surroundings.ask('promote', this.shard.term);
  }

  promoted(): void {
    this.options.surroundings.promoted();
    this.coordinator.join(this.shard, this.addresses, true);
  }

  standbyOver(why: string): void {
    this.over('STANDBY_OVER', why);
  }

  // ---- from the server that it is on ----

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
        options.surroundings.guard(() => replication.message(connection, message));
      },
      closed: ({ description }) => options.surroundings.guard(() => replication.closed(connection, description)),
    };
    options.surroundings.guard(() => replication.join(id, connection));
    connection.setReceiver(receiver);
    return receiver;
  }

  /** What the shard has for the coordinator. */
  tell(message: Message): void {
    if (this.options.isStandby && !this.isPrimary) return; // where it stands is said when it joins
    if (this.replication) this.replication.tell(message);
    else this.coordinator.tell(message);
  }

  /** The coordinator here has come to the end of the attempt: acts when no standby goes on with it. */
  conclude(act: () => void): void {
    if (this.replication) this.replication.conclude(RUN_OVER, act);
    else act();
  }

  /** What the arbiter has written about this index. */
  answered(lead: ShardLead): void {
    const { serverId, surroundings } = this.options;
    const isPrimary = lead.primary === serverId;
    surroundings.guard(() => {
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
    this.coordinator.heartbeat();
    this.replication?.heartbeat();
    this.standby?.heartbeat();
  }

  /** Every PLACE_TICK_MS. */
  tick(): void {
    this.replication?.tick();
    this.standby?.tick();
    this.coordinator.tick();
  }

  /** @param isRunOver the standby is told, so that it does not take over */
  end(isRunOver = false): void {
    if (this.isOver) return;
    this.isOver = true;
    this.primaryLink?.end();
    const link = this.replication?.end(isRunOver ? RUN_OVER : undefined);
    if (link) this.options.clock.after(HANG_UP_MS, () => link.close());
    this.standby?.end('the run is over here');
    this.coordinator.close();
  }

  over(end: PlaceEnd, why: string): void {
    if (this.isOver) return;
    this.end();
    this.options.surroundings.placeOver(end, why);
  }
}
