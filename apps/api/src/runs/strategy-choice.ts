/**
 * `strategy: auto`: at the creation of a run, or when its coordinator has told what the first rounds have taken, the strategy is picked and written into the spec
 * of the run. So later attempts, a resume and runs that begin with its checkpoints have it, and nobody picks again.
 */
import { Injectable } from '@nestjs/common';
import { Field, ObjectType } from '@nestjs/graphql';
import { hasLiveAttempt, serverProcesses, type EngineRecord, type JournalEntry } from '@paceline/control-plane';
import { exchangeMeasuresSchema, STRATEGY_MEASURED, STRATEGY_PICKED } from '@paceline/protocol';
import {
  allowedLocalUpdates,
  isThreaded,
  onlyStrategy,
  pickLocalUpdates,
  pickStrategy,
  pinDecay,
  picksStrategy,
  roundGrid,
  roundsOf,
  serverPartBytes,
  shardHosts,
  type ModelDescription,
  type PickedStrategy,
  type RunSpec,
  unpinDecay,
  withLocalRounds,
  workerBytes,
} from '@paceline/spec';
import type { Database, Transaction } from '../database/database.js';
import { Fleet, type FleetRole, type FleetRow } from '../fleet/fleet.js';
import type { Prisma } from '../generated/prisma/client.js';
import { Attempts } from './attempts.js';
import { residualIssue } from './residual-bounds.js';
import { shortSpecOf, specOf } from './run-row.js';
import { StatusMoves, type LockedRun } from './status-moves.js';

@ObjectType({ description: 'The strategy that `strategy: auto` has picked. The spec of the run names it too.' })
export class StrategyChoice {
  @Field({
    description:
      'parameter-server, multi-worker-mirrored, hybrid or mirrored; local-update only where the spec allows it, by `allowedLocalSteps`.',
  })
  kind!: string;
  @Field({ description: 'What was measured, and what was expected of the others; or why only this one can serve the run.' })
  why!: string;
}

const MOST_WHY = 1900;

@Injectable()
export class StrategyChoices {
  constructor(
    private readonly fleet: Fleet,
    private readonly moves: StatusMoves,
    private readonly attempts: Attempts,
  ) {}

  /** Before the run is there: what is picked without a measurement, if anything is. */
  async atCreation(spec: RunSpec, model: ModelDescription): Promise<PickedStrategy | undefined> {
    if (!picksStrategy(spec)) return undefined;
    const [servers, workers] = await Promise.all([this.present('server'), this.present('worker')]);
    return onlyStrategy(spec, {
      liveServers: servers.length,
      liveWorkers: workers.length,
      shardWorkers: workers.filter((row) => this.fleet.holdsShards(row)).length,
      refuses: (other) => threadsIssue(other, model, workers, () => true),
    });
  }

