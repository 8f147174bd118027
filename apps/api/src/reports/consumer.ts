/**
 * Reads the report stream as one consumer of a group, so that several apis share it.
 *
 *     read a batch -> check each against the contract -> store -> acknowledge to the coordinator -> XACK, XDEL
 *
 * Redis away: nothing is lost, journals are sent again; the group is made again after a flush. PostgreSQL away: the batch is held and
 * tried again, nothing is acknowledged, and coordinators keep what they have. A report that can never be stored is counted, logged and
 * dropped, so that one bad report does not stop the others.
 */
import { hostname } from 'node:os';
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import { ackField, cancelField, RedisUnavailableError, REPORT_STREAM, reportSchema, withDeadline, type Report } from '@paceline/jobs';
import type { Logger } from '@paceline/runtime';
import { isDatabaseOutage } from '../database/outage.js';
import { Arbiter } from '../dispatch/arbiter.js';
import { Control } from '../dispatch/control.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { RedisConnections } from '../dispatch/redis-connections.js';
import { Fleet } from '../fleet/fleet.js';
import { LOGGER } from '../logger.js';
import { FleetReports } from './fleet-reports.js';
import { JournalStore } from './journal-store.js';

const GROUP = 'paceline-api';
const BATCH = 200;
const BLOCK_MS = 500;
const READ_DEADLINE_MS = 3_000;
/** Reports that another api read and never finished are taken over after this long. */
const TAKE_OVER_AFTER_MS = 30_000;
const LONGEST_PAUSE_MS = 2_000;
const MAX_REPORT_CHARACTERS = 1 << 20;

interface Message {
  readonly id: string;
  readonly text: string | undefined;
}

@Injectable()
export class ReportsConsumer implements OnModuleDestroy {
  /** For /metrics. */
  readonly counters = { taken: 0, refused: 0, failed: 0, journalEntries: 0, readAtMs: 0 };
  private readonly name = `${hostname()}-${process.pid}`;
  private stopped = false;
  private loop: Promise<void> | undefined;
  private takenOverAt = 0;
  private wake: (() => void) | undefined;

