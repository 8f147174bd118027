/**
 * From a spec to a run. Everything that can be wrong is found before anything is written; then run, attempt, servers and the jobs in
 * the outbox appear in one transaction, so a crash at any point leaves a whole run or none.
 */
import { Inject, Injectable } from '@nestjs/common';
import { Database, type Transaction } from '../database/database.js';
import { isDatabaseOutage, isPoolFull } from '../database/outage.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { Settings } from '../environment.js';
import { Fleet, type FleetRole, type FleetRow } from '../fleet/fleet.js';
import type { Prisma } from '../generated/prisma/client.js';
import { Conflict, InvalidInput, LimitReached, NotFound } from '../graphql/result.types.js';
import { IdempotencyKeys, type Remember } from '../idempotency/idempotency-keys.js';
import type { Viewer } from '../teams/authentication.js';
import { lockTeam, refusedByLimits } from '../teams/team-limits.js';
import { uuidv7 } from '../text-input.js';
import { placeServers } from './attempts.js';
import { InitialWeights } from '../models/initial-weights.js';
import { waitingTurns } from '../turns.js';
import { WITHOUT_MODEL } from './run-columns.js';
import { toRun } from './run-row.js';
import { toAttempt } from './runs.js';
import { neededOf, serverProcesses, waitingAt, waitsForServers, workersNeeded } from '@paceline/control-plane';
import { PrepareRun, type Prepared, type RunOrigin } from './prepare-run.js';
import { Run } from './run.types.js';
import { StatusMoves } from './status-moves.js';
import { eventOf } from './strategy-choice.js';
import { PinnedCheckpoints } from './pinned-checkpoints.js';

export interface CreateRunOptions extends RunOrigin {
  readonly idempotencyKey?: string | null | undefined;
  /** Told when the key was used before and nothing is made. */
  readonly onReplay?: (() => void) | undefined;
}

interface NewRun {
  readonly id: string;
  readonly viewer: Viewer;
  readonly prepared: Prepared;
  readonly reason: string;
  readonly remember: Remember;
}

type Outcome = Run | InvalidInput | NotFound | Conflict | LimitReached;

/** How often, and after which pause, it is asked whether a run was made whose commit was not answered. */
const COMMIT_LOOKUPS = 3;
const COMMIT_LOOKUP_PAUSE_MS = 500;
const FIRST_ATTEMPT = 1;

@Injectable()
export class CreateRun {
  /**
   * Limits concurrent creations before a transaction opens; otherwise a burst exhausts the PostgreSQL pool, and a client hears "unavailable" of a run
   * that was made. Four are less than half of its 10 connections; one creation takes some 50 ms.
   */
  private readonly turns = waitingTurns(
    { atOnce: 4, waiting: 64, waitingOfTeam: 32, waitMs: 5_000 },
    'Too many runs are being created at once.',
    2,
  );

  @Inject(PinnedCheckpoints) private readonly pinned!: PinnedCheckpoints;

  constructor(
    private readonly database: Database,
    private readonly keys: IdempotencyKeys,
    private readonly fleet: Fleet,
    private readonly preparing: PrepareRun,
    private readonly moves: StatusMoves,
    private readonly dispatch: DispatchSignal,
    private readonly settings: Settings,
    private readonly initialWeights: InitialWeights,
  ) {}

  /**
   * @param input a run spec as people write it, not trusted; with `resumeFrom` only what differs from the spec of that run
   * @throws Fault TOO_BUSY before anything was written
   */
  async create(viewer: Viewer, input: unknown, options: CreateRunOptions = {}): Promise<Outcome> {
    const { clusterSpecId, idempotencyKey: key, resumeFrom, onReplay } = options;
    const asked = { operation: 'createRun', key, input: [input ?? null, clusterSpecId ?? null, resumeFrom ?? null], onReplay };
    return this.keys.once<Outcome>(
      viewer,
      asked,
      async (remember) => {
        const prepared = await this.preparing.prepare(viewer, input, options);
        if (!('spec' in prepared)) return prepared;
        return this.turns.run(viewer.teamId, () => this.store(viewer, prepared, remember));
      },
      async (id) => toRun(await this.database.run.findUniqueOrThrow({ where: { id }, omit: WITHOUT_MODEL })),
    );
  }

  /** Writes the run, or refuses it. Once it is written nothing here can fail any more. */
  private async store(viewer: Viewer, prepared: Prepared, remember: Remember): Promise<Run | LimitReached | InvalidInput> {
    const reason = this.fleet.waitsFor ?? waitsForServers(await this.fleetCounts(), neededOf(prepared.spec), 0);
    const id = uuidv7();
    if (prepared.warmStart) {
      // The file is large: it is not written for a run that is refused. Asked again below, as others may have come meanwhile.
      const refused = await this.database.transact((transaction) => this.refused(transaction, viewer, prepared));
      if (refused) return refused;
    }
    let isKept = false;
    try {
      if (prepared.warmStart) await this.initialWeights.write(id, prepared.warmStart);
      const made = await this.database.transact(async (transaction) => {
        const refused = await this.refused(transaction, viewer, prepared);
        // Under the lock of the team, as its removal is.
        const { versionId, name } = prepared.dataset;
        if (!refused && versionId !== null && (await transaction.datasetVersion.count({ where: { id: versionId } })) === 0)
          return new InvalidInput([{ path: 'dataset', message: `${name} was removed meanwhile` }]);
        return refused ?? this.insert(transaction, { id, viewer, prepared, reason, remember });
      });
      isKept = made instanceof Run;
      if (isKept) this.dispatch.wake();
      if (isKept && prepared.from) await this.pinned.tell(prepared.from.runId);
      if (isKept && prepared.warmStart) await this.initialWeights.claim(id).catch(() => undefined); // the sweep removes the note
      return made;
    } catch (error) {
      // A full pool has begun no transaction.
      const made = isDatabaseOutage(error) && !isPoolFull(error) ? await this.committed(id) : undefined;
      isKept = made !== undefined;
      if (made instanceof Run) {
        if (prepared.from) await this.pinned.tell(prepared.from.runId);
        return made;
      }
      throw error;
    } finally {
      // What went wrong before is what is said; what stays is found by the sweep.
      if (prepared.warmStart && !isKept) await this.initialWeights.remove(id).catch(() => undefined);
    }
  }

