/**
 * One contract for whoever stores a run: the api over PostgreSQL, and `StoredRun` over rows in memory, which the simulator believes. A step
 * is a call of one of both; after it the rows are read back in a form that both have. stored-run.test.ts runs it in memory, test/api/stored-run.test.ts
 * on both at once, so that every row that differs is found, expected here or not.
 */
import type {
  AskedOfRun,
  CheckpointRecord,
  CoordinatorState,
  DispatchAction,
  JournalEntry,
  JournalReport,
  LeadAnswer,
  Report,
  RunStatus,
  ServerAddress,
} from '@paceline/control-plane';
import type { FleetReport } from './stored-reports.js';

export interface ContractRows {
  readonly run: {
    readonly status: RunStatus;
    readonly statusReason: string | null;
    readonly isWaiting: boolean;
    readonly attempt: number;
    readonly isCancelWanted: boolean;
    readonly isPauseWanted: boolean;
    readonly hasNextAttempt: boolean;
    readonly isFinished: boolean;
    readonly workersWanted: number | null;
    readonly restartsUsed: number;
    readonly restartsTotal: number;
    readonly bestRound: number;
    readonly serverCount: number;
    readonly totalRounds: number;
    readonly length: unknown;
    /** The newest state that counts. */
    readonly coordinator: { readonly attempt: number; readonly phase: string; readonly round: number; readonly seats: number } | null;
  };
  readonly attempts: readonly {
    readonly number: number;
    readonly hasStarted: boolean;
    readonly hasEnded: boolean;
    readonly endCause: string | null;
    readonly endReason: string | null;
    readonly endRound: number | null;
    /** `run` where the checkpoint is another run's. */
    readonly parent: { readonly run?: string; readonly attempt: number; readonly round: number } | null;
    readonly storedSequence: number;
    readonly coordinatorTerm: number;
    readonly seatFailures: number;
    readonly hasFailedSeat: boolean;
  }[];
  readonly places: readonly {
    readonly attempt: number;
    readonly index: number;
    readonly role: 'primary' | 'standby';
    readonly incarnation: number;
    readonly term: number;
    readonly serverId: string | null;
    readonly port: number | null;
    readonly storage: string | null;
    readonly isClaimed: boolean;
    readonly isLoading: boolean;
    readonly isDropped: boolean;
  }[];
  readonly seats: readonly {
    readonly attempt: number;
    readonly seat: number;
    readonly incarnation: number;
    readonly state: string;
    readonly heldSeats: number;
    readonly workerId: string | null;
    readonly replicas: readonly number[];
    readonly wasHeld: boolean;
    readonly closeReason: string | null;
  }[];
  /** Of jobs that have not been sent, sorted; the run's own id is left out. */
  readonly jobs: readonly string[];
  readonly checkpoints: readonly {
    readonly attempt: number;
    readonly round: number;
    readonly isInvalid: boolean;
    readonly isRemoved: boolean;
  }[];
  /** Numbers of journal entries, `attempt/n`, sorted. */
  readonly entries: readonly string[];
  /** What people read, in its order. Who created the run is left out. */
  readonly events: readonly {
    readonly attempt: number;
    readonly sequence: number | null;
    readonly type: string;
    readonly message: string;
    readonly data: unknown;
  }[];
}

export interface ContractSpec {
  readonly servers: number;
  readonly standby: 0 | 1;
  readonly replicas: number;
  readonly restarts: number;
  readonly keepLast: number;
  readonly rounds: number;
  /** As many workers hold the shards in place of servers. */
  readonly isOnWorkers?: boolean;
}

export const CONTRACT_SPEC: ContractSpec = { servers: 2, standby: 0, replicas: 4, restarts: 2, keepLast: 2, rounds: 100 };

/** As a person writes it. */
export const specInput = ({ servers, standby, replicas, restarts, keepLast, rounds, isOnWorkers }: ContractSpec) => ({
  replicas,
  restarts,
  length: { rounds },
  checkpoint: { keepLast, keepBest: false },
  strategy: isOnWorkers
    ? { kind: 'multi-worker-mirrored' as const, workers: servers, standby }
    : { kind: 'parameter-server' as const, servers, standby },
});

/** A run of one store. */
export interface ContractRun {
  readonly id: string;
  /** @param decidedFor the attempt and the status that the dispatcher saw */
  carryOut(decidedFor: { readonly attempt: number; readonly status: RunStatus }, action: DispatchAction): Promise<void>;
  take(report: FleetReport): Promise<void>;
  askLead(asked: Extract<Report, { kind: 'lead.asked' }>): Promise<void>;
  /** What the control hash would say. */
  lead(attempt: number, index: number): Promise<LeadAnswer | undefined>;
  journal(report: JournalReport, streamId: string): Promise<{ ack: { attempt: number; sequence: number } | undefined; mustStop: boolean }>;
  ask(asked: AskedOfRun): Promise<'done' | 'refused'>;
  rows(): Promise<ContractRows>;
}

/** The checkpoint of another run that a run begins with. */
export interface ContractOrigin {
  readonly run: ContractRun;
  readonly attempt: number;
  readonly round: number;
}

export const parentOfRow = (row: {
  readonly parentRunId: string | null;
  readonly parentNumber: number | null;
  readonly parentRound: bigint | number | null;
}): ContractRows['attempts'][number]['parent'] =>
  row.parentNumber === null
    ? null
    : { ...(row.parentRunId === null ? {} : { run: row.parentRunId }), attempt: row.parentNumber, round: Number(row.parentRound) };

/** As a column of JSON keeps it. Each side has its own key. */
export function storedJson(data: unknown): unknown {
  const { apiKeyId: _apiKeyId, ...rest } = JSON.parse(JSON.stringify(data)) as Record<string, unknown>;
  return rest;
}

