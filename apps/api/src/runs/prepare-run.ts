/**
 * From a spec as people write it to one that a run can have: dataset and features are resolved, the model is described, weights are found.
 * Everything that can be wrong is found here, before anything is written.
 */
import { Injectable } from '@nestjs/common';
import { augmentationFault } from '@paceline/data';
import { serverProcesses, type RestorePoint } from '@paceline/control-plane';
import { createMetricPlan } from '@paceline/learning';
import {
  batchTooLarge,
  defaultLoss,
  defaultModel,
  LIMITS,
  matchesPatterns,
  validationExamples,
  watchIssues,
  type ModelDescription,
  parseRunSpec,
  pinDecay,
  type RunData,
  type RunSpec,
  type SpecIssue,
  tooLargeFor,
} from '@paceline/spec';
import { ClusterSpecs } from '../cluster-specs/cluster-specs.js';
import { Database } from '../database/database.js';
import { InvalidInput, NotFound } from '../graphql/result.types.js';
import { freezeIssues, InitialWeights, type WarmStart } from '../models/initial-weights.js';
import type { Viewer } from '../teams/authentication.js';
import { ModelDescriptions } from './model-description.js';
import { FleetMemory } from './fleet-memory.js';
import { findResumePoint, inheritedFrom, lengthened, modelIssues, resumeIssues, type ResumeFrom } from './resume-from.js';
import { RunDatasets, type RunDataset } from './run-dataset.js';
import { specSizeIssues } from './spec-size.js';

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
  ) {}

  /** @returns what the run is to be, or what is wrong with it */
  async prepare(viewer: Viewer, input: unknown, { clusterSpecId, resumeFrom }: RunOrigin): Promise<Prepared | InvalidInput | NotFound> {
    const resume = resumeFrom ? await findResumePoint(this.database, viewer, resumeFrom) : null;
    if (resume && !('point' in resume)) return resume;
    const parsed = parseRunSpec(resume ? inheritedFrom(resume, input) : input);
    if (!parsed.ok) return new InvalidInput(parsed.issues);
    const clusterSpec = clusterSpecId ? await this.clusterSpecs.find(viewer, clusterSpecId) : null;
    if (clusterSpecId && !clusterSpec) return new NotFound('cluster spec with this id');
    const found = await this.datasets.of(viewer.teamId, parsed.spec);
    if ('issues' in found) return new InvalidInput(found.issues);
    const pinned = Object.assign({}, parsed.spec, found.pinned);
    const cheap = resume ? lengthened(resume, input, pinned, roundsPerEpochOf(pinned, found.data)) : pinned;
    const length = lengthOf(cheap, found);
    const issues: SpecIssue[] = [...length.issues, ...augmentationIssues(cheap, found.data)];
    const tooLarge = batchTooLarge(cheap, found.data.format);
    if (tooLarge) issues.push({ path: 'globalBatch', message: tooLarge });
    const servers = serverProcesses(cheap);
    if (clusterSpec && clusterSpec.servers.length > 0 && servers > clusterSpec.servers.length) {
      issues.push({
        path: 'strategy.servers',
        message: `${servers} servers${cheap.strategy.standby > 0 ? ' with the standbys' : ''}, but the cluster spec ${JSON.stringify(clusterSpec.name)} lists ${clusterSpec.servers.length}`,
      });
    }
    if (resume && cheap.weights)
      issues.push({
        path: 'weights',
        message: 'a run that resumes from a checkpoint has its weights from there: leave one of the two out',
      });
    if (issues.length > 0) return new InvalidInput(issues);
    // Reading the training split is what costs.
    const dataset = found.learn ? await found.learn() : found;
    if ('issues' in dataset) return new InvalidInput(dataset.issues);
    const { data } = dataset;
    let spec = Object.assign({}, cheap, dataset.pinned);
    issues.push(...specSizeIssues(spec));
    if (resume && issues.length === 0) issues.push(...resumeIssues(resume, spec, length));
    if (issues.length > 0) return new InvalidInput(issues);
    const described = await this.models.of(spec, data.format, viewer.teamId);
    if ('issues' in described) return new InvalidInput(described.issues);
    const { model } = described;
    const withFrozen = parsedAgain(spec, described.frozen);
    if (!withFrozen.ok) return new InvalidInput(withFrozen.issues);
    spec = withFrozen.spec;
    const modelIssue =
      issueOfModel(spec, model) ??
      (await this.fleetMemory.issueOf(spec, model.parameterCount + model.stateCount)) ??
      (resume ? modelIssues(resume, spec, model)[0] : undefined);
    if (modelIssue) return new InvalidInput([modelIssue]);
    const measured = Object.keys(createMetricPlan(spec, data.format, model.outputs).finish([], 0));
    const ofModel = [...freezeIssues(spec, model), ...watchIssues(spec, measured, validationExamples(data))];
    if (ofModel.length > 0) return new InvalidInput(ofModel);
    const warmStart = await this.initialWeights.prepare(viewer, spec, model);
    if (warmStart && 'issues' in warmStart) return new InvalidInput([...warmStart.issues]);
    const learningRate = pinDecay(spec.learningRate, { globalBatch: spec.globalBatch, ...length });
    return {
      spec: Object.assign({}, spec, learningRate && { learningRate }, pinnedDefaults(spec, model, data)),
      model,
      dataset,
      clusterSpecId: clusterSpec?.id ?? null,
      from: resume?.point ?? null,
      warmStart,
      ...length,
    };
  }
}

