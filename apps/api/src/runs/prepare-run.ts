/**
 * From a spec as people write it to one that a run can have: dataset and features are resolved, the model is described, weights are found.
 * Everything that can be wrong is found here, before anything is written.
 */
import { Injectable } from '@nestjs/common';
import { augmentationFault } from '@paceline/data';
import { serverProcesses, type RestorePoint } from '@paceline/control-plane';
import { createLayout, createMetricPlan, measureIssues, metricsOfBoth } from '@paceline/learning';
import {
  allowedLocalUpdates,
  batchTooLarge,
  defaultLoss,
  defaultModel,
  fragmentsOf,
  LIMITS,
  matchesPatterns,
  unusedAtOutputs,
  validationExamples,
  watchIssues,
  type ModelDescription,
  type PickedStrategy,
  parseRunSpec,
  pinDecay,
  type RunData,
  type RunSpec,
  type SpecIssue,
  localModelIssue,
  stepsOfRound,
  type RoundGrid,
  roundGrid,
  roundsOf,
  syncSteps,
  withLocalRounds,
  workerElements,
} from '@paceline/spec';
import { ClusterSpecs } from '../cluster-specs/cluster-specs.js';
import { Database } from '../database/database.js';
import { InvalidInput, NotFound } from '../graphql/result.types.js';
import { decayIssues, freezeIssues, InitialWeights, type WarmStart } from '../models/initial-weights.js';
import type { Viewer } from '../teams/authentication.js';
import { residualIssue } from './residual-bounds.js';
import { ModelDescriptions } from './model-description.js';
import { FleetMemory } from './fleet-memory.js';
import { findResumePoint, inheritedFrom, lengthened, modelIssues, resumeIssues, type ResumeFrom, type ResumePoint } from './resume-from.js';
import { RunDatasets, type RunDataset } from './run-dataset.js';
import { specSizeIssues } from './spec-size.js';
import { StrategyChoices } from './strategy-choice.js';

/** What a new run takes over beside its spec. */
export interface RunOrigin {
  readonly clusterSpecId?: string | null | undefined;
  /** Begins with another run's checkpoint instead of the initial weights. */
  readonly resumeFrom?: ResumeFrom | null | undefined;
}

/** All that a run is made of. */
export interface Prepared {
  readonly spec: RunSpec;
  readonly model: ModelDescription;
  readonly dataset: RunDataset;
  readonly clusterSpecId: string | null;
  readonly roundsPerEpoch: number;
  readonly totalRounds: number;
  readonly from: RestorePoint | null;
  readonly warmStart: WarmStart | undefined;
  /** With `strategy: auto`, where nothing had to be measured: what the spec has now, and why. */
  readonly picked?: PickedStrategy | undefined;
}

@Injectable()
export class PrepareRun {
  private readonly models = new ModelDescriptions();

  constructor(
    private readonly database: Database,
    private readonly clusterSpecs: ClusterSpecs,
    private readonly datasets: RunDatasets,
    private readonly initialWeights: InitialWeights,
    private readonly fleetMemory: FleetMemory,
    private readonly strategies: StrategyChoices,
  ) {}

  /** @returns what the run is to be, or what is wrong with it */
  async prepare(viewer: Viewer, input: unknown, origin: RunOrigin): Promise<Prepared | InvalidInput | NotFound> {
    try {
      return await this.prepared(viewer, input, origin);
    } catch (error) {
      if (error instanceof Refusal) return error.result;
      throw error;
    }
  }

