/**
 * What everybody has to agree on about a model before a byte moves (ModelDescription of libs/spec), found by building the
 * model without weights. Cheap and without side effects, but a hostile topology may still cost time: the api uses
 * `describeModelInThread`.
 */
import '@tensorflow/tfjs-backend-cpu';
import { createInitialValues, LearningError } from '@paceline/learning';
import {
  isSparse,
  matchesPatterns,
  stageCutsOf,
  type ModelDescription,
  type RowFormat,
  type RunSpec,
  type VariableSpec,
} from '@paceline/spec';
import { buildModel, type BuiltModel, type BuiltWeight } from '../model/build-model.js';
import { bindEnds, endsOfModel } from '../model/ends.js';
import { freezeOf } from '../topology/frozen-layers.js';
import { ModelError } from '../errors/model-error.js';
import { planModel, type ModelPart } from '../topology/plan-model.js';
import type { PlannedLayer } from '../topology/planned-model.js';
import { cutModel, type StageCuts } from '../stages/cut-model.js';
import { markTables } from '../topology/tables.js';
import { checkTrainable } from '../model/check-trainable.js';

export interface DescribedModel extends ModelDescription {
  /** Where the strategy cuts the model into stages: the layers that end one, but for the last one. */
  readonly cutAfter?: readonly string[] | undefined;
}

/**
 * Describes the model of a run and checks that model, rows, loss and engine go together.
 * @param format what the examples of the run look like; an input of another shape is fine when it has as many elements (784 or 28 × 28 × 1)
 * @throws ModelError naming the field of the spec
 */
export async function describeModel(spec: ModelPart, format: RowFormat): Promise<DescribedModel> {
  const { plan, root } = planModel(spec, format);
  const built = buildModel(plan, root, false);
  const { inputs } = bindEnds(built.model, plan, root, spec, format);
  const trained = built.weights.filter((weight) => weight.trainable);
  if (trained.length === 0) throw new ModelError(root, 'the model has no trainable weights');
  const frozen = freezeOf(plan, undefined);
  if (trained.every(({ path: variable }) => matchesPatterns(frozen, variable)))
    throw new ModelError(root, 'every layer with weights is frozen (trainable: false): leave it out where something is to be learned');
  checkTrainable(built, root, spec);
  const cutAfter = cutsOf(built, spec);
  const description = descriptionOf(built);
  checkInitializers(description, built);
  if (cutAfter) return Object.assign(description, { cutAfter });
  return isSparse(spec) ? markTables(description, plan, inputs, spec, format) : description;
}

/** Why a model cannot be cut into stages, without rows that it would have to go together with; undefined where it can. */
export function uncutReason(spec: Pick<RunSpec, 'model'>, cuts: StageCuts): string | undefined {
  const { plan, root } = planModel(spec, undefined);
  try {
    cutModel(buildModel(plan, root, false), cuts);
    return undefined;
  } catch (error) {
    if (error instanceof ModelError) return error.message;
    throw error;
  }
}

/**
 * The layers that end a stage, but for the last one; undefined where the strategy does not cut the model into stages.
 * @throws ModelError where it cannot be cut so
 */
function cutsOf(built: BuiltModel, { strategy }: ModelPart): readonly string[] | undefined {
  const cuts = strategy && stageCutsOf(strategy);
  if (!cuts) return undefined;
  try {
    return cutModel(built, cuts).flatMap(({ end }) => end ?? []);
  } catch (error) {
    if (error instanceof ModelError) throw new ModelError(`strategy.${error.path}`, error.message, { cause: error });
    throw error;
  }
}

export function descriptionOf(built: BuiltModel): ModelDescription {
  const variables = built.weights.map(variableOf);
  const elements = (section: VariableSpec['section']): number =>
    variables.filter((v) => v.section === section).reduce((sum, v) => sum + v.shape.reduce((a, b) => a * b, 1), 0);
  const { inputs, outputs } = endsOfModel(built.model, built.plan);
  return {
    variables,
    inputs,
    outputs,
    parameterCount: elements('trainable'),
    stateCount: elements('state'),
  };
}

function variableOf(weight: BuiltWeight): VariableSpec {
  return { path: weight.path, shape: weight.shape, section: weight.trainable ? 'trainable' : 'state', initializer: weight.initializer };
}

/** The servers compute the initial values: whatever they would refuse is refused now, at its layer. */
function checkInitializers(description: ModelDescription, { pathOf }: BuiltModel): void {
  try {
    createInitialValues(description, 0);
  } catch (error) {
    if (!(error instanceof LearningError)) throw error;
    const variable = description.variables.find(({ path }) => error.field.includes(JSON.stringify(path)));
    throw new ModelError(pathOf(variable?.path.slice(0, variable.path.lastIndexOf('/')) ?? ''), error.message, { cause: error });
  }
}

/** The variables of a model alone, without rows that it would have to go together with; and its layers, in their order. @throws ModelError */
export function modelVariables(spec: Pick<RunSpec, 'model'>): {
  readonly layers: readonly PlannedLayer[];
  readonly variables: readonly VariableSpec[];
} {
  const { plan, root } = planModel(spec, undefined);
  return { layers: plan.layers, variables: buildModel(plan, root, false).weights.map(variableOf) };
}