/** What the topology freezes is frozen as if the spec said it: servers and workers read it there. */
function parsedAgain(spec: RunSpec, frozen: readonly string[]): ReturnType<typeof parseRunSpec> {
  const added = frozen.filter((name) => !matchesPatterns(spec.freeze, `${name}/*`));
  return added.length === 0 ? { ok: true, spec } : parseRunSpec(Object.assign({}, spec, { freeze: [...(spec.freeze ?? []), ...added] }));
}

/** What follows from the rows where the spec says nothing is written down, so that the run and its exports say it. */
function pinnedDefaults(spec: RunSpec, { outputs }: ModelDescription, { format }: RunData): Pick<RunSpec, 'model' | 'loss'> {
  const [output, ...others] = outputs;
  const loss = spec.loss ?? (others.length === 0 ? defaultLoss(format.targets[0]!, output!.shape.at(-1) ?? 1) : undefined);
  return Object.assign({ model: spec.model ?? defaultModel(format) }, loss && { loss });
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

function augmentationIssues({ augmentation, features }: RunSpec, { format }: RunData): SpecIssue[] {
  const message = augmentation && augmentationFault(format, features);
  return message === undefined ? [] : [{ path: 'augmentation', message }];
}

const roundsPerEpochOf = ({ globalBatch, dropRemainder }: RunSpec, { trainExamples }: RunData): number =>
  dropRemainder ? Math.floor(trainExamples / globalBatch) : Math.ceil(trainExamples / globalBatch);

/** Rounds by the schedule, and what makes one impossible. */
function lengthOf(spec: RunSpec, { data, name }: RunDataset): { roundsPerEpoch: number; totalRounds: number; issues: SpecIssue[] } {
  const { globalBatch, length } = spec;
  const roundsPerEpoch = roundsPerEpochOf(spec, data);
  const totalRounds = 'rounds' in length ? length.rounds : length.epochs * roundsPerEpoch;
  const issues: SpecIssue[] = [];
  if (roundsPerEpoch === 0) {
    issues.push({
      path: 'globalBatch',
      message: `globalBatch (${globalBatch}) is larger than the ${data.trainExamples} examples of ${name}, and dropRemainder drops the rest: no round is left`,
    });
  }
  if (totalRounds > LIMITS.rounds) {
    issues.push({ path: 'length', message: `${totalRounds} rounds; at most ${LIMITS.rounds} are supported` });
  }
  return { roundsPerEpoch, totalRounds, issues };
}