  /** In the order of what each step costs. @throws Refusal */
  private async prepared(viewer: Viewer, input: unknown, { clusterSpecId, resumeFrom }: RunOrigin): Promise<Prepared> {
    const resume = resumeFrom ? accepted(await findResumePoint(this.database, viewer, resumeFrom)) : null;
    const asked = specOf(parseRunSpec(resume ? inheritedFrom(resume, input) : input));
    const clusterSpec = clusterSpecId ? await this.clusterSpecs.find(viewer, clusterSpecId) : null;
    if (clusterSpecId && !clusterSpec) throw new Refusal(new NotFound('cluster spec with this id'));
    const found = accepted(await this.datasets.of(viewer.teamId, asked));
    const pinned = Object.assign({}, asked, found.pinned);
    const cheap = resume ? lengthened(resume, input, pinned, gridOf(pinned, found.data)) : pinned;
    const { issues, ...length } = lengthOf(cheap, found);
    requireNone([
      ...issues,
      ...allowedIssues(cheap, found),
      ...augmentationIssues(cheap, found.data),
      ...placingIssues(cheap, found.data, clusterSpec, resume !== null),
    ]);
    // Reading the training split is what costs.
    const dataset = found.learn ? accepted(await found.learn()) : found;
    const sized = Object.assign({}, cheap, dataset.pinned);
    requireNone(specSizeIssues(sized));
    if (resume) requireNone(resumeIssues(resume, sized, length));
    const { model, frozen, cutAfter } = accepted(await this.models.of(sized, dataset.data.format, viewer.teamId));
    const asAsked = withCuts(specOf(withFrozen(sized, frozen)), cutAfter);
    const picked = await this.strategies.atCreation(asAsked, model);
    const metrics = metricsOfBoth(asAsked, dataset.data.format, model.outputs);
    const spec = Object.assign({}, asAsked, picked && { strategy: picked.strategy }, metrics && { metrics });
    await this.requireModel(spec, model, dataset.data, resume);
    const allowed = allowedLocalUpdates(spec);
    if (allowed) await this.requireModel(withLocalRounds(spec, allowed), model, dataset.data, null);
    const warmStart = await this.initialWeights.prepare(viewer, spec, model);
    const learningRate = pinDecay(spec.learningRate, { globalBatch: spec.globalBatch, ...length });
    return {
      spec: Object.assign({}, spec, learningRate && { learningRate }, pinnedDefaults(spec, model, dataset.data)),
      model,
      dataset,
      clusterSpecId: clusterSpec?.id ?? null,
      from: resume?.point ?? null,
      warmStart: warmStart && accepted(warmStart),
      picked,
      ...length,
    };
  }

  /** Checks that the model fits in size, matches the checkpoint, and has everything that the spec names. @throws Refusal */
  private async requireModel(spec: RunSpec, model: ModelDescription, data: RunData, resume: ResumePoint | null): Promise<void> {
    const issue =
      issueOfModel(spec, model) ??
      (await this.fleetMemory.issueOf(withFewestWorkers(spec), {
        all: model.parameterCount + model.stateCount,
        worker: workerElements(spec, data.format, model),
      })) ??
      (resume ? modelIssues(resume, spec, model)[0] : undefined);
    if (issue) requireNone([issue]);
    const plan = createMetricPlan(spec, data.format, model.outputs);
    const unused = unusedAtOutputs(spec, model.outputs).map(([path, message]) => ({ path, message }));
    // What a run that goes on inherits was taken before.
    const idle = resume ? [] : [...decayIssues(spec, model), ...unused, ...measureIssues(spec, model.outputs, plan)];
    requireNone([...freezeIssues(spec, model), ...idle, ...watchIssues(spec, Object.keys(plan.finish([], 0)), validationExamples(data))]);
  }
}

/** Ends the preparation with what is wrong. */
class Refusal extends Error {
  constructor(readonly result: InvalidInput | NotFound) {
    super(result.message);
  }
}

/** @throws Refusal */
function requireNone(issues: readonly SpecIssue[]): void {
  if (issues.length > 0) throw new Refusal(new InvalidInput([...issues]));
}

