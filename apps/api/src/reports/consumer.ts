/** The ReportReader of libs/control-plane over a Redis stream with a consumer group, and where each kind of report goes. */
import { hostname } from 'node:os';
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import {
  ackFields,
  cancelField,
  REPORT_STREAM,
  reportKey,
  ReportReader,
  withDeadline,
  type Report,
  type ReportPorts,
  type StreamMessage,
} from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { isDatabaseOutage } from '../database/outage.js';
import { Settings } from '../environment.js';
import { ShardLeads } from '../dispatch/shard-leads.js';
import { ControlHashes } from '../dispatch/control-hashes.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { RedisConnections, replyCode } from '../dispatch/redis-connections.js';
import { Fleet } from '../fleet/fleet.js';
import { LOGGER } from '../logger.js';
import { TraceKeeper } from '../traces/trace-keeper.js';
import { FleetReports } from './fleet-reports.js';
import { JournalStore } from './journal-store.js';
import { PinnedCheckpoints } from '../runs/pinned-checkpoints.js';

const GROUP = 'paceline-api';
const BATCH = 200;
const BLOCK_MS = 500;
const READ_DEADLINE_MS = 3_000;
/** Reports that another api read and never finished are taken over after this long. */
const TAKE_OVER_AFTER_MS = 30_000;
/** A reader that has not asked for so long does not any more. */
const GONE_AFTER_MS = 86_400_000;
/** A server with another secret has all of its reports refused: that is said so often. */
const FORGED_EVERY_MS = 60_000;

@Injectable()
export class ReportsConsumer implements OnModuleDestroy {
  private readonly name = `${hostname()}-${process.pid}`;
  @Inject(TraceKeeper) private readonly traces!: TraceKeeper;
  @Inject(PinnedCheckpoints) private readonly pinned!: PinnedCheckpoints;
  @Inject(Settings) private readonly settings!: Settings;
  private readonly reader: ReportReader;
  private takenOverAt = 0;
  private forgedToldAt = 0;
  private wake: (() => void) | undefined;

  constructor(
    private readonly redis: RedisConnections,
    private readonly journal: JournalStore,
    private readonly reports: FleetReports,
    private readonly control: ControlHashes,
    private readonly shardLeads: ShardLeads,
    fleet: Fleet,
    private readonly dispatch: DispatchSignal,
    @Inject(LOGGER) private readonly log: Logger,
  ) {
    this.reader = new ReportReader({
      read: () => this.read(),
      makeGroup: () => this.makeGroup(),
      isMissingGroup,
      store: (report, id) => this.store(report, id),
      keyOf: (report) => reportKey(this.settings.tokenSecret, report),
      confirm: (ids) => this.confirm(ids),
      isDatabaseOutage,
      pause: (ms) => this.pause(ms),
      wakeUp: () => this.wake?.(),
      heard: () => fleet.heard(),
      deaf: () => fleet.deaf(),
      told: (what, { error, ...detail }) => this.tell(what, error, detail),
    });
  }

  /** For /metrics. */
  get counters(): ReportReader['counters'] {
    return this.reader.counters;
  }

  start(): void {
    this.reader.start();
    void this.forgetOthers().catch((error: Error) =>
      this.log.debug({ err: error.message }, 'readers that are gone could not be forgotten'),
    );
  }

  /** Every start of an api in a container is a reader of its own. One that has nothing left and has not asked for a day is gone. @returns how many were */
  async forgetOthers(idleMs = GONE_AFTER_MS): Promise<number> {
    const readers = (await withDeadline('readers of reports', READ_DEADLINE_MS, () =>
      this.redis.commands.xinfo('CONSUMERS', REPORT_STREAM, GROUP),
    )) as (string | number)[][];
    const gone = readers
      .map((fields) => Object.fromEntries(fields.flatMap((value, i) => (i % 2 === 0 ? [[String(value), fields[i + 1]]] : []))))
      .filter(({ name, pending, idle }) => name !== this.name && Number(pending) === 0 && Number(idle) >= idleMs);
    for (const { name } of gone)
      await withDeadline('a reader that is gone', READ_DEADLINE_MS, () =>
        this.redis.commands.xgroup('DELCONSUMER', REPORT_STREAM, GROUP, String(name)),
      );
    return gone.length;
  }

  async onModuleDestroy(): Promise<void> {
    const stopped = this.reader.stop();
    this.redis.reader.disconnect(); // ends a blocking read
    await stopped;
  }

  private async makeGroup(): Promise<void> {
    await withDeadline('make the reader group', READ_DEADLINE_MS, () =>
      this.redis.commands.xgroup('CREATE', REPORT_STREAM, GROUP, '0', 'MKSTREAM'),
    ).catch((error: Error) => {
      if (replyCode(error) !== 'BUSYGROUP') throw error; // it is there already
    });
  }

