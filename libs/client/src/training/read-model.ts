/** From a compiled model of tf.js to the part of a run spec that it says: topology, loss, metrics and optimizer. */
import type { RunSpecInput } from '@paceline/spec';
import { compiledOf, type CompiledModel, type ModelLike } from './tf-shapes.js';
import { TrainError } from './train-error.js';

type ModelPart = Pick<RunSpecInput, 'model' | 'loss' | 'lossFromLogits' | 'metrics' | 'optimizer'>;
type OptimizerInput = NonNullable<RunSpecInput['optimizer']>;

export interface ReadModel {
  readonly spec: ModelPart;
  /** The classes of a target that holds numbers of classes; undefined where targets are values. */
  readonly classes: number | undefined;
  /** Of one example, without the batch. */
  readonly inputShape: readonly number[];
  readonly outputShape: readonly number[];
}

/** Functions of tf.losses by the name that tf.js gives them. */
const LOSS_FUNCTIONS: Readonly<Record<string, readonly [loss: string, fromLogits: boolean | undefined]>> = {
  meanSquaredError: ['meanSquaredError', undefined],
  absoluteDifference: ['meanAbsoluteError', undefined],
  huberLoss: ['huber', undefined],
  softmaxCrossEntropy: ['categoricalCrossentropy', true],
  sigmoidCrossEntropy: ['binaryCrossentropy', true],
};
const FUNCTION_NAMES = Object.keys(LOSS_FUNCTIONS).join(', ');
const SPARSE = 'sparseCategoricalCrossentropy';

/** @throws TrainError TRAIN_NOT_COMPILED, TRAIN_UNSUPPORTED */
export async function readModel(model: ModelLike): Promise<ReadModel> {
  if (typeof (model as Partial<ModelLike> | null)?.toJSON !== 'function' || !Array.isArray(model.layers))
    throw new TrainError('TRAIN_UNSUPPORTED', 'model', 'train takes a tf.LayersModel, made by tf.sequential or tf.model');
  const compiled = compiledOf(model);
  const optimizer = compiled.optimizer ?? compiled.optimizer_;
  if (compiled.loss === undefined || !optimizer)
    throw new TrainError(
      'TRAIN_NOT_COMPILED',
      `model ${model.name}`,
      'it is not compiled: call model.compile({ optimizer, loss }) first; the run takes optimizer, loss and metrics from there',
    );
  const { inputs, outputs } = compiled;
  if (inputs.length !== 1 || outputs.length !== 1)
    throw new TrainError(
      'TRAIN_UNSUPPORTED',
      `model ${model.name}`,
      `it has ${inputs.length} inputs and ${outputs.length} outputs, and train sends models with one of each: import the data and call createRun with model, features and losses`,
    );
  const { lossName, LOSSES } = await import('@paceline/spec');
  const { name: loss, fromLogits } = lossOf(compiled, (name) => lossName(name), LOSSES);
  const [inputShape, outputShape] = [shapeOf('input', inputs[0]!.shape), shapeOf('output', outputs[0]!.shape)];
  const isSparse = loss === SPARSE;
  // With several outputs under this loss by its name, `accuracy` of tf.js counts each of them.
  const ofLabels = loss === 'binaryCrossentropy' && fromLogits !== true && (outputShape.at(-1) ?? 1) > 1;
  const metrics = await metricsOf(compiled.metrics, ofLabels ? 'binaryAccuracy' : 'accuracy');
  return {
    spec: {
      model: { topology: topologyOf(model) } as NonNullable<ModelPart['model']>,
      // Numbers of classes are sent as one-hot rows: the same loss, whichever classes the data has.
      loss: (isSparse ? 'categoricalCrossentropy' : loss) as NonNullable<ModelPart['loss']>,
      ...(fromLogits === undefined ? {} : { lossFromLogits: fromLogits }),
      ...(metrics === undefined ? {} : { metrics }),
      optimizer: optimizerOf(optimizer),
    },
    classes: isSparse ? outputShape.at(-1)! : undefined,
    inputShape,
    outputShape,
  };
}

function lossOf(
  { loss }: CompiledModel,
  named: (name: string) => string,
  known: readonly string[],
): { readonly name: string; readonly fromLogits?: boolean | undefined } {
  const given: unknown = Array.isArray(loss)
    ? loss[0]
    : typeof loss === 'object' && loss !== null
      ? Object.values(loss as Record<string, unknown>)[0]
      : loss;
  if (typeof given === 'function') {
    const found = LOSS_FUNCTIONS[given.name.replace(/__op$/, '')];
    if (found && given.name.endsWith('__op')) return { name: found[0], fromLogits: found[1] };
    throw new TrainError(
      'TRAIN_UNSUPPORTED',
      `loss ${given.name === '' ? 'function' : given.name}`,
      `a function of your own cannot go to the workers: give the name of a loss, such as "meanSquaredError", or one of tf.losses: ${FUNCTION_NAMES}`,
    );
  }
  const name = named(String(given));
  if (!known.includes(name)) throw new TrainError('TRAIN_UNSUPPORTED', `loss ${String(given)}`, `the workers have ${known.join(', ')}`);
  // tf.js takes probabilities wherever a crossentropy is named.
  return /[cC]rossentropy$/.test(name) ? { name, fromLogits: false } : { name };
}

