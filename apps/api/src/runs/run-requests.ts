/**
 * What people ask of a run that exists: pause, resume, cancel, scale, extend. libs/control-plane says what follows in which status;
 * here it is done under the lock of the run's row, so that two requests, or a request and a report, cannot both win. Asking for what
 * is under way changes nothing. Another team's run is not there.
 */
import { Injectable } from '@nestjs/common';
import {
  isOver,
  NO_CHECKPOINT,
  ONLY_BEYOND,
  requested,
  withOtherWorkers,
  workersNeeded,
  type AskedOfRun,
  type RequestStep,
} from '@paceline/control-plane';
import { Database, type Transaction } from '../database/database.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { Settings } from '../environment.js';
import { Conflict, InvalidInput, NotFound, type LimitReached } from '../graphql/result.types.js';
import { IdempotencyKeys, type KeyedRequest, type Remember } from '../idempotency/idempotency-keys.js';
import { shardCount, shardHosts, workerElements, type ModelDescription, type RunData, type RunSpec } from '@paceline/spec';
import type { Viewer } from '../teams/authentication.js';
import { lockTeam, refusedByLimits } from '../teams/team-limits.js';
import { isUuid } from '../text-input.js';
import { Attempts } from './attempts.js';
import { residualIssue } from './residual-bounds.js';
import { FleetMemory } from './fleet-memory.js';
import { WITH_SPEC, WITHOUT_MODEL, type RunRowWithSpec } from './run-columns.js';
import { columnsOf, specOf, toRun } from './run-row.js';
import { RunSignals } from './run-signals.js';
import type { Run } from './run.types.js';
import { StatusMoves, type LockedRun } from './status-moves.js';
import { databaseDate } from '../database/database-clock.js';

type Refusal = Conflict | InvalidInput | LimitReached;
type Outcome = Run | NotFound | Refusal;

@Injectable()
export class RunRequests {
  constructor(
    private readonly database: Database,
    private readonly keys: IdempotencyKeys,
    private readonly moves: StatusMoves,
    private readonly attempts: Attempts,
    private readonly signals: RunSignals,
    private readonly dispatch: DispatchSignal,
    private readonly settings: Settings,
    private readonly memory: FleetMemory,
  ) {}

  /** RUNNING: PAUSED within 10 s, at the next commit; before and between attempts at once. */
  pause(viewer: Viewer, id: string): Promise<Outcome> {
    return this.ask(viewer, id, { request: 'pause' });
  }

  /** @param servers another number of parameter servers from here on */
  async resume(viewer: Viewer, id: string, servers?: number | null): Promise<Outcome> {
    const asked = { request: 'resume', servers } as const;
    return this.ask(viewer, id, asked, { tooLarge: await this.beyondMemory(viewer, id, asked) });
  }

  /** It ends within 10 s. */
  cancel(viewer: Viewer, id: string): Promise<Outcome> {
    return this.ask(viewer, id, { request: 'cancel' });
  }

  /**
   * Workers that may hold a seat at the same time; it is kept over attempts. Where workers hold the shards, so many hold them from the next attempt on.
   */
  async scale(viewer: Viewer, id: string, workers: number): Promise<Outcome> {
    const asked = { request: 'scale', workers } as const;
    return this.ask(viewer, id, asked, { tooLarge: await this.beyondMemory(viewer, id, asked) });
  }

  /** Adds rounds or epochs, in a new attempt from the last checkpoint. */
  extend(
    viewer: Viewer,
    id: string,
    more: { rounds?: number | null | undefined; epochs?: number | null | undefined },
    { key, onReplay }: Pick<KeyedRequest, 'key' | 'onReplay'> = {},
  ): Promise<Outcome> {
    return this.keys.once<Outcome>(
      viewer,
      { operation: 'extendRun', key, input: [id, more.rounds ?? null, more.epochs ?? null], onReplay },
      (remember) => this.ask(viewer, id, { request: 'extend', ...more }, { remember }),
      async (runId) => toRun(await this.database.run.findUniqueOrThrow({ where: { id: runId }, omit: WITHOUT_MODEL })),
    );
  }

  /** Why those who are connected cannot hold the shards that the next attempt would have. Read without a lock: the fleet may change at any moment too. */
  private async beyondMemory({ teamId }: Viewer, id: string, asked: AskedOfRun): Promise<InvalidInput | undefined> {
    const row = isUuid(id) ? await this.database.run.findUnique({ where: { id, teamId }, omit: WITH_SPEC }) : null;
    const spec = row && nextSpec(row, requested(row, asked, databaseDate()));
    if (!spec) return undefined;
    const { model, data } = await this.database.run.findUniqueOrThrow({ where: { id }, select: { model: true, data: true } });
    const description = model as unknown as ModelDescription;
    const tooMany = residualIssue(spec, description);
    if (tooMany) return new InvalidInput([{ ...tooMany, path: shardHosts(spec.strategy) === 'workers' ? 'workers' : 'servers' }]);
    const all = description.parameterCount + description.stateCount;
    const { format } = data as unknown as RunData;
    const issue =
      shardHosts(spec.strategy) === 'workers'
        ? await this.memory.issueOfShardWorkers(spec, { all, worker: workerElements(spec, format, description) })
        : await this.memory.issueOfServers(spec, all);
    return issue && new InvalidInput([issue]);
  }