  private async read(): Promise<StreamMessage[]> {
    const abandoned = await this.takeOver();
    if (abandoned.length > 0) return abandoned;
    const reply = (await withDeadline('read reports', READ_DEADLINE_MS, () =>
      this.redis.reader.xreadgroup('GROUP', GROUP, this.name, 'COUNT', BATCH, 'BLOCK', BLOCK_MS, 'STREAMS', REPORT_STREAM, '>'),
    )) as [string, [string, string[]][]][] | null;
    this.counters.readAtMs = Date.now();
    return (reply?.[0]?.[1] ?? []).map(toMessage);
  }

  private async takeOver(): Promise<StreamMessage[]> {
    if (Date.now() - this.takenOverAt < TAKE_OVER_AFTER_MS) return [];
    const reply = await withDeadline('abandoned reports', READ_DEADLINE_MS, () =>
      this.redis.commands.xautoclaim(REPORT_STREAM, GROUP, this.name, TAKE_OVER_AFTER_MS, '0', 'COUNT', BATCH),
    );
    const [, messages] = reply as [string, ([string, string[] | null] | null)[]];
    const found = messages.flatMap((entry) => (entry?.[1] ? [toMessage([entry[0], entry[1]])] : []));
    if (found.length === 0) this.takenOverAt = Date.now();
    return found;
  }

  private async confirm(ids: readonly string[]): Promise<void> {
    await withDeadline('confirm reports', READ_DEADLINE_MS, () =>
      this.redis.commands
        .multi()
        .xack(REPORT_STREAM, GROUP, ...ids)
        .xdel(REPORT_STREAM, ...ids)
        .exec(),
    );
  }

  private async store(report: Report, id: string): Promise<void> {
    if (report.kind === 'lead.asked') return this.leadAsked(report);
    if (report.kind === 'traced') return this.traces.keep(report);
    if (report.kind !== 'journal') return this.reports.take(report);
    const { ack, mustStop, newEntries, changed } = await this.journal.store(report, id);
    this.counters.journalEntries += newEntries;
    if (changed) this.dispatch.wake();
    if (ack && (report.entries.length > 0 || mustStop)) {
      await this.control.write(report.runId, {
        // A report without entries has nothing to acknowledge: of an older attempt it would take back what was acknowledged before.
        ...(report.entries.length > 0 ? ackFields(ack.attempt, report.term ?? 1, ack) : {}),
        ...(mustStop ? { action: cancelField(report.attempt) } : {}),
      });
      // With each checkpoint its servers may remove another: what others need may have changed.
      if (report.entries.some((entry) => entry.kind === 'event' && entry.type === 'checkpoint.written'))
        await this.pinned.tell(report.runId);
    }
  }

  /** Answered here and now: a shard stands still meanwhile. */
  private async leadAsked(report: Extract<Report, { kind: 'lead.asked' }>): Promise<void> {
    const { runId, attempt, index, serverId, want } = report;
    const lead = await this.shardLeads.decide(report);
    if (lead) this.dispatch.wake();
    this.log.info({ run: runId, attempt, index, server: serverId, want, lead }, 'the arbiter was asked');
  }

  private tell(what: Parameters<ReportPorts['told']>[0], error: Error | undefined, detail: object): void {
    const err = error?.message;
    if (what === 'dropped') this.log.error({ ...detail, err: error }, 'a report could not be stored and was dropped');
    else if (what === 'waiting') this.log.warn({ ...detail, err }, 'reports wait for PostgreSQL');
    else if (what === 'unreadable') this.log.warn({ ...detail, err }, 'the report stream cannot be read; trying again');
    else if (what === 'forged') this.warnOfForged(detail);
    else this.log.debug({ ...detail, err }, 'a report does not fit the contract');
  }

  private warnOfForged(detail: object): void {
    if (Date.now() - this.forgedToldAt < FORGED_EVERY_MS) return;
    this.forgedToldAt = Date.now();
    this.log.warn(
      detail,
      'a report is refused: it is not signed as PACELINE_TOKEN_SECRET of this api wants it. Give the api and all parameter servers the same secret',
    );
  }

  private pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, delayMs);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

const isMissingGroup = (error: unknown): boolean => ['NOGROUP', 'UNBLOCKED'].includes(replyCode(error) ?? '');

function toMessage([id, fields]: [string, string[]]): StreamMessage {
  const valueOf = (name: string): string | undefined => {
    const at = fields.findIndex((field, i) => i % 2 === 0 && field === name);
    return at < 0 ? undefined : fields[at + 1];
  };
  return { id, text: valueOf('report'), signature: valueOf('signature') };
}
