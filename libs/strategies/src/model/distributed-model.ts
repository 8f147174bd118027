/**
 * A tf.js model whose training is distributed. `fit`, `fitDataset` and `trainOnBatch` of tf.js ask the model for its train function and call it with one
 * batch after the other; this one hands the batch to the trainer of the strategy. Everything else of `fit` is tf.js itself. Only the instance
 * is changed: its train function, and `compile`, so that a model compiled anew stays distributed.
 */
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError, UnsupportedError } from '../errors.js';
import type { Exchange, HostBatch, Trainer } from '../exchange.js';
import { readCompiled, unsupportedPart, type Compiled } from './compiled.js';
import { measure, type Measured } from './metrics.js';
import { ruleOf, type TfOptimizer } from './optimizer-fields.js';
import { OptimizerLink, trainedWeights } from './optimizer-link.js';
import { namedWeights, trainedModel, type TfModel, type TrainFunction, type UserModel } from './tf-model.js';
import { keptValuesOf, valuesOf } from './tensors.js';
import { ModelWeights } from './weights.js';

/** One compilation of the model, while it is trained. */
interface Session {
  readonly compiledTo: TfModel['lossFunctions'];
  readonly optimizer: TfOptimizer;
  readonly compiled: Compiled;
  readonly trainer: Trainer;
  readonly weights: ModelWeights;
  readonly link: OptimizerLink;
}

/** Losses that tf.js computes from targets of −1 and 1 as they are, and Keras from 0 and 1 too. */
const HINGES: ReadonlySet<string> = new Set(['hinge', 'squaredHinge']);

export class DistributedModel {
  private session: Session | undefined;
  private attachedTo: TfModel | undefined;

  constructor(
    private readonly user: UserModel,
    private readonly exchange: Exchange,
    private readonly seed: number,
  ) {
    const compile = user.compile.bind(user);
    user.compile = (args) => {
      compile(args);
      this.attach();
    };
    if (trainedModel(user)?.lossFunctions) this.attach();
  }

  /** The model is an ordinary one again, with the weights and the optimizer state of now. */
  detach(): void {
    this.closeSession();
    delete (this.user as Partial<UserModel>).compile;
    delete (this.attachedTo as Partial<TfModel> | undefined)?.makeTrainFunction;
    this.attachedTo = undefined;
  }

  /** @throws UnsupportedError for what can be refused before there are rows */
  private attach(): void {
    const model = trainedModel(this.user)!;
    readCompiled(this.user, model, this.seed);
    ruleOf(model.optimizer_!);
    if (this.attachedTo && this.attachedTo !== model) delete (this.attachedTo as Partial<TfModel>).makeTrainFunction;
    this.attachedTo = model;
    model.makeTrainFunction = (): TrainFunction => (data) => this.train(model, data);
  }

  private train(model: TfModel, data: Parameters<TrainFunction>[0]): tfc.Scalar[] {
    const { compiled, trainer, weights, link, optimizer } = this.sessionOf(model);
    const measured = targetsOf(model, data);
    const { count } = measured;
    checkWeights(model, compiled, measured);
    weights.takeUp();
    const step = link.nextStep();
    const batch = batchOf(model, compiled, data, measured);
    const { loss, outputs } = trainer.step(batch, step, optimizer.learningRate);
    link.stepped();
    return [tfc.scalar(loss), ...measure(model, { count, targets: measured.targets, outputs })];
  }

  /** What a model was compiled to may change between two batches. */
  private sessionOf(model: TfModel): Session {
    const { session } = this;
    if (session && session.compiledTo === model.lossFunctions && session.optimizer === model.optimizer_) return session;
    this.closeSession();
    this.session = this.openSession(model);
    return this.session;
  }