/** A step's result. @throws Refusal for what is wrong */
function accepted<T extends object>(step: T): Exclude<T, { readonly issues: readonly SpecIssue[] } | InvalidInput | NotFound> {
  if (step instanceof InvalidInput || step instanceof NotFound) throw new Refusal(step);
  if ('issues' in step) requireNone(step.issues as readonly SpecIssue[]);
  return step as Exclude<T, { readonly issues: readonly SpecIssue[] } | InvalidInput | NotFound>;
}

/** @throws Refusal */
function specOf(parsed: ReturnType<typeof parseRunSpec>): RunSpec {
  if (!parsed.ok) throw new Refusal(new InvalidInput(parsed.issues));
  return parsed.spec;
}

/** What is wrong with the batch, the servers and the origin of the weights, as far as no row was read. */
function placingIssues(
  spec: RunSpec,
  data: RunData,
  clusterSpec: { readonly name: string; readonly servers: readonly string[] } | null,
  isResumed: boolean,
): SpecIssue[] {
  const issues: SpecIssue[] = [];
  const tooLarge = batchTooLarge(spec, data.format);
  if (tooLarge) issues.push({ path: 'globalBatch', message: tooLarge });
  const servers = serverProcesses(spec);
  if (clusterSpec && clusterSpec.servers.length > 0 && servers > clusterSpec.servers.length) {
    issues.push({
      path: 'strategy.servers',
      message: `${servers} servers${spec.strategy.standby > 0 ? ' with the standbys' : ''}, but the cluster spec ${JSON.stringify(clusterSpec.name)} lists ${clusterSpec.servers.length}`,
    });
  }
  if (isResumed && spec.weights)
    issues.push({ path: 'weights', message: 'a run that resumes from a checkpoint has its weights from there: leave one of the two out' });
  return issues;
}

/** What the topology freezes is frozen as if the spec said it: servers and workers read it there. */
function withFrozen(spec: RunSpec, frozen: readonly string[]): ReturnType<typeof parseRunSpec> {
  const added = frozen.filter((name) => !matchesPatterns(spec.freeze, `${name}/*`));
  return added.length === 0 ? { ok: true, spec } : parseRunSpec(Object.assign({}, spec, { freeze: [...(spec.freeze ?? []), ...added] }));
}

/** Where the model is cut into stages is written down, so that the run says it. */
function withCuts(spec: RunSpec, cutAfter: readonly string[] | undefined): RunSpec {
  const { strategy } = spec;
  if (strategy.kind !== 'model-parallel' || !cutAfter) return spec;
  return { ...spec, strategy: { ...strategy, stages: cutAfter.length + 1, cutAfter: [...cutAfter] } };
}

/** What follows from the rows where the spec says nothing is written down, so that the run and its exports say it. */
function pinnedDefaults(spec: RunSpec, { outputs }: ModelDescription, { format }: RunData): Pick<RunSpec, 'model' | 'loss'> {
  const [output, ...others] = outputs;
  const loss = spec.loss ?? (others.length === 0 ? defaultLoss(format.targets[0]!, output!.shape.at(-1) ?? 1) : undefined);
  return Object.assign({ model: spec.model ?? defaultModel(format) }, loss && { loss });
}

/** The run may come to have so few workers by itself, each with a larger shard. */
function withFewestWorkers(spec: RunSpec): RunSpec {
  const { strategy } = spec;
  if (!('minWorkers' in strategy) || strategy.minWorkers === undefined) return spec;
  return { ...spec, strategy: { ...strategy, workers: strategy.minWorkers } };
}

