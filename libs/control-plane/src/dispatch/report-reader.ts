/**
 * Reads the report stream as one consumer of a group, so that several apis share it.
 *
 *     read a batch -> check each against the contract, and who has signed it -> store -> acknowledge to the coordinator -> confirm the batch
 *
 * Redis away: nothing is lost, journals are sent again; the group is made again after a flush. PostgreSQL away: the batch is held and
 * tried again, nothing is acknowledged, and coordinators keep what they have. A report that can never be stored is counted, told and
 * dropped, so that one bad report does not stop the others.
 */
import { reportSchema, type Report } from '../contract/reports.js';
import { RedisUnavailableError } from '../redis.js';
import { isGenuine, isSigned, type SignedReport } from '../report-signature.js';

const LONGEST_PAUSE_MS = 2_000;
const MAX_REPORT_CHARACTERS = 1 << 20;

export interface StreamMessage {
  /** `ms-n` */
  readonly id: string;
  readonly text: string | undefined;
  readonly signature?: string | undefined;
}

export interface ReportPorts {
  /** Waits a while for reports; those that another api read and never finished come too, after a while. */
  read(): Promise<readonly StreamMessage[]>;
  /** The group that apis read as; it vanishes with a flush. */
  makeGroup(): Promise<void>;
  isMissingGroup(error: unknown): boolean;
  /** Acknowledged to the journals too, where it is one. @throws RedisUnavailableError when it is stored and that could not be told */
  store(report: Report, id: string): Promise<void>;
  /** What a report has to be signed with. Left out: nothing is signed (the simulator forges nothing). */
  keyOf?(report: SignedReport): string;
  /** Nobody needs to read them again. */
  confirm(ids: readonly string[]): Promise<void>;
  isDatabaseOutage(error: unknown): boolean;
  /** For that long, or until `wakeUp`. */
  pause(ms: number): Promise<void>;
  wakeUp(): void;
  heard(): void;
  deaf(): void;
  told(
    what: 'unreadable' | 'refused' | 'forged' | 'waiting' | 'dropped',
    detail: { readonly error?: Error; readonly id?: string; readonly issue?: unknown; readonly kind?: string },
  ): void;
}

export class ReportReader {
  /** For /metrics; the last two are kept by who reads and stores. */
  readonly counters = { taken: 0, refused: 0, failed: 0, journalEntries: 0, readAtMs: 0 };
  private stopped = false;
  private loop: Promise<void> | undefined;

  constructor(private readonly ports: ReportPorts) {}

  start(): void {
    this.loop = this.run();
  }

  /** Returns when the report that is being stored is stored, or was given up. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.ports.wakeUp();
    await this.loop;
  }

  private async run(): Promise<void> {
    const { ports } = this;
    let failures = 0;
    while (!this.stopped) {
      try {
        const batch = await ports.read();
        failures = 0;
        ports.heard();
        if (batch.length > 0) await this.process(batch);
      } catch (error) {
        if (this.stopped) return;
        ports.deaf();
        if (ports.isMissingGroup(error)) await ports.makeGroup().catch(() => failures++);
        else if (failures++ === 0) ports.told('unreadable', { error: error as Error });
        if (failures > 0) await ports.pause(Math.min(100 * 2 ** failures, LONGEST_PAUSE_MS));
      }
    }
  }

  private async process(batch: readonly StreamMessage[]): Promise<void> {
    for (const message of batch) {
      const report = this.parse(message);
      if (!report) continue;
      await this.untilStored(report, message.id);
      if (this.stopped) return; // not confirmed: it is read again
    }
    await this.ports.confirm(batch.map(({ id }) => id));
  }

  private parse({ id, text, signature }: StreamMessage): Report | undefined {
    try {
      if (text !== undefined && text.length <= MAX_REPORT_CHARACTERS) {
        const parsed = reportSchema.safeParse(JSON.parse(text));
        if (!parsed.success) this.ports.told('refused', { id, issue: parsed.error.issues[0] });
        else if (this.isGenuine(parsed.data, text, signature)) return parsed.data;
        else this.ports.told('forged', { id, kind: parsed.data.kind });
      }
    } catch (error) {
      this.ports.told('refused', { id, error: error as Error });
    }
    this.counters.refused++;
    return undefined;
  }

  private isGenuine(report: Report, text: string, signature: string | undefined): boolean {
    const { keyOf } = this.ports;
    return !keyOf || !isSigned(report) || isGenuine(keyOf(report), text, signature);
  }

  /** Returns when the report is stored, can never be stored, or the api stops. */
  private async untilStored(report: Report, id: string): Promise<void> {
    const { ports, counters } = this;
    for (let failures = 0; !this.stopped; failures++) {
      try {
        await ports.store(report, id);
        counters.taken++;
        return;
      } catch (error) {
        if (error instanceof RedisUnavailableError) return; // stored, but not acknowledged: it comes again and is acknowledged then
        if (!ports.isDatabaseOutage(error)) {
          counters.failed++;
          ports.told('dropped', { error: error as Error, kind: report.kind, id });
          return;
        }
        ports.deaf();
        if (failures === 0) ports.told('waiting', { error: error as Error });
        await ports.pause(Math.min(100 * 2 ** failures, LONGEST_PAUSE_MS));
      }
    }
  }
}
