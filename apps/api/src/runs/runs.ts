/** Runs of a team: reading and listing. Another team's run is not there. */
import { Injectable } from '@nestjs/common';
import { coordinatorOf, firstRoundOf, resultRounds, type RunStatus } from '@paceline/control-plane';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import { Fleet } from '../fleet/fleet.js';
import type { Prisma, RunServer } from '../generated/prisma/client.js';
import { encodeCursor, readPage, toConnection, wholeNumberUpTo, type PageArgs } from '../graphql/cursor-pages.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid, storable } from '../text-input.js';
import type { CodecChoice } from '@paceline/protocol';
import { picksCodec } from '@paceline/spec';
import { codecChoiceOf } from './codec-choice.js';
import { lostResidualsOf, type LostResiduals } from './lost-residuals.js';
import { strategyChoiceOf, type StrategyChoice } from './strategy-choice.js';
import { lineageColumns, readLineage, readWholeLineage } from './stored-lineage.js';
import { RunReads } from './run-reads.js';
import { RUN_COLUMNS, WITHOUT_MODEL, type RunRow } from './run-columns.js';
import { scheduledExamples, shortSpecOf, toRun } from './run-row.js';
import {
  RunAttempt,
  RunCheckpoint,
  RunServerType,
  StepTask,
  type Run,
  type RunEventType,
  type RunLedger,
  type RunStatusChangeType,
} from './run.types.js';

/** Milliseconds up to the year 9999, which is as far as a time is written with four digits. */
const RUN_CURSOR = [wholeNumberUpTo(253_402_300_799_999), isUuid];
/** Numbers of events are 32-bit integers in PostgreSQL. */
const EVENT_CURSOR = [wholeNumberUpTo(2 ** 31 - 1)];
/** Enough to show what a reference may mean. */
const MAX_MEANT = 10;
const PART_OF_ID = /^[0-9a-f-]{4,36}$/i;

const READ_RUN = `SELECT ${RUN_COLUMNS} FROM "Run" WHERE "id" = $1::uuid AND "teamId" = $2::uuid`;
const READ_SERVERS = `
  SELECT place."index", place."role"::text AS "role", place."term", place."serverId", place."host", place."port",
         attempt."startedAt" IS NOT NULL AS "hasStarted"
    FROM "RunServer" AS place JOIN "Attempt" AS attempt ON attempt."runId" = place."runId" AND attempt."number" = place."attempt"
   WHERE place."runId" = $1::uuid AND place."attempt" = $2::int AND place."claimedAt" IS NOT NULL AND place."droppedAt" IS NULL
   ORDER BY place."index", place."role"`;
type ClaimedServer = Pick<RunServer, 'index' | 'role' | 'term' | 'serverId' | 'host' | 'port'> & { readonly hasStarted: boolean };
/** A range that the journal has merged over the cut counts up to the cut. */
const READ_LEDGER = `
  SELECT sum("toRound" - "fromRound" + 1)::bigint AS "rounds", sum("examples")::bigint AS "examples", sum("dropped")::bigint AS "dropped",
         max("toRound") + 1 AS "end", NULL::int AS "cut"
    FROM "LedgerRange" JOIN unnest($2::int[], $3::int[], $4::int[]) AS part(number, lo, hi) ON "attempt" = part.number
   WHERE "runId" = $1::uuid AND "fromRound" >= part.lo AND "toRound" < part.hi
  UNION ALL
  SELECT part.hi - "fromRound", 0, 0, part.hi, "fromRound"
    FROM "LedgerRange" JOIN unnest($2::int[], $3::int[], $4::int[]) AS part(number, lo, hi) ON "attempt" = part.number
   WHERE "runId" = $1::uuid AND "fromRound" >= part.lo AND "fromRound" < part.hi AND "toRound" >= part.hi`;
interface CountedRange {
  readonly rounds: bigint | null;
  readonly examples: bigint | null;
  readonly dropped: bigint | null;
  readonly end: number | null;
  readonly cut: number | null;
}

export interface RunFilter {
  readonly status?: readonly RunStatus[] | null | undefined;
  /** A part of the name, in upper or lower case. */
  readonly name?: string | null | undefined;
}
export const LISTED = 200;
export const MAX_LISTED = 2_000;

