/** Runs of a team: reading and listing. Another team's run is not there. */
import { Injectable } from '@nestjs/common';
import { coordinatorOf, firstRoundOf, type RunStatus } from '@paceline/jobs';
import { Database } from '../database/database.js';
import { Fleet } from '../fleet/fleet.js';
import { encodeCursor, readPage, toConnection, type PageArgs } from '../graphql/connections.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid, storable } from '../text-input.js';
import { lineageColumns, readLineage, readWholeLineage } from './lineage.js';
import { scheduledExamples, toRun, WITHOUT_MODEL, type RunRow } from './run-row.js';
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

const RUN_CURSOR = [/^\d{1,15}$/, /^[0-9a-f-]{36}$/];
const EVENT_CURSOR = [/^\d{1,10}$/];
const MAX_LISTED = 2_000;
/** Enough to show what a reference may mean. */
const MAX_MEANT = 10;
const PART_OF_ID = /^[0-9a-f-]{4,36}$/i;

export interface RunFilter {
  readonly status?: readonly RunStatus[] | null | undefined;
  /** A part of the name, in upper or lower case. */
  readonly name?: string | null | undefined;
}

@Injectable()
export class Runs {
  constructor(
    private readonly database: Database,
    private readonly fleet: Fleet,
  ) {}

  async find(viewer: Viewer, id: string): Promise<Run | null> {
    const row = await this.findRow(viewer, id);
    return row && toRun(row);
  }

  async findRow(viewer: Viewer, id: string): Promise<RunRow | null> {
    return isUuid(id) ? this.database.run.findFirst({ where: { id, teamId: viewer.teamId }, omit: WITHOUT_MODEL }) : null;
  }

  /**
   * The runs of the team that a person may mean, newest first: the one with this id; `@last`, the newest; those of this name; else those whose id
   * begins or ends with these four or more characters. Runs of the same minute begin alike (UUIDv7), but end at random.
   */
  async meant(viewer: Viewer, reference: string): Promise<Run[]> {
    const { teamId } = viewer;
    if (isUuid(reference)) return (await this.findRow(viewer, reference).then((row) => (row ? [row] : []))).map(toRun);
    const newest = { orderBy: [{ createdAt: 'desc' as const }, { id: 'desc' as const }], take: MAX_MEANT, omit: WITHOUT_MODEL };
    if (reference === '@last') return (await this.database.run.findMany({ ...newest, where: { teamId }, take: 1 })).map(toRun);
    const name = storable(reference);
    const named = await this.database.run.findMany({ ...newest, where: { teamId, name } });
    if (named.length > 0 || !PART_OF_ID.test(reference)) return named.map(toRun);
    const part = reference.toLowerCase();
    const ids = await this.database.$queryRaw<{ id: string }[]>`
      SELECT "id"::text AS "id" FROM "Run" WHERE "teamId" = ${teamId}::uuid AND ("id"::text LIKE ${`${part}%`} OR "id"::text LIKE ${`%${part}`})
       ORDER BY "createdAt" DESC, "id" DESC LIMIT ${MAX_MEANT}`;
    return (await this.database.run.findMany({ ...newest, where: { id: { in: ids.map(({ id }) => id) } } })).map(toRun);
  }

