/**
 * From a spec to a run. Everything that can be wrong is found before anything is written; then run, attempt, servers and the jobs in
 * the outbox appear in one transaction, so a crash at any point leaves a whole run or none.
 */
import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { datasetInfo, type DatasetInfo } from '@paceline/data';
import { LIMITS, parseRunSpec, type ModelDescription, type RunSpec, type SpecIssue } from '@paceline/spec';
import { ClusterSpecs } from '../cluster-specs/cluster-specs.js';
import { Database, type Transaction } from '../database/database.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { Fleet } from '../fleet/fleet.js';
import type { Prisma } from '../generated/prisma/client.js';
import { Conflict, InvalidInput, NotFound } from '../graphql/result.types.js';
import type { Viewer } from '../teams/authentication.js';
import { placeServers } from './attempts.js';
import { ModelDescriptions } from './model-description.js';
import { findResumePoint, type ResumeFrom } from './resume-from.js';
import { toRun, WITHOUT_MODEL, type RunRow } from './run-row.js';
import { ACTIVE_STATUSES, serverProcesses, waitingAt, waitsForServers, type RestorePoint } from '@paceline/jobs';
import type { Run } from './run.types.js';
import { StatusMoves } from './status-moves.js';

export interface CreateRunOptions {
  readonly clusterSpecId?: string | null | undefined;
  readonly idempotencyKey?: string | null | undefined;
  /** Begins with another run's checkpoint instead of the initial weights. */
  readonly resumeFrom?: ResumeFrom | null | undefined;
}

interface Prepared {
  readonly spec: RunSpec;
  readonly model: ModelDescription;
  readonly dataset: DatasetInfo;
  readonly clusterSpecId: string | null;
  readonly roundsPerEpoch: number;
  readonly totalRounds: number;
  readonly from: RestorePoint | null;
}

const MAX_ACTIVE_RUNS_PER_TEAM = 200;
const MAX_IDEMPOTENCY_KEY_CHARACTERS = 200;
const FIRST_ATTEMPT = 1;

@Injectable()
export class CreateRun {
  private readonly models = new ModelDescriptions();

  constructor(
    private readonly database: Database,
    private readonly clusterSpecs: ClusterSpecs,
    private readonly fleet: Fleet,
    private readonly moves: StatusMoves,
    private readonly dispatch: DispatchSignal,
  ) {}

  /** @param input a run spec as people write it, not trusted */
  async create(viewer: Viewer, input: unknown, options: CreateRunOptions = {}): Promise<Run | InvalidInput | NotFound | Conflict> {
    const prepared = await this.prepare(viewer, input, options);
    if (!('spec' in prepared)) return prepared;
    const { idempotencyKey } = options;
    const inputHash = createHash('sha256')
      .update(JSON.stringify([prepared.spec, prepared.clusterSpecId, ...(prepared.from ? [prepared.from] : [])]))
      .digest('hex');
    const earlier = idempotencyKey ? await this.earlierRun(viewer, idempotencyKey, inputHash) : undefined;
    if (earlier) return earlier;
    if (
      (await this.database.run.count({ where: { teamId: viewer.teamId, status: { in: [...ACTIVE_STATUSES] } } })) >=
      MAX_ACTIVE_RUNS_PER_TEAM
    ) {
      return new Conflict(`The team has ${MAX_ACTIVE_RUNS_PER_TEAM} runs that are not over; cancel some or wait.`);
    }
    const { standby } = prepared.spec.strategy;
    const reason =
      this.fleet.waitsFor ?? waitsForServers(await this.fleetCounts(), { serversNeeded: serverProcesses(prepared.spec), standby }, 0);
    try {
      const row = await this.database.transact((transaction) =>
        this.insert(transaction, viewer, prepared, reason, idempotencyKey ? { key: idempotencyKey, inputHash } : undefined),
      );
      this.dispatch.wake();
      return toRun(row);
    } catch (error) {
      // Two requests with one key at the same moment: one inserts, the other finds it.
      const winner =
        idempotencyKey && (error as { code?: unknown }).code === 'P2002'
          ? await this.earlierRun(viewer, idempotencyKey, inputHash)
          : undefined;
      if (winner) return winner;
      throw error;
    }
  }

