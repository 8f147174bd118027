/** What all parts of a coordinator share: where the attempt stands, who takes part in it, and how they are told. */
import type { Message } from '@paceline/protocol';
import type { FrameNumbers } from '../connection.js';
import type { AttemptOptions } from './attempt-options.js';
import { CodecPicking } from './codec-picking.js';
import { ExchangeMeasuring } from './exchange-measuring.js';
import { Membership } from './membership.js';
import { RunTraffic } from './run-traffic.js';
import { ServerLiveness } from './server-liveness.js';
import type { AttemptTable, Coordinated } from './work-plan.js';

/** For the servers to find a coordinator that has taken over; Redis or the api may be away for half of that. */
const SUCCESSOR_WAITS_MS = 60_000;
const AFTER_TRAINING: readonly string[] = ['EVALUATING', 'COLLECTING', 'STOPPING', 'OVER'];

export class Attempt {
  readonly members: Membership;
  readonly servers: ServerLiveness;
  readonly traffic = new RunTraffic();
  readonly codec: CodecPicking;
  readonly measuring: ExchangeMeasuring;
  /** Rounds that are done. */
  round: number;
  view = 1;
  /**
   * Term in which its server came to lead shard 0. Never raised by terms of other shards: otherwise a replaced coordinator that has not heard of
   * its replacement could outrank its successor.
   */
  readonly term: number;
  /** The same term in VIEW, once this coordinator has taken over and wants to know what was fetched for its own work items. */
  since: number | undefined;

  constructor(
    readonly options: AttemptOptions,
    private readonly coordinator: Coordinated,
  ) {
    const { succession, now, firstRound = 0 } = options;
    const { serverDeadlineMs: silentMs = 10_000, serversDeadlineMs = 30_000, takeoverDeadlineMs: takeoverMs = 300_000 } = options;
    this.term = succession?.term ?? 1;
    this.round = firstRound;
    this.codec = new CodecPicking(options.codec, options.journal);
    this.measuring = new ExchangeMeasuring(options.measuredExchange, options.journal, this.codec);
    this.members = new Membership(options.replicas, now, options.keepsEstimates);
    // A standby that was just promoted has heard from the arbiter. But the previous coordinator may have told the others of the end.
    const completeMs = succession ? Math.min(takeoverMs, SUCCESSOR_WAITS_MS) : serversDeadlineMs;
    this.servers = new ServerLiveness(options.servers, { silentMs, completeMs, takeoverMs }, now, succession?.terms);
  }

  get table(): AttemptTable {
    return this.coordinator.plan.table;
  }

  get isOver(): boolean {
    return this.table.state === 'OVER';
  }

  get isTraining(): boolean {
    return !AFTER_TRAINING.includes(this.table.state);
  }

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  viewMessage(): Message {
    const { view, term, round, since, members } = this;
    const { change } = this.codec;
    const also = { ...(since === undefined ? {} : { since }), ...(change ? { codec: change } : {}) };
    return { type: 'view', view, term, round, members: members.list(), ...also };
  }

  /** Tells all the present view under a higher number. */
  nextView(): void {
    this.view++;
    this.tell(this.viewMessage());
  }

  /** To the servers, then to the members. */
  tell(message: Message): void {
    this.servers.send(message, this.numbers());
    this.members.send(message, this.numbers());
  }

  event(type: string, message: string, data: Record<string, unknown>): void {
    this.options.journal.append({ kind: 'event', type, message: message.slice(0, 2000), data });
  }
}