@Injectable()
export class Runs {
  constructor(
    private readonly database: Database,
    private readonly fleet: Fleet,
    private readonly reads: RunReads,
  ) {}

  async find(viewer: Viewer, id: string): Promise<Run | null> {
    const row = await this.findRow(viewer, id);
    return row && toRun(row);
  }

  async findRow(viewer: Viewer, id: string): Promise<RunRow | null> {
    if (!isUuid(id)) return null;
    const [row] = await this.database.rows<RunRow>('run-of-team', READ_RUN, [id, viewer.teamId]);
    return row ?? null;
  }

  /**
   * The runs of the team that a person may mean, newest first: the one with this id; `@last`, the newest; those of this name and those whose id
   * begins or ends with these four or more characters. Runs of the same minute begin alike (UUIDv7), but end at random.
   */
  async meant(viewer: Viewer, reference: string): Promise<Run[]> {
    const { teamId } = viewer;
    if (isUuid(reference)) return (await this.findRow(viewer, reference).then((row) => (row ? [row] : []))).map(toRun);
    const newest = { orderBy: [{ createdAt: 'desc' as const }, { id: 'desc' as const }], take: MAX_MEANT, omit: WITHOUT_MODEL };
    if (reference === '@last') return (await this.database.run.findMany({ ...newest, where: { teamId }, take: 1 })).map(toRun);
    const name = storable(reference);
    if (!PART_OF_ID.test(reference)) return (await this.database.run.findMany({ ...newest, where: { teamId, name } })).map(toRun);
    const part = reference.toLowerCase();
    const ids = await this.database.$queryRaw<{ id: string }[]>`
      SELECT "id"::text AS "id" FROM "Run" WHERE "teamId" = ${teamId}::uuid AND ("id"::text LIKE ${`${part}%`} OR "id"::text LIKE ${`%${part}`})
       ORDER BY "createdAt" DESC, "id" DESC LIMIT ${MAX_MEANT}`;
    return (
      await this.database.run.findMany({ ...newest, where: { teamId, OR: [{ name }, { id: { in: ids.map(({ id }) => id) } }] } })
    ).map(toRun);
  }

  /** Newest first. @throws Fault INVALID_INPUT */
  async list(viewer: Viewer, args: PageArgs & RunFilter) {
    const page = readPage('runs', RUN_CURSOR, args, 20);
    const statuses = args.status ? [...new Set(args.status)] : undefined;
    const filter = {
      teamId: viewer.teamId,
      ...(statuses ? { status: { in: statuses } } : {}),
      ...(args.name ? { name: { contains: likeText(storable(args.name)), mode: 'insensitive' as const } } : {}),
    };
    const [direction, beyond] = page.backward ? (['asc', 'gt'] as const) : (['desc', 'lt'] as const);
    const from = page.backward ? page.before : page.after;
    const at = from && new Date(Number(from[0]));
    const keyset = from && at ? { OR: [{ createdAt: { [beyond]: at } }, { createdAt: at, id: { [beyond]: from[1]! } }] } : {};
    const [rows, totalCount] = await Promise.all([
      this.database.run.findMany({
        where: { ...filter, ...keyset },
        orderBy: [{ createdAt: direction }, { id: direction }],
        take: page.size + 1,
        omit: WITHOUT_MODEL,
      }),
      this.database.run.count({ where: filter }),
    ]);
    return { ...toConnection(page, rows, (row) => encodeCursor('runs', row.createdAt.getTime(), row.id), toRun), totalCount };
  }

  /** Runs that train on a dataset of the team, newest first. */
  async ofDataset({ teamId }: Viewer, version: { datasetId: string } | { id: string }, first: number): Promise<Run[]> {
    const rows = await this.database.run.findMany({
      where: { teamId, datasetVersion: version },
      orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
      take: first,
      omit: WITHOUT_MODEL,
    });
    return rows.map(toRun);
  }