  private async ask(
    viewer: Viewer,
    id: string,
    asked: AskedOfRun,
    { tooLarge, remember }: { readonly tooLarge?: InvalidInput | undefined; readonly remember?: Remember } = {},
  ): Promise<Outcome> {
    const outcome = await this.database.transact(async (transaction) => {
      const where = { id, teamId: viewer.teamId };
      if (!isUuid(id) || (await transaction.run.count({ where })) === 0) return new NotFound('run with this id');
      if (asked.request === 'resume' || asked.request === 'extend' || asked.request === 'scale') await lockTeam(transaction, viewer.teamId);
      const run = (await this.moves.lock(transaction, id))!;
      const row = await transaction.run.findUniqueOrThrow({ where: { id }, omit: WITH_SPEC });
      const step = requested(row, asked, databaseDate());
      const refusal =
        (step.does === 'begin' || step.does === 'set' ? tooLarge : undefined) ??
        (await withoutData(transaction, row, step)) ??
        (await this.limited(transaction, row, step)) ??
        (await this.carryOut(transaction, run, step));
      if (!refusal) await remember?.(transaction, id);
      return refusal ?? toRun(await transaction.run.findUniqueOrThrow({ where: { id }, omit: WITHOUT_MODEL }));
    });
    this.signals.changed(id);
    this.dispatch.wake();
    return outcome;
  }

  /** A run that goes on asks for places again; one that was over also counts again. */
  private async limited(transaction: Transaction, row: RunRowWithSpec, step: RequestStep): Promise<LimitReached | undefined> {
    const next = nextSpec(row, step);
    if (step.does === 'set') {
      if (!('workersWanted' in step.run)) return undefined;
      const workers = next ? workersNeeded(next) : 0;
      if (workers <= workersNeeded(specOf(row))) return undefined;
      return refusedByLimits(transaction, row.teamId, this.settings, { activeRuns: 0, parameters: 0, serverPlaces: 0, workers });
    }
    if (step.does !== 'begin') return undefined;
    const counts = isOver(row.status) ? { activeRuns: 1, parameters: Number(row.parameterCount) } : { activeRuns: 0, parameters: 0 };
    const serverPlaces = step.run.serverCount ?? row.serverCount;
    return refusedByLimits(transaction, row.teamId, this.settings, {
      ...counts,
      serverPlaces,
      workers: workersNeeded(next ?? specOf(row)),
    });
  }

  private async carryOut(transaction: Transaction, run: LockedRun, step: RequestStep): Promise<Conflict | InvalidInput | undefined> {
    switch (step.does) {
      case 'refuse':
        return new Conflict(step.why);
      case 'invalid':
        return new InvalidInput([step.issue]);
      case 'nothing':
        return undefined;
      case 'move': {
        const { set, ...move } = step.move;
        await this.moves.apply(transaction, run, set ? { ...move, set: columnsOf(set) } : move);
        return undefined;
      }
      case 'set':
        await this.attempts.store(transaction, run, step);
        return undefined;
      case 'begin': {
        const { totalRounds } = step.run;
        if (step.needsCheckpoint && (await this.attempts.nextRestore(transaction, run, totalRounds)).kind !== 'checkpoint')
          return new Conflict((await this.attempts.nextRestore(transaction, run)).kind === 'checkpoint' ? ONLY_BEYOND : NO_CHECKPOINT);
        // Its result stays until the extension brings another.
        await this.attempts.begin(transaction, run, step.reason, step.run);
        return undefined;
      }
    }
  }
}

/** The spec of the next attempt, where it cuts the parameters into another number of shards: because of the request, or of one before it. */
function nextSpec(row: Pick<RunRowWithSpec, 'spec' | 'workersWanted'>, step: RequestStep): RunSpec | undefined {
  if (step.does !== 'begin' && step.does !== 'set') return undefined;
  const { spec = row.spec, workersWanted = row.workersWanted } = step.run;
  const next = withOtherWorkers({ spec, workersWanted }) ?? (spec as RunSpec);
  return shardCount(next.strategy) === shardCount(specOf(row).strategy) ? undefined : next;
}

/** The version that the run was trained on can be removed once the run is over. */
async function withoutData(transaction: Transaction, row: RunRowWithSpec, { does }: RequestStep): Promise<Conflict | undefined> {
  if (does !== 'begin' || row.datasetVersionId !== null) return undefined;
  const { data } = await transaction.run.findUniqueOrThrow({ where: { id: row.id }, select: { data: true } });
  const { source } = data as unknown as RunData;
  if (source.kind !== 'prepared') return undefined;
  return new Conflict(
    `The dataset of this run was removed (version ${source.version.slice(0, 12)}), so it cannot go on. Import the data again, and create a run that resumes from a checkpoint of this one.`,
  );
}