/** What is wrong with the size of a model; that it has too many parameters was found when it was described. */
function issueOfModel(spec: RunSpec, model: ModelDescription): SpecIssue | undefined {
  const { parameterCount, stateCount, variables } = model;
  const tooLarge = localModelIssue(spec, parameterCount + stateCount);
  if (tooLarge) return { path: 'model', message: tooLarge };
  const tooMany = residualIssue(withFewestWorkers(spec), model);
  if (tooMany) return tooMany;
  const parts = createLayout(model).chunks.filter(({ section }) => section === 'trainable').length;
  if (fragmentsOf(spec) > parts)
    return {
      path: 'strategy.fragments',
      message: `is ${fragmentsOf(spec)}, and the parameters of this model lie in ${parts} ${parts === 1 ? 'chunk' : 'chunks'}, which are exchanged as a whole: ${parts === 1 ? 'leave it out' : `set it to at most ${parts}`}`,
    };
  if (variables.length > LIMITS.modelVariables)
    return {
      path: 'model',
      message: `has ${variables.length} variables; at most ${LIMITS.modelVariables} are supported: use fewer and larger layers`,
    };
  return undefined;
}

function augmentationIssues({ augmentation, features }: RunSpec, { format }: RunData): SpecIssue[] {
  const message = augmentation && augmentationFault(format, features);
  return message === undefined ? [] : [{ path: 'augmentation', message }];
}

const gridOf = (spec: RunSpec, { trainExamples }: RunData): RoundGrid => roundGrid(roundsOf(spec, trainExamples));

/** What the rounds of the local updates would be that auto may pick. */
function allowedIssues(spec: RunSpec, dataset: RunDataset): SpecIssue[] {
  const allowed = allowedLocalUpdates(spec);
  return allowed ? lengthOf(withLocalRounds(spec, allowed), dataset).issues : [];
}

/** Rounds by the schedule, and what makes one impossible. */
function lengthOf(spec: RunSpec, { data, name }: RunDataset): { roundsPerEpoch: number; totalRounds: number; issues: SpecIssue[] } {
  const { globalBatch, length } = spec;
  const { roundsPerEpoch, roundsIn } = gridOf(spec, data);
  const totalRounds = 'rounds' in length ? length.rounds : roundsPerEpoch === 0 ? 0 : roundsIn(length.epochs);
  const issues: SpecIssue[] = [];
  const steps = stepsOfRound(spec);
  const field = spec.strategy.kind === 'tpu' ? 'stepsPerExecution' : 'localSteps';
  const kindOfSteps = spec.strategy.kind === 'tpu' ? 'steps' : 'local steps';
  const { examples } = roundsOf(spec, data.trainExamples);
  const stepsPerEpoch = Math.ceil(examples / globalBatch);
  if (steps > stepsPerEpoch && stepsPerEpoch > 0) {
    issues.push({
      path: `strategy.${field}`,
      message: `a round of ${steps} ${kindOfSteps} is longer than an epoch, which has ${stepsPerEpoch} batches of ${globalBatch} examples (${name} has ${data.trainExamples}), and a round ends with its epoch: set ${field} to at most ${stepsPerEpoch}, or a smaller globalBatch`,
    });
  } else if (totalRounds * steps > LIMITS.rounds && steps > 1) {
    issues.push({ path: 'length', message: `${totalRounds * steps} ${kindOfSteps}; at most ${LIMITS.rounds} are supported` });
  }
  if (roundsPerEpoch === 0) {
    issues.push({
      path: 'globalBatch',
      message: `${steps > 1 ? `a round of ${steps} ${kindOfSteps} with globalBatch` : 'globalBatch'} (${globalBatch}) is larger than the ${data.trainExamples} examples of ${name}, and dropRemainder drops the rest: no round is left`,
    });
  }
  if (roundsPerEpoch > 0 && syncSteps(spec) >= totalRounds) {
    issues.push({
      path: 'strategy.syncSteps',
      message: `${syncSteps(spec)} of ${totalRounds} rounds would have one step, and none is left for localSteps: set it to less, or take parameter-server`,
    });
  }
  if (totalRounds > LIMITS.rounds) {
    issues.push({ path: 'length', message: `${totalRounds} rounds; at most ${LIMITS.rounds} are supported` });
  }
  return { roundsPerEpoch, totalRounds, issues };
}