const STATE: CoordinatorState = {
  phase: 'waiting',
  round: 0,
  totalRounds: 100,
  view: 1,
  seats: [],
  refusedFrames: 0,
  refusedConnections: 0,
  waitingFor: null,
};
type Unnumbered = JournalEntry extends infer E ? (E extends JournalEntry ? Omit<E, 'sequence' | 'atMs'> : never) : never;

/** Steps in short, over a run of any store. */
export class ContractScript {
  private streamed = 0;

  constructor(readonly run: ContractRun) {}

  /** For what the dispatcher sees now. */
  async act(action: DispatchAction, decidedFor?: { attempt: number; status: RunStatus }): Promise<ContractRows> {
    await this.run.carryOut(decidedFor ?? (await this.run.rows()).run, action);
    return this.run.rows();
  }

  async take(report: FleetReport): Promise<ContractRows> {
    await this.run.take(report);
    return this.run.rows();
  }

  async ask(asked: AskedOfRun): Promise<ContractRows & { readonly answer: string }> {
    const answer = await this.run.ask(asked);
    return { ...(await this.run.rows()), answer };
  }

  claim(attempt: number, index: number, serverId: string, rest: Partial<Extract<Report, { kind: 'server.claimed' }>> = {}) {
    const address: ServerAddress = { index, serverId, host: '127.0.0.1', port: 7_000 + index, unixPath: null };
    return this.take({ kind: 'server.claimed', runId: this.run.id, attempt, address, ...rest });
  }

  serverFailed(attempt: number, index: number, serverId: string, code = 'SERVER_UNREACHABLE') {
    return this.take({ kind: 'server.failed', runId: this.run.id, attempt, index, serverId, code, message: 'it says so' });
  }

  seatFailed(attempt: number, seat: number, incarnation = 0, workerId = 'w') {
    const words = { workerId, code: 'ENGINE_CRASHED', message: 'it crashed', serverIndex: null };
    return this.take({ kind: 'seat.failed', runId: this.run.id, attempt, seat, incarnation, ...words });
  }

  seatLeft(attempt: number, seat: number, incarnation: number) {
    return this.take({ kind: 'seat.left', runId: this.run.id, attempt, seat, incarnation, workerId: 'w', reason: 'it leaves' });
  }

  async journal(
    attempt: number,
    entries: readonly JournalEntry[],
    { state = {}, streamId, ...rest }: { state?: Partial<CoordinatorState>; after?: number; term?: number; streamId?: string } = {},
  ) {
    const report: JournalReport = {
      kind: 'journal',
      runId: this.run.id,
      attempt,
      entries: [...entries],
      state: { ...STATE, ...state },
      ...rest,
    };
    const stored = await this.run.journal(report, streamId ?? `${++this.streamed}-1`);
    return { ...stored, ...(await this.run.rows()) };
  }

  /** Two servers claim, the attempt is told to begin and trains. */
  async train(attempt = 1, round = 1): Promise<ContractRows> {
    for (const { index, role, isClaimed } of (await this.run.rows()).places.filter((place) => place.attempt === attempt))
      if (!isClaimed) await this.claim(attempt, index, `${role === 'primary' ? 'p' : 's'}${index}-a${attempt}`, { role });
    await this.act({ kind: 'mark-started' });
    await this.journal(attempt, [], { state: { phase: 'training', round } });
    return this.run.rows();
  }

  end(cause: 'SERVER_LOST' | 'CHECKPOINT_INVALID' | 'POISON_ROUND' | 'CONFIG_CHANGED' | 'COORDINATOR_SILENT', attempt?: number) {
    const action = { kind: 'end-attempt', end: { kind: 'failed', cause, message: `ended with ${cause}` } } as const;
    return attempt === undefined ? this.act(action) : this.act(action, { attempt, status: 'RUNNING' });
  }

  begin(): Promise<ContractRows> {
    return this.act({ kind: 'begin-attempt', reason: 'the next attempt begins' });
  }
}

export const numbered = (from: number, entries: readonly Unnumbered[]): JournalEntry[] =>
  entries.map((entry, i) => ({ ...entry, sequence: from + i, atMs: 1_000 + i }) as JournalEntry);
export const ledger = (fromRound: number, toRound = fromRound): Unnumbered => ({ kind: 'ledger', fromRound, toRound, examples: 10 });
export const event = (
  type: Extract<JournalEntry, { kind: 'event' }>['type'],
  data: Record<string, unknown> = {},
  message: string = type,
): Unnumbered => ({ kind: 'event', type, message, data });
export const written = (attempt: number, round: number, changes: Partial<CheckpointRecord> = {}): Unnumbered =>
  event('checkpoint.written', { attempt, round, bytes: 10, sha256: 'ab'.repeat(32), loss: null, reason: 'cadence', ...changes });
export const RESULT = {
  rounds: 100,
  values: { loss: 0.1, accuracy: 0.9 },
  examplesPerSecond: 1,
  trainedExamples: 1_000,
  weightsSha256: 'ab'.repeat(32),
  weightsFile: null,
  trainingMs: 1,
};

export const placeOf = ({ places }: ContractRows, index: number, role = 'primary', attempt = 1) =>
  places.find((row) => row.attempt === attempt && row.index === index && row.role === role);

export interface ContractScenario {
  readonly name: string;
  readonly spec?: Partial<ContractSpec>;
  /** @param another makes one more run, of the same spec */
  play(script: ContractScript, another: (from?: ContractOrigin) => Promise<ContractScript>): Promise<void>;
}
export const specOf = ({ spec }: ContractScenario): ContractSpec => ({ ...CONTRACT_SPEC, ...spec });