  private async prepare(
    viewer: Viewer,
    input: unknown,
    { clusterSpecId, idempotencyKey, resumeFrom }: CreateRunOptions,
  ): Promise<Prepared | InvalidInput | NotFound> {
    const parsed = parseRunSpec(input);
    if (!parsed.ok) return new InvalidInput(parsed.issues);
    const { spec } = parsed;
    if (idempotencyKey && idempotencyKey.length > MAX_IDEMPOTENCY_KEY_CHARACTERS) {
      return new InvalidInput([{ path: 'idempotencyKey', message: `must have at most ${MAX_IDEMPOTENCY_KEY_CHARACTERS} characters` }]);
    }
    const clusterSpec = clusterSpecId ? await this.clusterSpecs.find(viewer, clusterSpecId) : null;
    if (clusterSpecId && !clusterSpec) return new NotFound('cluster spec with this id');
    const dataset = datasetInfo(spec.dataset);
    const length = lengthOf(spec, dataset);
    const issues: SpecIssue[] = [...length.issues];
    const servers = serverProcesses(spec);
    if (clusterSpec && clusterSpec.servers.length > 0 && servers > clusterSpec.servers.length) {
      issues.push({
        path: 'strategy.servers',
        message: `${servers} servers${spec.strategy.standby > 0 ? ' with the standbys' : ''}, but the cluster spec ${JSON.stringify(clusterSpec.name)} lists ${clusterSpec.servers.length}`,
      });
    }
    if (issues.length > 0) return new InvalidInput(issues);
    const from = resumeFrom ? await findResumePoint(this.database, viewer, resumeFrom, spec, length.totalRounds) : null;
    if (from instanceof NotFound) return from;
    if (from && 'issues' in from) return new InvalidInput(from.issues);
    const described = await this.models.of(spec);
    if ('issues' in described) return new InvalidInput(described.issues);
    const { model } = described;
    if (model.parameterCount + model.stateCount > LIMITS.modelParameters) {
      return new InvalidInput([
        {
          path: 'model',
          message: `has ${model.parameterCount + model.stateCount} parameters; at most ${LIMITS.modelParameters} are supported`,
        },
      ]);
    }
    if (model.variables.length > LIMITS.modelVariables) {
      return new InvalidInput([
        {
          path: 'model',
          message: `has ${model.variables.length} variables; at most ${LIMITS.modelVariables} are supported: use fewer and larger layers`,
        },
      ]);
    }
    return { spec, model, dataset, clusterSpecId: clusterSpec?.id ?? null, from, ...length };
  }

  private async earlierRun(viewer: Viewer, key: string, inputHash: string): Promise<Run | Conflict | undefined> {
    const found = await this.database.idempotencyKey.findUnique({
      where: { teamId_key: { teamId: viewer.teamId, key } },
      include: { run: { omit: WITHOUT_MODEL } },
    });
    if (!found) return undefined;
    if (found.inputHash !== inputHash) return new Conflict('This idempotency key was used for a run with another spec.');
    return toRun(found.run);
  }

  private async fleetCounts() {
    const servers = (await this.fleet.list('server')).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row));
    return { liveServers: servers.length };
  }

  private async insert(
    transaction: Transaction,
    viewer: Viewer,
    prepared: Prepared,
    reason: string,
    idempotency: { key: string; inputHash: string } | undefined,
  ): Promise<RunRow> {
    const { spec, model, dataset, clusterSpecId, roundsPerEpoch, totalRounds, from } = prepared;
    const created = await transaction.run.create({
      data: {
        teamId: viewer.teamId,
        clusterSpecId,
        name: spec.name,
        status: 'PENDING',
        attempt: FIRST_ATTEMPT,
        spec: spec as unknown as Prisma.InputJsonObject,
        model: model as unknown as Prisma.InputJsonObject,
        trainExamples: dataset.trainExamples,
        evalExamples: dataset.evalExamples,
        serverCount: serverProcesses(spec),
        parameterCount: model.parameterCount,
        totalRounds,
        roundsPerEpoch,
        ...(from ? { coordinator: waitingAt(FIRST_ATTEMPT, from.round) as unknown as Prisma.InputJsonObject } : {}),
      },
      omit: WITHOUT_MODEL,
    });
    const { id: runId } = created;
    if (idempotency) await transaction.idempotencyKey.create({ data: { teamId: viewer.teamId, runId, ...idempotency } });
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
    ]);
    await this.moves.apply(transaction, locked, { to: 'QUEUED', reason });
    return transaction.run.findUniqueOrThrow({ where: { id: runId }, omit: WITHOUT_MODEL });
  }
}

/** Rounds by the schedule, and what makes one impossible. */
function lengthOf(spec: RunSpec, dataset: DatasetInfo): { roundsPerEpoch: number; totalRounds: number; issues: SpecIssue[] } {
  const { globalBatch, dropRemainder, length } = spec;
  const roundsPerEpoch = dropRemainder ? Math.floor(dataset.trainExamples / globalBatch) : Math.ceil(dataset.trainExamples / globalBatch);
  const totalRounds = 'rounds' in length ? length.rounds : length.epochs * roundsPerEpoch;
  const issues: SpecIssue[] = [];
  if (roundsPerEpoch === 0) {
    issues.push({
      path: 'globalBatch',
      message: `globalBatch (${globalBatch}) is larger than the ${dataset.trainExamples} examples of ${dataset.name}, and dropRemainder drops the rest: no round is left`,
    });
  }
  if (totalRounds > LIMITS.rounds) {
    issues.push({ path: 'length', message: `${totalRounds} rounds; at most ${LIMITS.rounds} are supported` });
  }
  return { roundsPerEpoch, totalRounds, issues };
}