  /** Under the lock of the run: picks by what its coordinator has told, once. Where another strategy is picked the attempt ends. */
  async heard(transaction: Transaction, run: LockedRun, entries: readonly JournalEntry[]): Promise<void> {
    const told = entries.filter((entry) => entry.kind === 'event' && entry.type === STRATEGY_MEASURED);
    const measures = told.flatMap((entry) => exchangeMeasuresSchema.safeParse((entry as { readonly data: unknown }).data).data ?? []);
    if (measures.length === 0 || !hasLiveAttempt(run.status)) return;
    const row = await transaction.run.findUniqueOrThrow({
      where: { id: run.id },
      select: { spec: true, workersWanted: true, trainExamples: true, roundsPerEpoch: true, totalRounds: true },
    });
    const spec = specOf(row);
    if (!picksStrategy(spec)) return;
    const workers = await this.present('worker');
    const shardWorkers = workers.filter((row) => this.fleet.holdsShards(row));
    const refuses = await this.refusing(transaction, run, spec, workers);
    const workersOnMachine = mostOnOneMachine(workers, run.id);
    const picks = measures.map(({ isBeforeCodec, ...measured }) =>
      isBeforeCodec
        ? pickLocalUpdates(spec, { ...measured, workersOnMachine }, refuses)
        : pickStrategy(spec, { ...measured, workersOnMachine }, shardWorkers.length, refuses),
    );
    const found = picks.find((pick) => pick !== undefined);
    if (!found) return;
    const { strategy: best, codec, why } = found;
    // Seats that somebody has left the run with servers are workers with shards now.
    const most = Math.max(1 + best.standby, row.workersWanted ?? Infinity);
    const strategy = best.kind === 'multi-worker-mirrored' ? { ...best, workers: Math.min(best.workers, most) } : best;
    const { spec: picked, ...length } = adopted(spec, { strategy, codec }, row);
    await transaction.run.updateMany({
      where: { id: run.id },
      data: {
        spec: picked as unknown as Prisma.InputJsonObject,
        serverCount: serverProcesses(picked),
        ...length,
        ...(shardHosts(strategy) === 'workers' ? { workersWanted: null } : {}),
      },
    });
    if (strategy.kind === 'local-update')
      await transaction.checkpoint.updateMany({ where: { runId: run.id, invalidAt: null }, data: { invalidAt: new Date() } });
    await this.moves.addEvents(transaction, run, [eventOf({ strategy, why }, run.attempt)]);
    if (strategy.kind === 'parameter-server') return; // it is what has measured
    const message = `strategy auto has picked ${strategy.kind}: the next attempt has it`;
    await this.attempts.end(transaction, run, { kind: 'failed', cause: 'STRATEGY_PICKED', message });
  }

  /**
   * Fewer shards may have more of EF21 to write than a server may; local updates begin anew, and not with what an attempt has gone on from; several compute threads
   * take memory, and not every engine.
   */
  private async refusing(
    transaction: Transaction,
    run: LockedRun,
    spec: RunSpec,
    workers: readonly FleetRow[],
  ): Promise<(other: RunSpec) => string | undefined> {
    const where = { runId_number: { runId: run.id, number: run.attempt } };
    const hasRestored =
      allowedLocalUpdates(spec) !== undefined && (await transaction.attempt.findUniqueOrThrow({ where })).parentNumber !== null;
    const row = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, select: { model: true } });
    const model = row.model as unknown as ModelDescription;
    const ofRun = workers.filter(({ runId }) => runId === run.id);
    return (other) => {
      if (hasRestored && other.strategy.kind === 'local-update')
        return 'the attempt has begun from a checkpoint, which has the slots of another optimizer';
      const issue = residualIssue(other, model)?.message;
      return issue ?? threadsIssue(other, model, ofRun, ({ isChosen }) => isChosen, workers);
    };
  }

  /** Live ones that speak this protocol. */
  private async present(role: FleetRole) {
    return (await this.fleet.list(role)).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row));
  }
}

/** Engines whose code is used from one compute thread of a process. */
const OF_ONE_THREAD: readonly string[] = ['tensorflow', 'webgpu'];

/**
 * Why these workers should not compute the run in several threads, if the spec has some.
 * @param isUsed whether a worker may compute the run with that engine
 * @param all who may have work on the same machines: without them each worker has its machine for itself
 */
function threadsIssue(
  spec: RunSpec,
  model: ModelDescription,
  workers: readonly FleetRow[],
  isUsed: (engine: EngineRecord) => boolean,
  all: readonly FleetRow[] = [],
): string | undefined {
  if (!isThreaded(spec)) return undefined;
  const native = workers.flatMap(({ engines = [] }) => engines).find((engine) => OF_ONE_THREAD.includes(engine.name) && isUsed(engine));
  if (native && (spec.engine === 'auto' || spec.engine === 'mixed'))
    return `engine ${native.name}, which a worker has chosen or may choose, computes in one thread of a process`;
  const shard = shardHosts(spec.strategy) === 'workers' ? serverPartBytes(spec, model) * (1 + spec.strategy.standby) : 0;
  const needed = workerBytes(spec, model.parameterCount + model.stateCount) + shard;
  const own = new Set(workers);
  for (const host of new Set(workers.map((row) => row.host))) {
    const here = workers.filter((row) => row.host === host);
    const count = all.length === 0 ? 1 : here.length;
    const others = all.filter((row) => row.host === host && row.runId !== null && !own.has(row));
    const least = Math.min(...here.flatMap(({ memoryBytes }) => memoryBytes ?? []));
    const free = Math.max(0, least - others.reduce((sum, { rssBytes }) => sum + rssBytes, 0));
    if (count * needed <= free) continue;
    const who = count === 1 ? 'a worker needs' : `${count} workers of one machine need`;
    return `${who} ${megabytes(count * needed)} for them, and may use ${megabytes(free)}${others.length > 0 ? ' beside those of other runs' : ''}`;
  }
  return undefined;
}