  /** Oldest first; cursors are numbers of events. @throws Fault INVALID_INPUT */
  async events({ id: runId }: Run, args: PageArgs) {
    const page = readPage('events', EVENT_CURSOR, args, 50);
    const [after, before] = [page.after, page.before].map((cursor) => (cursor ? Number(cursor[0]) : null));
    const rows = await this.reads.events({ runId, size: page.size + 1, after: after!, before: before!, isBackward: page.backward });
    return toConnection(page, rows, ({ seq }) => encodeCursor('events', seq), toEvent);
  }

  /** The last so many, oldest first. @throws Fault INVALID_INPUT */
  async statusHistory({ id: runId, created }: Run, last?: number | null): Promise<RunStatusChangeType[]> {
    const size = sizeOf('last', last);
    return created ? created.statusHistory.slice(-size) : (await this.reads.statusHistory({ runId, size })).reverse();
  }

  /** Those that are held come first and those that are closed last. @throws Fault INVALID_INPUT */
  async stepTasks({ id: runId, attempt, created }: Run, first?: number | null): Promise<StepTask[]> {
    const size = sizeOf('first', first);
    return created ? [] : (await this.reads.stepTasks({ runId, attempt, size })).map(toStepTask);
  }

  async stepTask(viewer: Viewer, id: string): Promise<StepTask | null> {
    const row = await this.database.stepTask.findFirst({ where: { id, run: { teamId: viewer.teamId } } });
    return row && toStepTask(row);
  }

  /** Newest first, with how the restart budget stands on the run itself. @throws Fault INVALID_INPUT */
  async attempts({ id: runId, created }: Run, first?: number | null): Promise<RunAttempt[]> {
    const size = sizeOf('first', first);
    return created ? created.attempts.slice(0, size) : (await this.reads.attempts({ runId, size })).map(toAttempt);
  }

  /** Newest first; removed ones are not shown. @throws Fault INVALID_INPUT */
  async checkpoints({ id: runId, attempt, row }: Run, first?: number | null): Promise<RunCheckpoint[]> {
    const [rows, lineage] = await Promise.all([
      this.reads.checkpoints({ runId, size: sizeOf('first', first) }),
      readWholeLineage(this.database, runId, attempt),
    ]);
    return rows.map(({ bytes, invalidAt, ...checkpoint }) =>
      Object.assign(new RunCheckpoint(), {
        attempt: checkpoint.attempt,
        round: checkpoint.round,
        totalRounds: Number(row.totalRounds),
        bytes: Number(bytes),
        sha256: checkpoint.sha256,
        loss: checkpoint.loss,
        reason: checkpoint.reason,
        createdAt: checkpoint.createdAt,
        state: invalidAt
          ? 'INVALID'
          : lineage.some((part) => part.attempt === checkpoint.attempt && checkpoint.round <= part.toRound)
            ? 'USABLE'
            : 'VOID',
      }),
    );
  }

  async servers(run: Run): Promise<RunServerType[]> {
    return run.created ? [] : this.reads.inTurn(run.row.teamId, () => this.readServers(run));
  }

  private async readServers({ id: runId, attempt }: Run): Promise<RunServerType[]> {
    const [rows, ofServers, ofWorkers] = await Promise.all([
      this.database.rows<ClaimedServer>('run-servers', READ_SERVERS, [runId, attempt]),
      this.fleet.members('server'),
      this.fleet.members('worker'),
    ]);
    const members = [...ofServers, ...ofWorkers];
    return rows.map(({ index, role, term, serverId, host, port, hasStarted }) => {
      const member = members.find((candidate) => candidate.id === serverId);
      const isLost = member !== undefined && !this.fleet.isAlive(member);
      return Object.assign(new RunServerType(), {
        index,
        role: role === 'standby' && rows.some((other) => other.index === index && other.role === 'primary') ? 'STANDBY' : 'PRIMARY',
        term,
        serverId: serverId!,
        address: `${host}:${port}`,
        state: isLost ? 'LOST' : hasStarted ? 'STARTED' : 'CLAIMED',
      });
    });
  }

  /**
   * What was committed along the lineage, counted from ranges of (round, replica) rows, beside what the schedule of the spec gives the
   * rounds from the first to the last of them: a range that is missing or counted twice makes a difference.
   */
  async codec({ id, created, row }: Run): Promise<CodecChoice | null> {
    const spec = shortSpecOf(row);
    return created || !picksCodec(spec) ? null : this.reads.inTurn(row.teamId, () => codecChoiceOf(this.database, { id, spec }));
  }