  /** Under the lock of the team, which it takes. */
  private async refused(transaction: Transaction, { teamId }: Viewer, { spec, model }: Prepared): Promise<LimitReached | undefined> {
    await lockTeam(transaction, teamId);
    const asked = { activeRuns: 1, serverPlaces: serverProcesses(spec), workers: workersNeeded(spec), parameters: model.parameterCount };
    return refusedByLimits(transaction, teamId, this.settings, asked);
  }

  /** The answer to the commit was lost: the run may be there all the same, and nobody else would know of it. */
  private async committed(id: string): Promise<Run | 'unknown' | undefined> {
    for (let tries = 0; tries < COMMIT_LOOKUPS; tries++) {
      try {
        const row = await this.database.run.findUnique({ where: { id }, omit: WITHOUT_MODEL });
        if (!row) return undefined;
        this.dispatch.wake();
        return toRun(row);
      } catch (error) {
        if (!isDatabaseOutage(error)) throw error;
        await new Promise((resolve) => setTimeout(resolve, COMMIT_LOOKUP_PAUSE_MS));
      }
    }
    return 'unknown';
  }

  private async fleetCounts() {
    const live = async (role: FleetRole, counts: (row: FleetRow) => boolean = () => true): Promise<number> =>
      (await this.fleet.list(role)).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row) && counts(row)).length;
    const [liveServers, liveWorkers, shardWorkers] = await Promise.all([
      live('server'),
      live('worker'),
      live('worker', (row) => this.fleet.holdsShards(row)),
    ]);
    return { liveServers, liveWorkers, shardWorkers };
  }

  private async insert(transaction: Transaction, { id, viewer, prepared, reason, remember }: NewRun): Promise<Run> {
    const { spec, model, dataset, clusterSpecId, roundsPerEpoch, totalRounds, from } = prepared;
    const created = await transaction.run.create({
      data: {
        id,
        teamId: viewer.teamId,
        clusterSpecId,
        name: spec.name,
        status: 'PENDING',
        attempt: FIRST_ATTEMPT,
        spec: spec as unknown as Prisma.InputJsonObject,
        model: model as unknown as Prisma.InputJsonObject,
        datasetVersionId: dataset.versionId,
        data: dataset.data as unknown as Prisma.InputJsonObject,
        trainExamples: dataset.data.trainExamples,
        evalExamples: dataset.data.evalExamples,
        serverCount: serverProcesses(spec),
        parameterCount: model.parameterCount,
        totalRounds,
        roundsPerEpoch,
        ...(from ? { coordinator: waitingAt(FIRST_ATTEMPT, from.round) as unknown as Prisma.InputJsonObject } : {}),
      },
      omit: WITHOUT_MODEL,
    });
    const { id: runId } = created;
    await remember(transaction, runId);
    const parent = from ? { parentRunId: from.runId, parentNumber: from.attempt, parentRound: from.round } : {};
    await transaction.attempt.create({ data: { runId, number: FIRST_ATTEMPT, ...parent } });
    await placeServers(transaction, runId, FIRST_ATTEMPT, spec);
    await transaction.runStatusChange.create({ data: { runId, from: null, to: 'PENDING', reason: 'created', attempt: FIRST_ATTEMPT } });
    const locked = (await this.moves.lock(transaction, runId))!;
    await this.moves.addEvents(transaction, locked, [
      {
        attempt: FIRST_ATTEMPT,
        type: 'run.created',
        message: `run ${JSON.stringify(spec.name)} was created`,
        data: { apiKeyId: viewer.apiKeyId, ...(from ? { from: { ...from } } : {}) },
        at: new Date(),
      },
      ...(prepared.picked ? [eventOf(prepared.picked, FIRST_ATTEMPT)] : []),
    ]);
    await this.moves.apply(transaction, locked, { to: 'QUEUED', reason });
    const [row, attempts, statusHistory] = [
      await transaction.run.findUniqueOrThrow({ where: { id: runId }, omit: WITHOUT_MODEL }),
      await transaction.attempt.findMany({ where: { runId } }),
      await transaction.runStatusChange.findMany({ where: { runId }, orderBy: { id: 'asc' } }),
    ];
    return Object.assign(toRun(row), { created: { attempts: attempts.map(toAttempt), statusHistory, spec } });
  }
}
