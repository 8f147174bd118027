/**
 * The place of a run's shard on this server: ShardPlace with the clock, the connections and the control plane of its process.
 *
 *   ask ── report `lead.asked` ──> arbiter ── field of the control hash ──> read every 100 ms while this server waits for it
 */
import {
  PLACE_TICK_MS,
  ShardPlace,
  type CancelTimer,
  type Connection,
  type PlaceEnd,
  type PlaceSurroundings,
  type ShardMachine,
} from '@paceline/exchange';
import { leadFieldName, leadSchema, type LeadAnswer, type PlacementJob, type ServerAddress } from '@paceline/control-plane';
import type { MessageOf } from '@paceline/protocol';
import type { Successor } from './coordinator-host.js';
import type { ServerContext } from './server-context.js';

/** The run that a place belongs to: HostedRun. */
export interface PlaceOwner {
  readonly job: PlacementJob;
  readonly layoutHash: string;
  readonly shard: ShardMachine;
  /** Index 0: the near end of a connection to the coordinator here; `successor` when it takes the place of another. */
  coordinateHere(successor: Successor | undefined): Connection;
  placeOver(end: PlaceEnd, why: string): void;
  /** Runs what may fail for this run alone. */
  guard(act: () => void): void;
}

export class HostedPlace implements PlaceSurroundings<ServerAddress> {
  readonly place: ShardPlace<ServerAddress>;
  private cancelTicker: CancelTimer | undefined;
  private isReading = false;
  private answer: LeadAnswer | undefined;

  constructor(
    private readonly run: PlaceOwner,
    private readonly context: ServerContext,
  ) {
    const { index, attempt, role } = run.job;
    const { serverId, clock } = context;
    this.place = new ShardPlace<ServerAddress>({ index, attempt, serverId, isStandby: role === 'standby', clock, surroundings: this });
  }

  /** All servers of the attempt are claimed. */
  start(servers: readonly ServerAddress[], standbys: readonly ServerAddress[]): void {
    this.cancelTicker = this.context.clock.every(PLACE_TICK_MS, () => this.tick());
    this.place.start(this.run.shard, { servers, standbys });
  }

  end(): void {
    this.cancelTicker?.();
    this.place.end(true);
  }

  connect(address: ServerAddress): Promise<Connection> {
    return this.context.connectTo(address);
  }

  hello(role: 'server' | 'standby'): MessageOf<'hello'> {
    const { token, runId, index } = this.run.job;
    const { serverId: id, host } = this.context;
    return { type: 'hello', token, run: runId, role, id, host, seat: index, incarnation: 0, fingerprint: '', layout: this.run.layoutHash };
  }

  ask(want: 'drop' | 'promote', term: number): void {
    const { runId, attempt, index } = this.run.job;
    const { serverId, controlPlane, log } = this.context;
    const report = { kind: 'lead.asked', runId, attempt, index, serverId, want, term } as const;
    controlPlane.sendReport(report).catch((error: Error) => log.debug({ err: error, report }, 'the arbiter could not be asked'));
  }

  coordinatorHere(isPromoted: boolean): Connection {
    return this.run.coordinateHere(isPromoted ? this.successor() : undefined);
  }

  promoted(): void {
    const { job, shard } = this.run;
    this.context.log.warn({ run: job.runId, index: job.index, term: shard.term }, 'this standby is the primary now');
  }

  placeOver(end: PlaceEnd, why: string): void {
    this.run.placeOver(end, why);
  }

  guard(act: () => void): void {
    this.run.guard(act);
  }

  private tick(): void {
    this.guard(() => this.place.tick());
    if (this.place.isAsking && !this.isReading) void this.read();
  }

  private async read(): Promise<void> {
    const { context } = this;
    const { job } = this.run;
    this.isReading = true;
    try {
      const field = leadFieldName(job.index);
      const { [field]: text } = await context.controlPlane.readControl(job.runId, [field]);
      const parsed = text === undefined ? undefined : leadSchema.safeParse(JSON.parse(text));
      if (!parsed?.success || parsed.data.attempt !== job.attempt) return;
      this.answer = parsed.data;
      this.place.answered(parsed.data);
    } catch (error) {
      context.log.debug({ err: error as Error, run: job.runId }, 'the arbiter has not answered; asking again');
    } finally {
      this.isReading = false;
    }
  }

  private successor(): Successor {
    const { shard } = this.run;
    const { storedSequence = 0, ledgerFrom = 0, ledger, newest = 0, terms } = this.answer ?? {};
    return { storedSequence, succession: { term: shard.term, ...shard.known(), ledgerFrom, ledger, newest, terms } };
  }
}
