/** The contract's run over rows in memory, as the simulator stores one. */
import { parseRunSpec } from '@paceline/spec';
import {
  parentOfRow,
  specInput,
  storedJson,
  type ContractOrigin,
  type ContractRows,
  type ContractRun,
  type ContractSpec,
} from './stored-contract.fixture.js';
import { Rows } from '../world/postgres.js';
import { decideLead, readLead } from './stored-lead.js';
import { storeJournal, takeReport } from './stored-reports.js';
import { carryOut } from './stored-actions.js';
import { StoredRun, type RunWitness } from './stored-run.js';
import { UndoLog } from '../world/undo-log.js';

const NOBODY: RunWitness = {
  moved: () => undefined,
  attemptEnded: () => undefined,
  restored: () => undefined,
  endedAfter: () => undefined,
  entryWritten: () => undefined,
  storedUpTo: () => undefined,
  checkpointWritten: () => undefined,
};

const rowsOf = new Map<string, Rows>();
let made = 0;

/** @param runId of the same run on another side, which it is compared with @param from what it begins with; its run is known by its id */
export function memoryRun(
  given: ContractSpec,
  runId = `00000000-0000-4000-8000-${String(++made).padStart(12, '0')}`,
  from?: ContractOrigin,
): ContractRun {
  const rows = new Rows(new UndoLog(() => 0, 0));
  rowsOf.set(runId, rows);
  const otherRows = (other: string): Rows | undefined => rowsOf.get(other);
  const stored = (): StoredRun => new StoredRun({ runId, rows, wallMs: Date.now(), random: Math.random, otherRows, watch: NOBODY });
  const parsed = parseRunSpec(specInput(given));
  if (!parsed.ok) throw new Error(`no spec: ${JSON.stringify(parsed.issues)}`);
  stored().create(parsed.spec, { totalRounds: given.rounds, roundsPerEpoch: 235 }, originPoint(from));
  // Steps of the contract know seats by their numbers; the id is this side's own.
  const run: ContractRun = {
    id: runId,
    carryOut: (decidedFor, action) => {
      const named = 'task' in action ? { ...action, task: { ...action.task, id: taskId(rows, decidedFor.attempt, action.task) } } : action;
      carryOut(stored(), decidedFor, named);
      return Promise.resolve();
    },
    take: (report) => Promise.resolve(takeReport(stored(), report)),
    askLead: (asked) => Promise.resolve(void decideLead(stored(), asked)),
    lead: (attempt, index) => Promise.resolve(readLead(stored(), attempt, index)),
    journal: (report, streamId) => {
      const { ack, mustStop } = storeJournal(stored(), report, streamId);
      return Promise.resolve({ ack, mustStop });
    },
    ask: (asked) => {
      const { does } = stored().ask(asked);
      return Promise.resolve(does === 'refuse' || does === 'invalid' ? 'refused' : 'done');
    },
    rows: () => Promise.resolve(read(stored())),
  };
  return run;
}

const originPoint = (from: ContractOrigin | undefined) => (from ? { runId: from.run.id, attempt: from.attempt, round: from.round } : null);

const taskId = (rows: Rows, attempt: number, { seat, incarnation }: { seat: number; incarnation: number }): string =>
  rows.tasks.values().find((task) => task.attempt === attempt && task.seat === seat && task.incarnation === incarnation)?.id ?? '';

function read(stored: StoredRun): ContractRows {
  const { rows, run, id } = stored;
  const coordinator = run.coordinator as { attempt: number; phase: string; round: number; seats: unknown[] } | null;
  return {
    run: {
      status: run.status,
      statusReason: run.statusReason,
      isWaiting: run.isWaiting,
      attempt: run.attempt,
      isCancelWanted: run.cancelRequestedAt !== null,
      isPauseWanted: run.pauseRequestedAt !== null,
      hasNextAttempt: run.nextAttemptAt !== null,
      isFinished: run.finishedAt !== null,
      workersWanted: run.workersWanted,
      restartsUsed: run.restartsUsed,
      restartsTotal: run.restartsTotal,
      bestRound: run.bestRound,
      serverCount: run.serverCount,
      totalRounds: run.totalRounds,
      length: stored.spec.length,
      coordinator: coordinator && {
        attempt: coordinator.attempt,
        phase: coordinator.phase,
        round: coordinator.round,
        seats: coordinator.seats.length,
      },
    },
    attempts: rows.attempts
      .values()
      .map((row) => ({
        number: row.number,
        hasStarted: row.startedAt !== null,
        hasEnded: row.endedAt !== null,
        endCause: row.endCause,
        endReason: row.endReason,
        endRound: row.endRound,
        parent: parentOfRow(row),
        storedSequence: row.storedSequence,
        coordinatorTerm: row.coordinatorTerm,
        seatFailures: row.seatFailures,
        hasFailedSeat: row.lastFailureAt !== null,
      }))
      .sort((a, b) => a.number - b.number),
    places: rows.servers
      .values()
      .map((row) => ({
        attempt: row.attempt,
        index: row.index,
        role: row.role,
        incarnation: row.incarnation,
        term: row.term,
        serverId: row.serverId,
        port: row.port,
        storage: row.storage,
        isClaimed: row.claimedAt !== null,
        isLoading: row.isLoading,
        isDropped: row.droppedAt !== null,
      }))
      .sort((a, b) => a.attempt - b.attempt || a.index - b.index || (a.role < b.role ? -1 : 1)),
    seats: rows.tasks
      .values()
      .map((row) => ({
        attempt: row.attempt,
        seat: row.seat,
        incarnation: row.incarnation,
        state: row.state,
        heldSeats: row.heldSeats,
        workerId: row.workerId,
        replicas: row.replicas,
        wasHeld: row.heldAt !== null,
        closeReason: row.closeReason,
      }))
      .sort((a, b) => a.attempt - b.attempt || a.seat - b.seat || a.incarnation - b.incarnation),
    jobs: rows.outbox
      .values()
      .map(({ jobId }) => jobId.replace(`${id}-`, ''))
      .sort(),
    checkpoints: rows.checkpoints
      .values()
      .map(({ attempt, round, isInvalid, isRemoved }) => ({ attempt, round, isInvalid, isRemoved }))
      .sort((a, b) => a.attempt - b.attempt || a.round - b.round),
    entries: rows.entries
      .values()
      .map(({ attempt, sequence }) => `${attempt}/${String(sequence).padStart(4, '0')}`)
      .sort(),
    events: rows.events
      .values()
      .map(({ attempt, sequence, type, message, data }) => ({ attempt, sequence, type, message, data: storedJson(data) })),
  };
}