  constructor(
    private readonly redis: RedisConnections,
    private readonly journal: JournalStore,
    private readonly reports: FleetReports,
    private readonly control: Control,
    private readonly arbiter: Arbiter,
    private readonly fleet: Fleet,
    private readonly dispatch: DispatchSignal,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  start(): void {
    this.loop = this.run();
  }

  async onModuleDestroy(): Promise<void> {
    this.stopped = true;
    this.wake?.();
    this.redis.reader.disconnect(); // ends a blocking read
    await this.loop;
  }

  private async run(): Promise<void> {
    let failures = 0;
    while (!this.stopped) {
      try {
        const batch = await this.read();
        failures = 0;
        this.fleet.heard();
        if (batch.length > 0) await this.process(batch);
      } catch (error) {
        if (this.stopped) return;
        this.fleet.deaf();
        if (isMissingGroup(error)) await this.makeGroup().catch(() => failures++);
        else if (failures++ === 0) this.log.warn({ err: (error as Error).message }, 'the report stream cannot be read; trying again');
        if (failures > 0) await this.pause(Math.min(100 * 2 ** failures, LONGEST_PAUSE_MS));
      }
    }
  }

  private async makeGroup(): Promise<void> {
    await withDeadline('make the reader group', READ_DEADLINE_MS, () =>
      this.redis.commands.xgroup('CREATE', REPORT_STREAM, GROUP, '0', 'MKSTREAM'),
    ).catch((error: Error) => {
      if (!error.message.includes('BUSYGROUP')) throw error;
    });
  }

  private async read(): Promise<Message[]> {
    const abandoned = await this.takeOver();
    if (abandoned.length > 0) return abandoned;
    const reply = (await withDeadline('read reports', READ_DEADLINE_MS, () =>
      this.redis.reader.xreadgroup('GROUP', GROUP, this.name, 'COUNT', BATCH, 'BLOCK', BLOCK_MS, 'STREAMS', REPORT_STREAM, '>'),
    )) as [string, [string, string[]][]][] | null;
    this.counters.readAtMs = Date.now();
    return (reply?.[0]?.[1] ?? []).map(toMessage);
  }

  private async takeOver(): Promise<Message[]> {
    if (Date.now() - this.takenOverAt < TAKE_OVER_AFTER_MS) return [];
    const reply = await withDeadline('abandoned reports', READ_DEADLINE_MS, () =>
      this.redis.commands.xautoclaim(REPORT_STREAM, GROUP, this.name, TAKE_OVER_AFTER_MS, '0', 'COUNT', BATCH),
    );
    const [, messages] = reply as [string, ([string, string[] | null] | null)[]];
    const found = messages.flatMap((entry) => (entry?.[1] ? [toMessage([entry[0], entry[1]])] : []));
    if (found.length === 0) this.takenOverAt = Date.now();
    return found;
  }

  private async process(batch: readonly Message[]): Promise<void> {
    for (const message of batch) {
      const report = this.parse(message);
      if (!report) continue;
      await this.untilStored(report, message.id);
      if (this.stopped) return; // not confirmed: it is read again
    }
    const ids = batch.map(({ id }) => id);
    await withDeadline('confirm reports', READ_DEADLINE_MS, () =>
      this.redis.commands
        .multi()
        .xack(REPORT_STREAM, GROUP, ...ids)
        .xdel(REPORT_STREAM, ...ids)
        .exec(),
    );
  }

  private parse({ id, text }: Message): Report | undefined {
    try {
      if (text !== undefined && text.length <= MAX_REPORT_CHARACTERS) {
        const parsed = reportSchema.safeParse(JSON.parse(text));
        if (parsed.success) return parsed.data;
        this.log.debug({ id, issue: parsed.error.issues[0] }, 'a report does not fit the contract');
      }
    } catch (error) {
      this.log.debug({ id, err: (error as Error).message }, 'a report is not JSON');
    }
    this.counters.refused++;
    return undefined;
  }

  /** Returns when the report is stored, can never be stored, or the api stops. */
  private async untilStored(report: Report, id: string): Promise<void> {
    for (let failures = 0; !this.stopped; failures++) {
      try {
        await this.store(report, id);
        this.counters.taken++;
        return;
      } catch (error) {
        if (error instanceof RedisUnavailableError) return; // stored, but not acknowledged: it comes again and is acknowledged then
        if (!isDatabaseOutage(error)) {
          this.counters.failed++;
          this.log.error({ err: error as Error, kind: report.kind, id }, 'a report could not be stored and was dropped');
          return;
        }
        this.fleet.deaf();
        if (failures === 0) this.log.warn({ err: (error as Error).message }, 'reports wait for PostgreSQL');
        await this.pause(Math.min(100 * 2 ** failures, LONGEST_PAUSE_MS));
      }
    }
  }

  private async store(report: Report, id: string): Promise<void> {
    if (report.kind === 'lead.asked') return this.leadAsked(report);
    if (report.kind !== 'journal') return this.reports.take(report);
    const { ack, mustStop, newEntries, changed } = await this.journal.store(report, id);
    this.counters.journalEntries += newEntries;
    if (changed) this.dispatch.wake();
    if (ack && (report.entries.length > 0 || mustStop)) {
      await this.control.write(report.runId, {
        ack: ackField(ack.attempt, ack.n),
        ...(mustStop ? { action: cancelField(report.attempt) } : {}),
      });
    }
  }

  /** Answered here and now: a shard stands still meanwhile. */
  private async leadAsked(report: Extract<Report, { kind: 'lead.asked' }>): Promise<void> {
    const { runId, attempt, index, serverId, want } = report;
    const lead = await this.arbiter.decide(report);
    if (lead) this.dispatch.wake();
    this.log.info({ run: runId, attempt, index, server: serverId, want, lead }, 'the arbiter was asked');
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

const isMissingGroup = (error: unknown): boolean => error instanceof Error && /NOGROUP|UNBLOCKED/.test(error.message);

function toMessage([id, fields]: [string, string[]]): Message {
  const at = fields.indexOf('report');
  return { id, text: at >= 0 && at % 2 === 0 ? fields[at + 1] : undefined };
}
