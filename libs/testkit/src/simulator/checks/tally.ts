/** What many seeds add up to: rows of the state tables that were taken, faults that fired, outcomes, and seeds that failed. */
import {
  COORDINATOR_ROWS,
  MEMBER_ROWS,
  REPLICATION_ROWS,
  SHARD_ROWS,
  STANDBY_ROWS,
  ASYNC_COORDINATOR_ROWS,
  ASYNC_MEMBER_ROWS,
  ASYNC_SHARD_ROWS,
  type StateRows,
} from '@paceline/exchange';
import { ATTEMPT_END_ROWS, RUN_MOVES } from '@paceline/control-plane';
import type { Violation } from './checks.js';
import type { SeedResult } from '../simulate.js';
import { ASYNC_ROWS_RARELY_REACHED } from '../run/async-run.js';

const rowsOf = (table: StateRows<string>): string[] => Object.keys(table);

const MACHINES: Readonly<Record<string, readonly string[]>> = {
  coordinator: rowsOf(COORDINATOR_ROWS),
  shard: rowsOf(SHARD_ROWS),
  member: rowsOf(MEMBER_ROWS),
  replication: rowsOf(REPLICATION_ROWS),
  standby: rowsOf(STANDBY_ROWS),
  'async-coordinator': rowsOf(ASYNC_COORDINATOR_ROWS),
  'async-shard': rowsOf(ASYNC_SHARD_ROWS),
  'async-member': rowsOf(ASYNC_MEMBER_ROWS),
};

/** What an attempt's end is followed by, and the moves of a run's status. Some take seeds by the thousand, or faults of their own. */
const CONTROL_PLANE: Readonly<Record<string, readonly string[]>> = {
  'attempt-end': Object.keys(ATTEMPT_END_ROWS),
  'run-status': Object.entries(RUN_MOVES).flatMap(([from, to]) => to.map((next) => `${from}>${next}`)),
};

const IN_ORDER = 'connections keep their order, and who was replaced is not heard any more';
const IN_ONE_TRANSACTION = 'a run is accepted in the transaction that creates it';
const NOT_EXTENDED = 'the simulated run has one length, and nobody extends it; test/api/run-requests.test.ts takes it';
const OF_ANOTHER_RUN =
  'only a run that began with the checkpoint of another may have nothing to go on from; test/api/resume-from.test.ts takes it';

/** Rows that no seed can take, each with the reason. Where one is taken all the same the reason is wrong, or a machine is (`takenUnreached`). */
export const NOT_REACHED: Readonly<Record<string, string>> = {
  'member.viewOld': `${IN_ORDER}; a successor counts its views on from the highest that its workers know; standby-moments.test.ts takes it`,
  'member.commitOld': `${IN_ORDER}; standby-moments.test.ts takes it`,
  'standby.chunkRepeated':
    'a primary forwards each chunk once, and the link of the two is never opened again; standby-moments.test.ts takes it',
  'run-status.PENDING>FAILED': IN_ONE_TRANSACTION,
  'run-status.PENDING>CANCELLED': IN_ONE_TRANSACTION,
  'run-status.PAUSED>FAILED': OF_ANOTHER_RUN,
  'run-status.RECOVERING>FAILED': OF_ANOTHER_RUN,
  'attempt-end.otherStrategy': 'a simulated run names its strategy; attempt-end.test.ts takes it',
  'attempt-end.noMemory': 'there is one run, so its parts wait for the memory of no other; attempt-end.test.ts takes it',
  'attempt-end.storeAway': 'the simulated store always answers; attempt-end.test.ts takes it',
  'attempt-end.sharedLoss': 'there is one run, so no server holds parts of two; attempt-end.test.ts takes it',
  'run-status.SUCCEEDED>QUEUED': NOT_EXTENDED,
  'run-status.QUEUED>SUCCEEDED': NOT_EXTENDED,
  'run-status.PROVISIONING>SUCCEEDED': NOT_EXTENDED,
  'run-status.PAUSED>SUCCEEDED': NOT_EXTENDED,
  'run-status.RECOVERING>SUCCEEDED': NOT_EXTENDED,
};

