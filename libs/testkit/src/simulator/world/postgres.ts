/**
 * PostgreSQL in memory: the rows of one run. A transaction is carried out in one piece, or not at all when it throws; what is
 * committed stays, whatever happens to the store or to who asked. It also holds the lock of the api that reconciles, as long as that
 * one's connection lives.
 */
import type {
  CheckpointRecord,
  DispatchLockPorts,
  JobKind,
  JournalEntry,
  RunResult,
  RunStatus,
  StoredAttempt,
  StoredEvent,
  StoredRun,
  StoredServer,
  StoredTask,
  SeatFailure,
} from '@paceline/control-plane';
import type { SimProcess } from './process.js';
import { SimStore, type Surroundings } from './store.js';
import { Table, UndoLog } from './undo-log.js';

const DEADLINE_MS = 2_000;

/** As `isDatabaseOutage` of the api tells it from a fault. */
export class DatabaseOutage extends Error {}

export interface RunRow extends StoredRun {
  readonly finishedAt: Date | null;
  readonly serverCount: number;
  readonly totalRounds: number;
  readonly roundsPerEpoch: number;
  readonly restartsUsed: number;
  readonly restartsTotal: number;
  readonly bestRound: number;
  readonly result: RunResult | null;
  /** Why the newest failed seat failed. */
  readonly lastSeatFailure: SeatFailure | null;
}
export interface AttemptRow extends StoredAttempt {
  readonly storedSequence: number;
  readonly parentRound: number | null;
  readonly coordinatorTerm: number;
  readonly endedAt: Date | null;
  readonly endCause: string | null;
  readonly endReason: string | null;
  readonly endRound: number | null;
}
export interface PlaceRow extends StoredServer {
  readonly isLoading: boolean;
}
export interface TaskRow extends StoredTask {
  readonly closedAt: Date | null;
  readonly closeReason: string | null;
}
export interface OutboxRow {
  readonly id: number;
  readonly jobId: string;
  readonly kind: JobKind;
  readonly attempt: number;
  readonly place?: { readonly index: number; readonly role: 'primary' | 'standby' };
  readonly taskId?: string;
  readonly isSent: boolean;
}
export type EntryRow = JournalEntry & { readonly attempt: number };
/** Number `sequence` of the coordinator's journal; null of the control plane's own. */
export type EventRow = StoredEvent & { readonly seq: number; readonly sequence: number | null };
export interface CheckpointRow extends CheckpointRecord {
  readonly isInvalid: boolean;
  readonly isRemoved: boolean;
}
export interface FleetRow {
  readonly id: string;
  readonly lastSeenMs: number;
  readonly hasLeft: boolean;
}

export class Rows {
  readonly runs: Table<string, RunRow>;
  readonly attempts: Table<number, AttemptRow>;
  /** By `placeKey`. */
  readonly servers: Table<string, PlaceRow>;
  readonly tasks: Table<string, TaskRow>;
  readonly outbox: Table<number, OutboxRow>;
  /** By `attempt/n`. */
  readonly entries: Table<string, EntryRow>;
  /** Events as people read them, by sequence number. */
  readonly events: Table<number, EventRow>;
  /** By `attempt/round`. */
  readonly checkpoints: Table<string, CheckpointRow>;
  readonly fleet: Table<string, FleetRow>;
  private lastId = 0;

  constructor(log: UndoLog) {
    const table = <K, V>() => new Table<K, V>(log);
    [this.runs, this.attempts, this.servers, this.tasks] = [table(), table(), table(), table()];
    [this.outbox, this.entries, this.events, this.checkpoints, this.fleet] = [table(), table(), table(), table(), table()];
  }

  nextId(): number {
    return ++this.lastId;
  }
}

export const placeKey = ({ attempt, index, role }: { attempt: number; index: number; role: string }): string =>
  `${attempt}/${index}/${role}`;

export class SimPostgres extends SimStore {
  readonly rows: Rows;
  private readonly log: UndoLog;
  private holder: { readonly process: SimProcess; heardAtMs: number } | undefined;

  constructor(around: Surroundings) {
    super(around, 'postgres');
    this.log = new UndoLog(() => 0, 0);
    this.rows = new Rows(this.log);
  }

  protected outage(what: string): Error {
    return new DatabaseOutage(`PostgreSQL did not answer: ${what}`);
  }

  /** All connections end, and with them the lock. */
  goAway(): void {
    this.isAway = true;
    this.holder = undefined;
  }

  comeBack(): void {
    this.isAway = false;
  }

  /** @throws DatabaseOutage: it is not known whether it was committed */
  transact<T>(from: SimProcess, what: string, act: (rows: Rows) => T): Promise<T> {
    return this.call(from, what, DEADLINE_MS, () => this.now(act));
  }

  /** At once, for who stands outside of the simulation. */
  now<T>(act: (rows: Rows) => T): T {
    this.log.forget();
    try {
      return act(this.rows);
    } catch (error) {
      this.log.undoAll();
      throw error;
    }
  }

  /** The lock of the api that reconciles, on a connection of its own. */
  lockPorts(from: SimProcess): Pick<DispatchLockPorts, 'take' | 'beat' | 'letGo'> {
    const { world } = this.around;
    const isHeld = (): boolean => this.lockHolder === from;
    const call = <T>(what: string, act: () => T): Promise<T> => this.call(from, what, DEADLINE_MS, act);
    return {
      take: (staleMs) =>
        call('hold the lock', () => {
          const { holder } = this;
          if (holder?.process.isAlive && holder.process !== from) {
            if (world.nowMs - holder.heardAtMs <= staleMs) return 'another holds it';
            this.holder = undefined;
            return 'ended its holder';
          }
          // A connection of its own that is left over is ended when another is made.
          if (from.isAlive) this.holder = { process: from, heardAtMs: world.nowMs };
          return 'held';
        }),
      beat: () =>
        call('hold the lock', () => {
          if (isHeld()) this.holder!.heardAtMs = world.nowMs;
          return isHeld();
        }),
      letGo: () => {
        if (isHeld()) this.holder = undefined;
        return Promise.resolve();
      },
    };
  }

  /** A dead one's connection ends with it. */
  get lockHolder(): SimProcess | undefined {
    return this.holder?.process.isAlive ? this.holder.process : undefined;
  }
}

export type { RunStatus };