  /** Newest first. @throws Fault INVALID_INPUT */
  async list(viewer: Viewer, args: PageArgs & RunFilter) {
    const page = readPage('runs', RUN_CURSOR, args, 20);
    const filter = {
      teamId: viewer.teamId,
      ...(args.status ? { status: { in: [...args.status] } } : {}),
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

  /** Oldest first; cursors are numbers of events. @throws Fault INVALID_INPUT */
  async events({ id: runId }: Run, args: PageArgs) {
    const page = readPage('events', EVENT_CURSOR, args, 50);
    const from = page.backward ? page.before : page.after;
    const rows = await this.database.runEvent.findMany({
      where: { runId, ...(from ? { seq: page.backward ? { lt: Number(from[0]) } : { gt: Number(from[0]) } } : {}) },
      orderBy: { seq: page.backward ? 'desc' : 'asc' },
      take: page.size + 1,
    });
    return toConnection(page, rows, ({ seq }) => encodeCursor('events', seq), toEvent);
  }

  statusHistory({ id: runId }: Run): Promise<RunStatusChangeType[]> {
    return this.database.runStatusChange.findMany({ where: { runId }, orderBy: { id: 'asc' }, take: MAX_LISTED });
  }

  async stepTasks({ id: runId, attempt }: Run): Promise<StepTask[]> {
    const rows = await this.database.stepTask.findMany({ where: { runId, attempt }, orderBy: { createdAt: 'desc' }, take: MAX_LISTED });
    return rows.map(toStepTask);
  }

  async stepTask(viewer: Viewer, id: string): Promise<StepTask | null> {
    const row = await this.database.stepTask.findFirst({ where: { id, run: { teamId: viewer.teamId } } });
    return row && toStepTask(row);
  }

  /** Newest first, with how the restart budget stands on the run itself. */
  async attempts({ id: runId }: Run): Promise<RunAttempt[]> {
    const rows = await this.database.attempt.findMany({ where: { runId }, orderBy: { number: 'desc' }, take: MAX_LISTED });
    return rows.map(({ number, createdAt, startedAt, endedAt, endCause, endReason, endRound, parentNumber, parentRound, parentRunId }) =>
      Object.assign(new RunAttempt(), {
        number,
        createdAt,
        startedAt,
        endedAt,
        endCause,
        endReason,
        endRound: endRound === null ? null : Number(endRound),
        fromRound: Number(parentRound ?? 0),
        parentNumber,
        parentRunId,
      }),
    );
  }

  /** Newest first; removed ones are not shown. */
  async checkpoints({ id: runId, attempt, row }: Run): Promise<RunCheckpoint[]> {
    const [rows, lineage] = await Promise.all([
      this.database.checkpoint.findMany({
        where: { runId, removedAt: null },
        orderBy: [{ attempt: 'desc' }, { round: 'desc' }],
        take: MAX_LISTED,
      }),
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

  async servers({ id: runId, attempt }: Run): Promise<RunServerType[]> {
    const [rows, started, members] = await Promise.all([
      this.database.runServer.findMany({
        where: { runId, attempt, claimedAt: { not: null }, droppedAt: null },
        orderBy: [{ index: 'asc' }, { role: 'asc' }],
      }),
      this.database.attempt.findUnique({ where: { runId_number: { runId, number: attempt } }, select: { startedAt: true } }),
      this.fleet.members('server'),
    ]);
    return rows.map(({ index, role, term, serverId, host, port }) => {
      const member = members.find((candidate) => candidate.id === serverId);
      const isLost = member !== undefined && !this.fleet.isAlive(member);
      return Object.assign(new RunServerType(), {
        index,
        role: role === 'standby' && rows.some((other) => other.index === index && other.role === 'primary') ? 'STANDBY' : 'PRIMARY',
        term,
        serverId: serverId!,
        address: `${host}:${port}`,
        state: isLost ? 'LOST' : started?.startedAt ? 'STARTED' : 'CLAIMED',
      });
    });
  }

  /**
   * What was committed along the lineage, counted from ranges of (round, replica) rows, beside what the schedule of the spec gives the
   * rounds from the first to the last of them: a range that is missing or counted twice makes a difference.
   */
  async ledger({ id: runId, attempt, status, row }: Run): Promise<RunLedger> {
    const lineage = await readLineage(this.database, runId, attempt);
    const [attempts, starts, ends] = lineageColumns(lineage);
    // A range that the journal has merged over the cut counts up to the cut.
    const ranges = await this.database.$queryRaw<
      { rounds: bigint | null; examples: bigint | null; dropped: bigint | null; end: number | null; cut: number | null }[]
    >`
      SELECT sum("toRound" - "fromRound" + 1)::bigint AS "rounds", sum("examples")::bigint AS "examples", sum("dropped")::bigint AS "dropped",
             max("toRound") + 1 AS "end", NULL::int AS "cut"
        FROM "LedgerRange" JOIN unnest(${attempts}::int[], ${starts}::int[], ${ends}::int[]) AS part(number, lo, hi) ON "attempt" = part.number
       WHERE "runId" = ${runId}::uuid AND "fromRound" >= part.lo AND "toRound" < part.hi
      UNION ALL
      SELECT part.hi - "fromRound", 0, 0, part.hi, "fromRound"
        FROM "LedgerRange" JOIN unnest(${attempts}::int[], ${starts}::int[], ${ends}::int[]) AS part(number, lo, hi) ON "attempt" = part.number
       WHERE "runId" = ${runId}::uuid AND "fromRound" >= part.lo AND "fromRound" < part.hi AND "toRound" >= part.hi`;
    const scheduled = (from: number, to: number): number => scheduledExamples(row, to) - scheduledExamples(row, from);
    const counted = ranges.map(({ examples, cut, end }) => (cut === null ? Number(examples ?? 0) : scheduled(cut, end ?? cut)));
    const first = firstRoundOf(lineage);
    const last = status === 'SUCCEEDED' ? Number(row.totalRounds) : Math.max(first, ...ranges.map(({ end }) => end ?? 0));
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

export const toEvent = ({ seq, type, message, data, at, attempt }: RunEventType): RunEventType => ({
  seq,
  type,
  message,
  data,
  at,
  attempt,
});

const toStepTask = ({ id, seat, n, state, replicas, createdAt, workerId }: StepTask): StepTask =>
  Object.assign(new StepTask(), { id, seat, n, state, replicas, createdAt, workerId });
