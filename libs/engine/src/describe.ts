/**
 * What everybody has to agree on about a model before a byte moves (ModelDescription of libs/spec), found by building the
 * model without weights. Cheap and without side effects, but a hostile topology may still cost time: the api uses
 * `describeModelInThread`.
 */
import * as tfl from '@tensorflow/tfjs-layers';
import '@tensorflow/tfjs-backend-cpu';
import { createInitialValues, LearningError } from '@paceline/learning';
import type { ModelDescription, RunSpec, VariableSpec } from '@paceline/spec';
import { buildModel, type BuiltModel, type BuiltWeight } from './build-model.js';
import { ModelError } from './model-error.js';
import { planTopology, type PlannedModel } from './topology.js';
import { checkTrainable } from './trainable.js';
import { zooTopology } from './zoo.js';

/** What the dataset of the run looks like; an input of another shape is fine when it has as many elements (784 or 28 × 28 × 1). */
export interface ExampleShape {
  readonly inputShape: readonly number[];
  readonly classes: number;
}

const EXAMPLES: Readonly<Record<RunSpec['dataset'], ExampleShape>> = { mnist: { inputShape: [28, 28, 1], classes: 10 } };

export interface DescribeOptions {
  /** The examples of the dataset, when it is not one of the built-in ones. */
  readonly examples?: ExampleShape;
}

/** The part of a run spec that decides about the model. */
export type ModelPart = Pick<RunSpec, 'model' | 'dataset' | 'loss' | 'engine'>;

/** The planned model of a spec and the field of the spec where it stands. */
export function planModel(spec: Pick<RunSpec, 'model'>): { plan: PlannedModel; root: string } {
  if (typeof spec.model === 'string') return { plan: planTopology(zooTopology(spec.model), 'model'), root: 'model' };
  return { plan: planTopology(spec.model.topology, 'model.topology'), root: 'model.topology' };
}

/**
 * Describes the model of a run and checks that model, dataset, loss and engine go together.
 * @throws ModelError naming the field of the spec
 */
export async function describeModel(spec: ModelPart, options: DescribeOptions = {}): Promise<ModelDescription> {
  const { plan, root } = planModel(spec);
  const built = buildModel(plan, root, false);
  checkEnds(built, root, options.examples ?? EXAMPLES[spec.dataset], spec.dataset);
  checkTrainable(built, plan, root, spec);
  const description = descriptionOf(built);
  checkInitializers(description, built);
  return description;
}

export function descriptionOf(built: BuiltModel): ModelDescription {
  const variables = built.weights.map(variableOf);
  const elements = (section: VariableSpec['section']): number =>
    variables.filter((v) => v.section === section).reduce((sum, v) => sum + v.shape.reduce((a, b) => a * b, 1), 0);
  return {
    variables,
    inputShape: exampleShape(built.model.inputs[0]!),
    outputShape: exampleShape(built.model.outputs[0]!),
    parameterCount: elements('trainable'),
    stateCount: elements('state'),
  };
}

const exampleShape = (tensor: tfl.SymbolicTensor): number[] => tensor.shape.slice(1) as number[];

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
    throw new ModelError(pathOf(variable?.path.split('/')[0] ?? ''), error.message, { cause: error });
  }
}

function checkEnds({ model, weights }: BuiltModel, root: string, examples: ExampleShape, dataset: string): void {
  const [input, output] = [model.inputs[0]!, model.outputs[0]!];
  if (model.inputs.length !== 1) throw new ModelError(root, `the model has ${model.inputs.length} inputs; exactly one is supported`);
  if (model.outputs.length !== 1) throw new ModelError(root, `the model has ${model.outputs.length} outputs; exactly one is supported`);
  if (input.dtype !== 'float32') throw new ModelError(root, `the input has dtype ${input.dtype}; the dataset delivers float32`);
  const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
  const [inputShape, outputShape] = [exampleShape(input), exampleShape(output)];
  if (size(inputShape) !== size(examples.inputShape)) {
    throw new ModelError(
      root,
      `the model's input is [${inputShape.join(', ')}], but an example of ${dataset} is [${examples.inputShape.join(', ')}]`,
    );
  }
  if (outputShape.length !== 1 || outputShape[0] !== examples.classes) {
    throw new ModelError(
      root,
      `the model's output is [${outputShape.join(', ')}], but ${dataset} has ${examples.classes} classes: the last layer must deliver [${examples.classes}]`,
    );
  }
  if (!weights.some((weight) => weight.trainable)) throw new ModelError(root, 'the model has no trainable weights');
}