  async lostResiduals({ id, attempt, created, row }: Run): Promise<LostResiduals | null> {
    return created ? null : this.reads.inTurn(row.teamId, () => lostResidualsOf(this.database, { id, attempt, spec: shortSpecOf(row) }));
  }

  async pickedStrategy({ id, created, row }: Run): Promise<StrategyChoice | null> {
    return created ? null : this.reads.inTurn(row.teamId, () => strategyChoiceOf(this.database, id));
  }

  async ledger(run: Run): Promise<RunLedger> {
    return run.created ? NOTHING_COMMITTED : this.reads.inTurn(run.row.teamId, () => this.readLedger(run));
  }

  private async readLedger({ id: runId, attempt, status, row }: Run): Promise<RunLedger> {
    const lineage = await readLineage(this.database, runId, attempt);
    const ranges = await this.database.rows<CountedRange>('run-ledger', READ_LEDGER, [runId, ...lineageColumns(lineage)]);
    const scheduled = (from: number, to: number): number => scheduledExamples(row, to) - scheduledExamples(row, from);
    const counted = ranges.map(({ examples, cut, end }) => (cut === null ? Number(examples ?? 0) : scheduled(cut, end ?? cut)));
    const first = firstRoundOf(lineage);
    // One that stopped early has fewer than were planned.
    const last =
      status === 'SUCCEEDED'
        ? (resultRounds(row.result) ?? Number(row.totalRounds))
        : Math.max(first, ...ranges.map(({ end }) => end ?? 0));
    const coordinator = coordinatorOf(row);
    return {
      committedRounds: ranges.reduce((sum, { rounds }) => sum + Number(rounds ?? 0), 0),
      committedExamples: counted.reduce((sum, examples) => sum + examples, 0),
      droppedExamples: ranges.reduce((sum, { dropped }) => sum + Number(dropped ?? 0), 0),
      expectedExamples: scheduled(first, last),
      refusedFrames: coordinator?.refusedFrames ?? 0,
      refusedConnections: coordinator?.refusedConnections ?? 0,
    };
  }
}

/** Prisma hands it to ILIKE as it is: `%` and `_` are to mean themselves. */
const likeText = (text: string): string => text.replace(/[\\%_]/g, '\\$&');

const NOTHING_COMMITTED: RunLedger = {
  committedRounds: 0,
  committedExamples: 0,
  droppedExamples: 0,
  expectedExamples: 0,
  refusedFrames: 0,
  refusedConnections: 0,
};

export const toAttempt = ({ endRound, parentRound, ...attempt }: Prisma.AttemptGetPayload<object>): RunAttempt =>
  Object.assign(new RunAttempt(), {
    number: attempt.number,
    createdAt: attempt.createdAt,
    startedAt: attempt.startedAt,
    endedAt: attempt.endedAt,
    endCause: attempt.endCause,
    endReason: attempt.endReason,
    endRound: endRound === null ? null : Number(endRound),
    fromRound: Number(parentRound ?? 0),
    parentNumber: attempt.parentNumber,
    parentRunId: attempt.parentRunId,
  });
/** @throws Fault INVALID_INPUT */
function sizeOf(name: string, given: number | null | undefined): number {
  const size = given ?? LISTED;
  if (size < 0 || size > MAX_LISTED) throw new Fault('INVALID_INPUT', `\`${name}\` must be from 0 to ${MAX_LISTED}, not ${size}.`);
  return size;
}

export const toEvent = ({ seq, type, message, data, at, attempt }: RunEventType): RunEventType => ({
  seq,
  type,
  message,
  data,
  at,
  attempt,
});

/** A list that was never written is NULL for plain SQL. */
const toStepTask = ({ replicas, ...task }: Omit<StepTask, 'replicas'> & { replicas: number[] | null }): StepTask => {
  const { id, seat, incarnation, state, createdAt, workerId } = task;
  return Object.assign(new StepTask(), { id, seat, incarnation, state, replicas: replicas ?? [], createdAt, workerId });
};