/** @param accuracy what `accuracy` and `acc` mean */
async function metricsOf(metrics: unknown, accuracy: 'accuracy' | 'binaryAccuracy'): Promise<ModelPart['metrics']> {
  const { measuredName, MEASURED_NAMES } = await import('@paceline/spec');
  const given: unknown[] = Array.isArray(metrics) ? metrics.flat() : metrics === undefined ? [] : Object.values(metrics as object).flat();
  if (given.length === 0) return undefined;
  return given.map((metric) => {
    const name = typeof metric === 'string' ? measuredName(metric) : undefined;
    if (name === undefined)
      throw new TrainError(
        'TRAIN_UNSUPPORTED',
        `metric ${typeof metric === 'function' ? metric.name || 'function' : String(metric)}`,
        `name a metric that the workers have: ${MEASURED_NAMES.join(', ')}`,
      );
    return metric === 'accuracy' || metric === 'acc' ? accuracy : name;
  });
}

function topologyOf(model: ModelLike): unknown {
  try {
    return JSON.parse(JSON.stringify(model.toJSON(null, false)));
  } catch (cause) {
    throw new TrainError(
      'TRAIN_UNSUPPORTED',
      `model ${model.name}`,
      `its topology cannot be written as JSON: ${(cause as Error).message}`,
      cause,
    );
  }
}

function shapeOf(what: string, shape: readonly (number | null)[]): number[] {
  return shape.slice(1).map((size) => {
    if (size !== null) return size;
    throw new TrainError(
      'TRAIN_UNSUPPORTED',
      what,
      `its shape is [${shape.map(String).join(', ')}]: every dimension but that of the batch must be known`,
    );
  });
}

/** How the names of classes of the library's optimizers begin. */
const OF_RUNS = 'paceline.';

/** One of `optimizers` of the library: its configuration is that of a run, but for patterns, which stand in fields called `name`. */
function ofRuns(name: string, config: object = {}): OptimizerInput {
  const { weightDecayExclude: patterns, ...fields } = config as { readonly weightDecayExclude?: readonly { readonly name: string }[] };
  const excluded = patterns && { weightDecayExclude: patterns.map((pattern) => pattern.name) };
  return { name, ...fields, ...excluded } as OptimizerInput;
}

/** The fields of the optimizers of tf.js 4. Their names are private in its types. */
function optimizerOf(given: unknown): OptimizerInput {
  const optimizer = given as Record<string, number & boolean> & { getClassName?(): string; getConfig?(): object };
  const { learningRate, momentum, useNesterov, beta1, beta2, epsilon, decay, rho, centered, initialAccumulatorValue } = optimizer;
  const own =
    Object.hasOwn(optimizer.constructor, 'className') &&
    ['applyGradients', 'minimize'].every((method) => !Object.hasOwn(optimizer, method));
  const name = own ? (optimizer.getClassName?.() ?? '') : '';
  if (name.startsWith(OF_RUNS)) return ofRuns(name.slice(OF_RUNS.length), optimizer.getConfig?.());
  switch (name) {
    case 'SGD':
      return { name: 'sgd', learningRate };
    case 'Momentum':
      return { name: 'momentum', learningRate, momentum, nesterov: useNesterov };
    case 'Adam':
      return { name: 'adam', learningRate, beta1, beta2, epsilon };
    case 'Adamax':
      if (decay) break;
      return { name: 'adamax', learningRate, beta1, beta2, epsilon };
    case 'Adagrad':
      return { name: 'adagrad', learningRate, initialAccumulator: initialAccumulatorValue };
    case 'Adadelta':
      return { name: 'adadelta', learningRate, rho, epsilon };
    case 'RMSProp':
      return { name: 'rmsprop', learningRate, rho: decay, momentum, epsilon, centered };
  }
  throw new TrainError(
    'TRAIN_UNSUPPORTED',
    `optimizer ${name === '' ? String((optimizer.constructor as { name?: string }).name) : name}`,
    'use one of tf.train: sgd, momentum, adam, adamax without decay, adagrad, adadelta or rmsprop, or one of `optimizers` of paceline; others of the service are named in options.spec.optimizer',
  );
}
