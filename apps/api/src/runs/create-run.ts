/**
 * From a spec to a run. Everything that can be wrong is found before anything is written; then run, attempt, servers and the jobs in
 * the outbox appear in one transaction, so a crash at any point leaves a whole run or none.
 */
import { Injectable } from '@nestjs/common';
import { datasetInfo, type DatasetInfo } from '@paceline/data';
import { LIMITS, parseRunSpec, tooLargeFor, type ModelDescription, type RunSpec, type SpecIssue } from '@paceline/spec';
import { ClusterSpecs } from '../cluster-specs/cluster-specs.js';
import { Database, type Transaction } from '../database/database.js';
import { isDatabaseOutage, isPoolFull } from '../database/outage.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { Settings } from '../environment.js';
import { Fleet } from '../fleet/fleet.js';
import type { Prisma } from '../generated/prisma/client.js';
import { Conflict, InvalidInput, LimitReached, NotFound } from '../graphql/result.types.js';
import { IdempotencyKeys, type Remember } from '../idempotency/idempotency-keys.js';
import type { Viewer } from '../teams/authentication.js';
import { lockTeam, refusedByLimits } from '../teams/team-limits.js';
import { uuidv7 } from '../text-input.js';
import { placeServers } from './attempts.js';
import { ModelDescriptions } from './model-description.js';
import { Admission } from './admission.js';
import { findResumePoint, inheritedFrom, lengthened, modelIssues, resumeIssues, type ResumeFrom } from './resume-from.js';
import { toRun, WITHOUT_MODEL } from './run-row.js';
import { toAttempt } from './runs.js';
import { serverProcesses, waitingAt, waitsForServers, type RestorePoint } from '@paceline/jobs';
import { Run } from './run.types.js';
import { StatusMoves } from './status-moves.js';

export interface CreateRunOptions {
  readonly clusterSpecId?: string | null | undefined;
  readonly idempotencyKey?: string | null | undefined;
  /** Told when the key was used before and nothing is made. */
  readonly onReplay?: (() => void) | undefined;
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
  private readonly models = new ModelDescriptions();
  private readonly admission = new Admission();