/** Rows that a few seeds in ten thousand take: a sweep need not. */
export const RARELY_REACHED: Readonly<Record<string, string>> = {
  ...ASYNC_ROWS_RARELY_REACHED,
  'shard.commitRepeated': 'a COMMIT that was eaten is said again while an answer is on its way; standby-moments.test.ts takes it',
  'shard.checkpointAgain':
    'the coordinator is lost after the last COMMIT, before the final checkpoint is known; standby-moments.test.ts takes it',
  'shard.decisionRepeated': 'as shard.commitRepeated, of INCLUDE and DECISION; standby-moments.test.ts takes it',
  'shard.toldAgain': 'a coordinator has taken over, or a round stands still; standby-moments.test.ts takes it',
  'member.staleTerm': 'a former primary speaks before it knows that its standby has taken over; standby-moments.test.ts takes it',
  'standby.staleTerm': 'its primary speaks before it has heard of the term that its coordinator is in; standby-moments.test.ts takes it',
  'standby.late': 'the first word of its primary comes after the standby has given it up; standby-moments.test.ts takes it',
  'replication.unanswered':
    'the attempt ends, or the control plane comes back, before a server has asked for 330 s; arbiter-request.test.ts takes it',
  'standby.unanswered': 'as replication.unanswered; cut-off.test.ts takes it too',
  'coordinator.committedElsewhere':
    'a worker alone has heard COMMIT before both servers of index 0 were apart; standby-moments.test.ts takes it',
};

export interface FailedSeed {
  readonly seed: number;
  readonly check: string;
  readonly mode: string;
  readonly violation: Violation;
  readonly describe: string;
  readonly recent: readonly string[];
  readonly waitingFor: readonly string[];
}

/** Plain data: it travels between threads. */
export interface Tally {
  seeds: number;
  events: number;
  rounds: number;
  rows: Record<string, number>;
  fired: Record<string, number>;
  outcomes: Record<string, number>;
  failed: FailedSeed[];
}

export function emptyTally(): Tally {
  return { seeds: 0, events: 0, rounds: 0, rows: {}, fired: {}, outcomes: {}, failed: [] };
}

export function addSeed(tally: Tally, result: SeedResult): void {
  tally.seeds++;
  tally.events += result.events;
  tally.rounds += result.rounds;
  for (const { name, taken } of result.tables) for (const [row, count] of taken) add(tally.rows, `${name}.${String(row)}`, count);
  for (const [row, count] of result.ends) add(tally.rows, `attempt-end.${row}`, count);
  for (const [move, count] of result.moves) add(tally.rows, `run-status.${move}`, count);
  for (const [fault, count] of result.fired) add(tally.fired, fault, count);
  add(tally.outcomes, `${result.mode}, ${result.check}: ${result.outcome}`, 1);
  const { seed, check, mode, violation, describe, recent, waitingFor } = result;
  if (violation) tally.failed.push({ seed, check, mode, violation, describe, recent, waitingFor });
}

export function addTally(into: Tally, from: Tally): void {
  into.seeds += from.seeds;
  into.events += from.events;
  into.rounds += from.rounds;
  for (const part of ['rows', 'fired', 'outcomes'] as const)
    for (const [key, count] of Object.entries(from[part])) add(into[part], key, count);
  into.failed.push(...from.failed);
}

/** Every row of the tables of machines that ran (those of a mode run together), with how often it was taken. */
export function coverage(tally: Tally): { readonly row: string; readonly count: number }[] {
  const ran = new Set(Object.keys(tally.rows).map((row) => row.slice(0, row.indexOf('.'))));
  const tables = Object.entries({ ...MACHINES, ...CONTROL_PLANE }).filter(([name]) => ran.has(name));
  return tables.flatMap(([name, rows]) => rows.map((row) => ({ row: `${name}.${row}`, count: tally.rows[`${name}.${row}`] ?? 0 })));
}

const isOfMachine = (row: string): boolean => Object.hasOwn(MACHINES, row.slice(0, row.indexOf('.')));

/** Rows that were never taken and are not known as unreachable; those of the control plane where they are asked for. */
export function neverTaken(tally: Tally, withControlPlane = false): string[] {
  return coverage(tally)
    .filter(({ row, count }) => count === 0 && !(row in NOT_REACHED) && !(row in RARELY_REACHED) && (withControlPlane || isOfMachine(row)))
    .map(({ row }) => row);
}

/** Rows that were taken, and are said to be out of reach. */
export function takenUnreached({ rows }: Pick<Tally, 'rows'>): string[] {
  return Object.keys(NOT_REACHED).filter((row) => (rows[row] ?? 0) > 0);
}

function add(counts: Record<string, number>, key: string, count: number): void {
  counts[key] = (counts[key] ?? 0) + count;
}
