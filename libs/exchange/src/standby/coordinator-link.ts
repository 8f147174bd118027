/**
 * A primary's link to the coordinator. Where the coordinator has a standby, a broken link is opened again, at either address, until somebody there
 * coordinates.
 */
import { ProtocolError, checkAttempt, type FrameHeader, type Message } from '@paceline/protocol';
import type { LinkedServer } from '../attempt/server-links.js';
import type { CoordinatorPort } from '../attempt/shard-ports.js';
import type { Connection } from '../connection.js';
import { ShardLink } from '../transfer/shard-transfer.js';
import { PeerTimeouts } from '../transports/peer-timeouts.js';
import { PAUSE_MS, PLACE_TICK_MS, type PlaceAddresses, type PlaceEnd, type ShardPlaceOptions } from './place-options.js';
import type { Replication } from './replication.js';
import type { ShardMachine } from './shard-machine.js';

/** A coordinator speaks every second; with another address to try, one that is stopped is not waited for longer. */
const ANSWER_MS = 2_500;
/** Longer than a coordinator waits for a server: of the two it is the coordinator that ends the attempt, with the cause. */
const SILENT_MS = 11_000;

/** The place that the link belongs to. */
export interface LinkedPlace {
  readonly replication: Replication | undefined;
  readonly isOver: boolean;
  over(end: PlaceEnd, why: string): void;
}

interface Dialled<Address> {
  readonly addresses: readonly Address[];
  readonly turn: number;
}

export class CoordinatorLink<Address extends LinkedServer> implements CoordinatorPort {
  private shard!: ShardMachine;
  private addresses: PlaceAddresses<Address> = { servers: [], standbys: [] };
  private connection: Connection | undefined;
  private readonly timeouts: PeerTimeouts;
  private coordinatorTerm = 0;
  private toldTerm = 0;
  private hasJoined = false;
  /** What it told over a connection that broke may be lost, besides where it stands. */
  private mustTellAgain = false;
  private readonly untold: Message[] = [];

  constructor(
    private readonly options: ShardPlaceOptions<Address>,
    private readonly place: LinkedPlace,
  ) {
    this.timeouts = new PeerTimeouts(options.clock, { silentAfterMs: options.silentMs ?? SILENT_MS, tickMs: PLACE_TICK_MS });
  }

  tell(message: Message): void {
    if (this.connection?.isOpen) this.connection.sendMessage(message, this.shard.numbers());
    else if (!this.hasJoined) this.untold.push(message);
    // Else it is said again over the next connection: by `standing`, and when the coordinator has said its view.
  }

  join(shard: ShardMachine, addresses: PlaceAddresses<Address>, isPromoted: boolean): void {
    const { index, surroundings, clock } = this.options;
    const { servers, standbys } = addresses;
    this.shard = shard;
    this.addresses = addresses;
    if (index === 0) return this.use(surroundings.coordinatorHere(isPromoted), undefined);
    const dialled = [servers[0]!, ...standbys.filter((address) => address.index === 0)];
    void this.dial({ addresses: dialled, turn: 0 }, clock.now(), undefined);
  }

  heartbeat(): void {
    if (this.connection) this.tell({ type: 'heartbeat', progress: this.shard.round });
  }

  tick(): void {
    if (this.options.index !== 0) this.timeouts.tick();
  }

  close(): void {
    this.connection?.close();
  }

  private async dial({ addresses, turn }: Dialled<Address>, sinceMs: number, trouble: string | undefined): Promise<void> {
    const { clock, surroundings, giveUpMs = 300_000 } = this.options;
    for (;;) {
      if (trouble !== undefined && (addresses.length === 1 || clock.now() - sinceMs > giveUpMs))
        return this.place.over('COORDINATOR_GONE', `the coordinator is gone: ${trouble}`);
      if (trouble !== undefined) await new Promise<void>((resolve) => clock.after(PAUSE_MS, resolve));
      if (this.place.isOver) return;
      try {
        const connection = await surroundings.connect(addresses[turn % addresses.length]!);
        if (this.place.isOver) return connection.close();
        return this.use(connection, { addresses, turn });
      } catch (error) {
        trouble = (error as Error).message;
        turn++;
      }
    }
  }

  private use(connection: Connection, dialled: Dialled<Address> | undefined): void {
    const { options, shard } = this;
    const { clock } = options;
    this.connection = connection;
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
        options.surroundings.guard(() => this.fromCoordinator(coordinator, message));
      },
      closed: ({ description }) => {
        cancelUnanswered();
        this.timeouts.forget(connection);
        if (this.connection === connection) this.connection = undefined;
        if (this.place.isOver) return;
        if (!hasOther) return this.place.over('COORDINATOR_GONE', `the coordinator is gone: ${description}`);
        void this.dial({ addresses: dialled.addresses, turn: dialled.turn + 1 }, clock.now(), description);
      },
    });
    shard.finishWork();
    const numbers = shard.numbers();
    if (dialled) connection.sendMessage(options.surroundings.hello('server'), numbers);
    if (this.addresses.standbys.length > 0) shard.stand((standing) => connection.sendMessage(standing, shard.numbers()));
    // A coordinator that has taken over has not heard it yet.
    const link = this.hasJoined ? this.place.replication?.standbyLink : undefined;
    if (link) connection.sendMessage(link, numbers);
    this.mustTellAgain = this.hasJoined;
    this.hasJoined = true;
    for (const message of this.untold.splice(0)) this.tell(message);
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
    const { shard } = this;
    const { replication } = this.place;
    if (message.type === 'heartbeat') return;
    if (message.type === 'end' && !replication) return this.place.over('RUN_OVER', 'the run is over');
    // Before its standby is told what comes next.
    shard.finishWork();
    switch (message.type) {
      case 'end':
        replication?.follow(message);
        return this.place.over('RUN_OVER', 'the run is over');
      case 'tell-again':
        return this.tellAgain();
      default:
        replication?.order(message);
        if (!shard.fromCoordinator(link, message))
          throw new ProtocolError('BAD_MESSAGE', `the coordinator does not send ${message.type} to a server`);
    }
    if (message.type !== 'view') return;
    if (this.mustTellAgain || (message.term > this.toldTerm && this.toldTerm > 0)) this.tellAgain();
    this.mustTellAgain = false;
    this.toldTerm = message.term;
  }
}