  private openSession(model: TfModel): Session {
    const compiled = readCompiled(this.user, model, this.seed);
    const optimizer = model.optimizer_ as TfOptimizer;
    const rule = ruleOf(optimizer);
    const { spec, format, frozen } = compiled;
    const trainer = this.trainerOf({ spec, format, rule });
    if (frozen.length > 0) trainer.freeze(frozen);
    const named = namedWeights(this.user.layers);
    const weights = new ModelWeights(trainer, named);
    const places = new Map(trainer.layout.variables.map((place) => [place.path, place]));
    const byWeight = new Map(named.map(({ path, weight }) => [weight, places.get(path)!]));
    const link = new OptimizerLink(optimizer, rule, trainer, trainedWeights(model.collectedTrainableWeights ?? [], byWeight));
    return { compiledTo: model.lossFunctions, optimizer, compiled, trainer, weights, link };
  }

  private trainerOf(plan: Parameters<Exchange['open']>[0]): Trainer {
    try {
      return this.exchange.open(plan);
    } catch (error) {
      if (error instanceof UnsupportedError && error.what.startsWith('model.'))
        throw unsupportedPart(plan.spec.model.topology as object, error.what, error.reason);
      throw error;
    }
  }

  private closeSession(): void {
    const { session } = this;
    if (!session) return;
    this.session = undefined;
    session.weights.leave();
    session.link.leave();
    session.trainer.close();
  }
}

function targetsOf(model: TfModel, data: Parameters<TrainFunction>[0]): Pick<Measured, 'count' | 'targets'> {
  const [inputs, outputs] = [model.inputs.length, model.outputs.length];
  const targets = data.slice(inputs, inputs + outputs).map((tensor, i) => {
    const weights = data[inputs + outputs + i] ?? undefined;
    return { tensor: tensor!, values: [] as ArrayLike<number>, weights };
  });
  return { count: data[0]!.shape[0]!, targets };
}

function checkWeights(model: TfModel, { hasLossOfBatch, format }: Compiled, { targets }: Pick<Measured, 'targets'>): void {
  if (targets.every(({ weights }) => weights === undefined)) return;
  if (model.outputs.length > 1) throw new UnsupportedError('classWeight', 'is not supported for models with several outputs');
  if (hasLossOfBatch)
    throw new UnsupportedError('classWeight', 'needs a loss by its name: a function of tf.losses gives one number for a batch');
  if (format.targets[0]!.shape.length > 1 || (format.targets[0]!.kind === 'classes' && format.targets[0]!.shape.length > 0))
    throw new UnsupportedError('classWeight', 'is not supported where an example has several targets');
}

/** The inputs are copied by the trainer at once (see valuesOf); metrics need the targets afterwards. */
function batchOf(
  model: TfModel,
  { format, losses }: Compiled,
  data: Parameters<TrainFunction>[0],
  { count, targets }: Pick<Measured, 'count' | 'targets'>,
): HostBatch {
  const inputs = format.inputs.map(({ shape }, i) => checked(data[i]!, count, shape, `input ${model.inputs[i]!.name}`));
  const ofTargets = format.targets.map(({ shape }, i) => {
    const values = checked(targets[i]!.tensor, count, shape, `target of output ${model.outputNames[i]!}`, keptValuesOf);
    if (HINGES.has(losses[i]!.name) && Array.prototype.includes.call(values, 0))
      throw new UnsupportedError(`loss ${losses[i]!.name}`, 'its targets are −1 and 1, and this batch has a 0');
    (targets[i] as { values: ArrayLike<number> }).values = values;
    return values;
  });
  const weights = targets[0]!.weights;
  return { count, inputs, targets: ofTargets, weights: weights && valuesOf(weights) };
}

function checked(tensor: tfc.Tensor, count: number, shape: readonly number[], what: string, read = valuesOf): ArrayLike<number> {
  const floats = shape.reduce((a, b) => a * b, count);
  if (tensor.size !== floats || tensor.shape[0] !== count)
    throw new ArgumentError(
      `${what}: a batch of ${count} examples has the shape [${[count, ...shape].join(', ')}], not [${tensor.shape.join(', ')}]`,
    );
  if (tensor.dtype === 'string' || tensor.dtype === 'complex64')
    throw new ArgumentError(`${what}: holds ${tensor.dtype}, and the model takes numbers`);
  return read(tensor);
}
