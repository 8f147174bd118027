/** The outbox as `sendOutbox` (libs/control-plane) sends it: its rows in PostgreSQL, the queues of BullMQ, payloads with a fresh token. */
import { Inject, Injectable } from '@nestjs/common';
import { codecChoiceOf } from '../runs/codec-choice.js';
import {
  isPlacementWanted,
  jobNameOf,
  pinsText,
  placementJobOf,
  priorityOf,
  sendOutbox,
  stepTaskJobOf,
  type FairShares,
  type PlacementJob,
  type PreparedJob,
} from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { shardHosts, type RunSpec } from '@paceline/spec';
import { BackgroundDatabase } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { LOGGER } from '../logger.js';
import { pinnedOf } from '../runs/pinned-checkpoints.js';
import { specOf } from '../runs/run-row.js';
import { Queues } from './queues.js';
import { OpenWork } from './open-work.js';
import { LIVE_STATUSES, seatsOfTeam, Shares, type HeldPlaces } from './shares.js';
import { AccessTokens } from './access-tokens.js';

const NO_PLACES: Pick<FairShares, 'offered'> & HeldPlaces = { offered: [], holding: new Set(), attempts: new Map() };

const WITH_RUN = { run: { select: { id: true, status: true, attempt: true, jobBytes: true } } } as const satisfies Prisma.OutboxInclude;
type Row = Prisma.OutboxGetPayload<{ include: typeof WITH_RUN }>;
const OF_JOB = { id: true, status: true, attempt: true, spec: true, model: true, data: true } as const satisfies Prisma.RunSelect;
type JobRun = Prisma.RunGetPayload<{ select: typeof OF_JOB }>;

const BATCH = 50;
/** Jobs of a batch are in memory together, each with the spec, the model and the data of its run. */
const BATCH_BYTES = 4 << 20;
const SWEEP_EVERY_MS = 60_000;
const KEPT_AFTER_SENDING_MS = 3_600_000;

@Injectable()
export class JobSender {
  private sweptAt = 0;