const megabytes = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`;

/** Workers that have a run, whichever it is, on a machine with a worker of this one: they share its cores. */
function mostOnOneMachine(workers: readonly FleetRow[], run: string): number {
  const busy = workers.filter(({ runId }) => runId !== null);
  const hosts = new Set(busy.flatMap(({ host, runId }) => (runId === run ? [host] : [])));
  return Math.max(1, ...[...hosts].map((host) => busy.filter((row) => row.host === host).length));
}

/** The spec with what was picked. With local updates a round has several steps, so there are fewer of them, and a decay ends with the last one. */
function adopted(
  spec: RunSpec,
  { strategy, codec }: Pick<PickedStrategy, 'strategy' | 'codec'>,
  row: { readonly trainExamples: number; readonly roundsPerEpoch: bigint; readonly totalRounds: bigint },
): { readonly spec: RunSpec; readonly roundsPerEpoch?: number; readonly totalRounds?: number } {
  if (strategy.kind !== 'local-update') return { spec: Object.assign({}, spec, { strategy }) };
  const { globalBatch } = spec;
  const before = { globalBatch, roundsPerEpoch: Number(row.roundsPerEpoch), totalRounds: Number(row.totalRounds) };
  const open = Object.assign({}, spec, spec.learningRate && { learningRate: unpinDecay(spec.learningRate, before) });
  const picked = withLocalRounds(open, codec ? { strategy, codec } : { strategy });
  const { roundsPerEpoch, roundsIn } = roundGrid(roundsOf(picked, row.trainExamples));
  const totalRounds = 'rounds' in picked.length ? picked.length.rounds : roundsIn(picked.length.epochs);
  const learningRate = pinDecay(picked.learningRate, { globalBatch, roundsPerEpoch, totalRounds });
  return { spec: Object.assign({}, picked, learningRate && { learningRate }), roundsPerEpoch, totalRounds };
}

export const eventOf = ({ strategy, why }: PickedStrategy, attempt: number) => ({
  attempt,
  type: STRATEGY_PICKED,
  message: `strategy auto has picked ${strategy.kind}: ${why}`.slice(0, 2000),
  data: { kind: strategy.kind, why: why.slice(0, MOST_WHY) },
  at: new Date(),
});

/** Whether `strategy: auto` has picked local updates in this attempt or a later one: it does not go on from the checkpoints of this one. */
export async function isBeforeLocalUpdates(transaction: Transaction, runId: string, attempt: number): Promise<boolean> {
  const { strategy } = shortSpecOf(await transaction.run.findUniqueOrThrow({ where: { id: runId }, select: { shortSpec: true } }));
  if (strategy.kind !== 'local-update') return false;
  const event = await transaction.runEvent.findFirst({ where: { runId, type: STRATEGY_PICKED, attempt: { gte: attempt } } });
  return event !== null;
}

const READ = `
  SELECT "data" FROM "RunEvent" WHERE "runId" = $1::uuid AND "type" = $2 ORDER BY "seq" DESC LIMIT 1`;

/** Null where the strategy was named, and before it was picked. */
export async function strategyChoiceOf(database: Pick<Database, 'rows'>, runId: string): Promise<StrategyChoice | null> {
  const [event] = await database.rows<{ data: unknown }>('strategy-choice', READ, [runId, STRATEGY_PICKED]);
  const { kind, why } = (event?.data ?? {}) as { readonly kind?: unknown; readonly why?: unknown };
  return typeof kind === 'string' && typeof why === 'string' ? { kind, why } : null;
}