  constructor(
    private readonly database: Database,
    private readonly keys: IdempotencyKeys,
    private readonly clusterSpecs: ClusterSpecs,
    private readonly fleet: Fleet,
    private readonly moves: StatusMoves,
    private readonly dispatch: DispatchSignal,
    private readonly settings: Settings,
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
        const prepared = await this.prepare(viewer, input, options);
        if (!('spec' in prepared)) return prepared;
        return this.admission.run(viewer.teamId, () => this.store(viewer, prepared, remember));
      },
      async (id) => toRun(await this.database.run.findUniqueOrThrow({ where: { id }, omit: WITHOUT_MODEL })),
    );
  }

  /** Writes the run, or refuses it. Once it is written nothing here can fail any more. */
  private async store(viewer: Viewer, prepared: Prepared, remember: Remember): Promise<Run | LimitReached> {
    const { standby } = prepared.spec.strategy;
    const reason =
      this.fleet.waitsFor ?? waitsForServers(await this.fleetCounts(), { serversNeeded: serverProcesses(prepared.spec), standby }, 0);
    const id = uuidv7();
    try {
      const made = await this.database.transact(async (transaction) => {
        await lockTeam(transaction, viewer.teamId);
        const asked = { activeRuns: 1, serverPlaces: serverProcesses(prepared.spec), parameters: prepared.model.parameterCount };
        const refused = await refusedByLimits(transaction, viewer.teamId, this.settings, asked);
        return refused ?? this.insert(transaction, { id, viewer, prepared, reason, remember });
      });
      if (made instanceof Run) this.dispatch.wake();
      return made;
    } catch (error) {
      // A full pool has begun no transaction.
      const made = isDatabaseOutage(error) && !isPoolFull(error) ? await this.committed(id) : undefined;
      if (made) return made;
      throw error;
    }
  }

  /** The answer to the commit was lost: the run may be there all the same, and nobody else would know of it. */
  private async committed(id: string): Promise<Run | undefined> {
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
    return undefined;
  }

  private async prepare(
    viewer: Viewer,
    input: unknown,
    { clusterSpecId, resumeFrom }: CreateRunOptions,
  ): Promise<Prepared | InvalidInput | NotFound> {
    const resume = resumeFrom ? await findResumePoint(this.database, viewer, resumeFrom) : null;
    if (resume && !('point' in resume)) return resume;
    const parsed = parseRunSpec(resume ? inheritedFrom(resume, input) : input);
    if (!parsed.ok) return new InvalidInput(parsed.issues);
    const clusterSpec = clusterSpecId ? await this.clusterSpecs.find(viewer, clusterSpecId) : null;
    if (clusterSpecId && !clusterSpec) return new NotFound('cluster spec with this id');
    const dataset = datasetInfo(parsed.spec.dataset);
    const spec = resume ? lengthened(resume, input, parsed.spec, roundsPerEpochOf(parsed.spec, dataset)) : parsed.spec;
    const length = lengthOf(spec, dataset);
    const issues: SpecIssue[] = [...length.issues];
    const servers = serverProcesses(spec);
    if (clusterSpec && clusterSpec.servers.length > 0 && servers > clusterSpec.servers.length) {
      issues.push({
        path: 'strategy.servers',
        message: `${servers} servers${spec.strategy.standby > 0 ? ' with the standbys' : ''}, but the cluster spec ${JSON.stringify(clusterSpec.name)} lists ${clusterSpec.servers.length}`,
      });
    }
    if (resume && issues.length === 0) issues.push(...resumeIssues(resume, spec, length.totalRounds));
    if (issues.length > 0) return new InvalidInput(issues);
    const described = await this.models.of(spec, viewer.teamId);
    if ('issues' in described) return new InvalidInput(described.issues);
    const { model } = described;
    const modelIssue = issueOfModel(spec, model) ?? (resume ? modelIssues(resume, spec, model)[0] : undefined);
    if (modelIssue) return new InvalidInput([modelIssue]);
    return { spec, model, dataset, clusterSpecId: clusterSpec?.id ?? null, from: resume?.point ?? null, ...length };
  }

  private async fleetCounts() {
    const servers = (await this.fleet.list('server')).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row));
    return { liveServers: servers.length };
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
    ]);
    await this.moves.apply(transaction, locked, { to: 'QUEUED', reason });
    const [row, attempts, statusHistory] = [
      await transaction.run.findUniqueOrThrow({ where: { id: runId }, omit: WITHOUT_MODEL }),
      await transaction.attempt.findMany({ where: { runId } }),
      await transaction.runStatusChange.findMany({ where: { runId }, orderBy: { id: 'asc' } }),
    ];
    return Object.assign(toRun(row), { created: { attempts: attempts.map(toAttempt), statusHistory } });
  }
}

/** What is wrong with the size of a model. */
function issueOfModel(spec: RunSpec, { parameterCount, stateCount, variables }: ModelDescription): SpecIssue | undefined {
  const tooLarge = tooLargeFor(spec, parameterCount + stateCount);
  if (tooLarge) return { path: 'model', message: tooLarge };
  if (variables.length > LIMITS.modelVariables)
    return {
      path: 'model',
      message: `has ${variables.length} variables; at most ${LIMITS.modelVariables} are supported: use fewer and larger layers`,
    };
  return undefined;
}

const roundsPerEpochOf = ({ globalBatch, dropRemainder }: RunSpec, { trainExamples }: DatasetInfo): number =>
  dropRemainder ? Math.floor(trainExamples / globalBatch) : Math.ceil(trainExamples / globalBatch);

/** Rounds by the schedule, and what makes one impossible. */
function lengthOf(spec: RunSpec, dataset: DatasetInfo): { roundsPerEpoch: number; totalRounds: number; issues: SpecIssue[] } {
  const { globalBatch, length } = spec;
  const roundsPerEpoch = roundsPerEpochOf(spec, dataset);
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