  constructor(
    private readonly database: BackgroundDatabase,
    private readonly queues: Queues,
    private readonly tokens: AccessTokens,
    private readonly shares: Shares,
    private readonly openWork: OpenWork,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** Sends what waits, at most one batch. @returns how many were sent @throws RedisUnavailableError, or when PostgreSQL is away */
  async send(keepLock: () => Promise<void>): Promise<number> {
    const sent = await sendOutbox<Row>({
      keepLock,
      unsent: () => this.unsent(),
      prepare: (row) => (row.kind === 'placement' ? this.placement(row) : this.stepTask(row)),
      add: (jobs) => this.queues.add(jobs),
      markSent: async (rows) => {
        await this.database.outbox.updateMany({ where: { id: { in: rows.map(({ id }) => id) } }, data: { sentAt: new Date() } });
      },
      unfit: (jobId, issue) => this.log.error({ jobId, issue }, 'a job does not fit its contract and was not sent'),
    });
    await this.sweep();
    return sent;
  }

  /** Placements of runs that have no place yet stay where their order can change. */
  private async unsent(): Promise<Row[]> {
    // Nearly every look finds nothing, six times a second.
    if (!(await this.openWork.hasUnsent())) return [];
    const placement = await this.database.outbox.findFirst({ where: { sentAt: null, kind: 'placement' }, select: { id: true } });
    const { offered, holding, attempts } = placement ? await this.shares.read() : NO_PLACES;
    const sends = { OR: [{ runId: { in: [...offered, ...holding] } }, { run: { status: { notIn: LIVE_STATUSES } } }] };
    const rows = await this.database.outbox.findMany({
      where: { sentAt: null, OR: [{ kind: { not: 'placement' } }, sends] },
      orderBy: { id: 'asc' },
      take: BATCH,
      include: WITH_RUN,
    });
    return upTo(
      BATCH_BYTES,
      rows.filter(({ kind, runId, attempt }) => kind !== 'placement' || attempt <= (attempts.get(runId) ?? attempt)),
    );
  }

  private async placement({ run: { id }, attempt, jobId, payload }: Row): Promise<PreparedJob | undefined> {
    // A row that was written before there were standbys names no role.
    const { index, role = 'primary' } = payload as { index: number; role?: NonNullable<PlacementJob['role']> };
    const [run, origin, place] = await Promise.all([
      this.runOf(id),
      this.database.attempt.findUnique({ where: { runId_number: { runId: id, number: attempt } } }),
      this.database.runServer.findUnique({ where: { runId_attempt_index_role: { runId: id, attempt, index, role } } }),
    ]);
    const name = jobNameOf(jobId);
    // Sent before by an api that could not say so, and claimed since.
    if (!run || !origin || !name || !isPlacementWanted(place, run, name)) return undefined;
    const [succeededIn, fingerprint, codec, pins] = await Promise.all([
      this.succeededIn(run),
      this.pinnedFingerprint(run),
      codecChoiceOf(this.database, run),
      pinnedOf(this.database, run.id),
    ]);
    const pinned = { succeededIn, ...(fingerprint ? { fingerprint } : {}), ...(codec ? { codec } : {}), pins: pinsText(pins) };
    if (shardHosts(specOf(run).strategy) === 'servers') {
      const token = await this.tokens.sign({ run: run.id, attempt, role: 'server' });
      return { jobId, payload: placementJobOf(run, origin, { index, role }, token, pinned) };
    }
    if (role === 'standby') return undefined; // the worker with the shard before it takes it by itself
    const { token, ...member } = await this.tokens.ofMembers(run.id, attempt);
    return { jobId, payload: placementJobOf(run, origin, { index, role }, token, pinned, member) };
  }

  private async stepTask({ run: { id }, attempt, jobId, payload }: Row): Promise<PreparedJob | undefined> {
    const { stepTaskId } = payload as { stepTaskId: string };
    const [run, task, places] = await Promise.all([
      this.runOf(id),
      this.database.stepTask.findUnique({ where: { id: stepTaskId } }),
      this.database.runServer.findMany({ where: { runId: id, attempt, claimedAt: { not: null } } }),
    ]);
    if (!run) return undefined;
    const token = await this.tokens.sign({ run: id, attempt, role: 'worker' });
    const job = stepTaskJobOf(run, task, places, token, await this.pinnedFingerprint(run));
    if (!job) return undefined;
    return { jobId, payload: job, priority: priorityOf(job.heldSeats, await seatsOfTeam(this.database, run.id)) };
  }

  private runOf(id: string): Promise<JobRun | null> {
    return this.database.run.findUnique({ where: { id }, select: OF_JOB });
  }

  /** The newest attempt that ended with a result, as an extension does that was cancelled. Undefined where none has. */
  private async succeededIn({ id, attempt }: JobRun): Promise<number | undefined> {
    if (attempt === 1) return undefined;
    const change = await this.database.runStatusChange.findFirst({ where: { runId: id, to: 'SUCCEEDED' }, orderBy: { id: 'desc' } });
    return change?.attempt;
  }

  /** With `engine: auto` the engine of the run's first worker holds for the whole run, in its later attempts too. */
  private async pinnedFingerprint({ id, spec }: JobRun): Promise<string | undefined> {
    if ((spec as Partial<RunSpec>).engine !== 'auto') return undefined;
    const first = await this.database.runEvent.findFirst({ where: { runId: id, type: 'training.started' }, orderBy: { seq: 'asc' } });
    const { fingerprint } = (first?.data ?? {}) as { fingerprint?: unknown };
    return typeof fingerprint === 'string' && fingerprint !== '' ? fingerprint : undefined;
  }

  private async sweep(): Promise<void> {
    if (Date.now() - this.sweptAt < SWEEP_EVERY_MS) return;
    this.sweptAt = Date.now();
    await this.database.outbox.deleteMany({ where: { sentAt: { lt: new Date(Date.now() - KEPT_AFTER_SENDING_MS) } } });
  }
}

/** The first rows whose jobs have so many bytes together, and one at least. */
function upTo(mostBytes: number, rows: readonly Row[]): Row[] {
  let bytes = 0;
  return rows.filter(({ run }, i) => (bytes += run.jobBytes) <= mostBytes || i === 0);
}
