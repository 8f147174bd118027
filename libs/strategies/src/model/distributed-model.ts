/**
 * A tf.js model whose training and evaluation are distributed. `fit`, `fitDataset` and `trainOnBatch` of tf.js ask the model for its train function and call it with one
 * batch after the other; this one hands the batch to the trainer of the strategy. Everything else of `fit` is tf.js itself. Only the instance
 * is changed: its train function, `fitLoop`, so that tf.js gathers the numbers of rows instead of rows, what evaluates and predicts (evaluation.ts), and
 * `compile`, so that a model compiled anew stays distributed.
 */
import { crc32 } from 'node:zlib';
import { fillPermutation } from '@paceline/learning';
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError, StrategyError, UnsupportedError } from '../errors.js';
import type { Exchange, HostBatch, StepResult, Trainer } from '../exchange.js';
import { columnOf, filler, RowTensor, type Column } from './batch-columns.js';
import { Evaluation } from './evaluation.js';
import { frozenIn, readCompiled, trainedNow, unsupportedPart, type Compiled } from './compiled.js';
import { FitRows, looksAtBatches } from './fit-rows.js';
import { measure, type Measured } from './metrics.js';
import { fitDatasetText, fitText, scalarOf, told, toldOutputs, valuesBy } from './told-values.js';
import { ruleFor, type TfOptimizer } from './optimizer-fields.js';
import { OptimizerLink, trainedWeights } from './optimizer-link.js';
import { checkWeights, validationWeights, weightsIn } from './row-weights.js';
import { namedWeights, trainedModel, type TfModel, type TrainFunction, type UserModel } from './tf-model.js';
import { takeArrays, TAKING_ARRAYS, type EvaluatedRows } from './take-arrays.js';
import { valuesOf } from './tensors.js';
import { ModelWeights } from './weights.js';

/** One compilation of the model, while it is trained. */
interface Session {
  readonly compiledTo: TfModel['lossFunctions'];
  readonly optimizer: TfOptimizer;
  readonly compiled: Compiled;
  readonly trainer: Trainer;
  readonly weights: ModelWeights;
  readonly link: OptimizerLink;
  /** Which of the weights that tf.js has collected are trained: `layer.trainable` may change between two steps. */
  trained: readonly boolean[];
}

/** Losses that tf.js computes from targets of −1 and 1 as they are, and Keras from 0 and 1 too. */
const HINGES: ReadonlySet<string> = new Set(['hinge', 'squaredHinge']);

/** Places among the arguments of `fitLoop` after the data. */
const [BATCH_SIZE, CALLBACKS, VALIDATION, SHUFFLE, INITIAL_EPOCH] = [1, 4, 6, 7, 9];
/** tf.js takes it where none is given. */
const BATCH_SIZE_DEFAULT = 32;

/** Inputs, targets, and the class weights of each target where there are some. */
type Columns = readonly (Column | undefined)[];

/** Of one call of `fit`: the place of a batch in its epoch, and the batch after it where that may begin before tf.js has heard of this one. */
interface FitBatch {
  readonly rows: FitRows;
  readonly from: number;
  readonly next?: { readonly from: number; readonly columns: Columns } | undefined;
}

/** A step that was started. */
interface Begun {
  readonly trainer: Trainer;
  /** Its number, of the optimizer. */
  readonly step: number;
  /** Waits for its end. It may be asked for once. */
  readonly result: () => StepResult;
  /** The optimizer has taken as many steps as before it: it has failed, or was left out. */
  readonly leaveOut: () => void;
  /** It is known to have failed: nothing may be started behind it. */
  readonly hasFailed?: true;
}

export class DistributedModel {
  private session: Session | undefined;
  private attachedTo: TfModel | undefined;
  /** What runs on in a fit trains no more. */
  private isDetached = false;
  /** A layer was frozen for a while. */
  private mayThaw = false;
  /** Epochs of fit so far, with those that a continued training says were before. */
  private epochs = 0;
  /** What the last batch came to of which this process had a part of the rows. */
  private measured: readonly number[] | undefined;
  /** Weights of the rows that are evaluated now. */
  private readonly evaluated: EvaluatedRows = { weights: undefined };
  /** The step that was started before `fit` has asked for it. */
  private begun: (Begun & Pick<FitBatch, 'rows' | 'from'>) | undefined;

  constructor(
    private readonly user: UserModel,
    private readonly exchange: Exchange,
    private readonly seed: number,
    release: () => void,
  ) {
    const compile = user.compile.bind(user);
    user.compile = (args) => {
      compile(args);
      this.attach();
    };
    const dispose = user.dispose.bind(user);
    user.dispose = () => {
      release();
      return dispose();
    };
    try {
      if (trainedModel(user)?.lossFunctions) this.attach();
    } catch (error) {
      this.detach(); // a model that is refused is one of tf.js, as before
      throw error;
    }
  }

  /** The model is an ordinary one again, with the weights and the optimizer state of now. */
  detach(): void {
    this.isDetached = true;
    try {
      this.closeSession();
    } finally {
      delete (this.user as Partial<UserModel>).compile;
      delete (this.user as Partial<UserModel>).dispose;
      this.leaveTrained();
    }
  }

  /** Where servers have the parameters: the number by which they know the model, and the present rate of its optimizer. */
  served(): { readonly model: number; readonly rate: number } | undefined {
    const { trainer, weights, link, optimizer } = this.sessionOf(this.compiledModel());
    weights.takeUp();
    const model = trainer.serve?.(link.stepsNow());
    return model === undefined ? undefined : { model, rate: optimizer.learningRate };
  }

  /** A function that got this number has ended: what the servers have is read when somebody asks for it. */
  ended(served: number): void {
    this.session?.trainer.ended?.(served);
  }

  /** Reads what functions have learned. */
  takeUp(): void {
    this.session?.link.catchUp();
  }

  /** Where the strategy cuts models into stages: the names of the layers of each. */
  stages(): readonly (readonly string[])[] {
    return this.sessionOf(this.compiledModel()).trainer.stages ?? [];
  }

  private compiledModel(): TfModel {
    const model = trainedModel(this.user);
    if (model?.lossFunctions) return model;
    throw new ArgumentError(`the model ${this.user.name} is not compiled: call its compile first`);
  }

  /** @throws UnsupportedError for what can be refused before there are rows */
  private attach(): void {
    const model = trainedModel(this.user)!;
    readCompiled(this.user, model, this.seed);
    const rule = ruleFor(model.optimizer_!, namedWeights(this.user.layers));
    this.exchange.checkRule?.(rule);
    if (this.attachedTo === model) return;
    this.leaveTrained();
    this.attachedTo = model;
    model.makeTrainFunction = (): TrainFunction => (data) => this.train(model, data.map(given));
    this.attachEvaluation(model);
    const fitDataset = model.fitDataset.bind(model);
    model.fitDataset = async (dataset, args) => {
      this.exchange.course?.same(fitDatasetText(this.user.name, args));
      return fitDataset(dataset, args);
    };
    takeArrays(model, () => this.sessionOf(model).compiled, this.evaluated);
    const fitLoop = model.fitLoop.bind(model);
    model.fitLoop = async (_, data, ...more) => {
      const weights = weightsIn(model, data);
      const known = model.inputs.length + model.outputs.length;
      const given = data
        .slice(0, known + model.outputs.length)
        .map((tensor, i) => tensor && new RowTensor(tensor, i >= known && weights.training !== undefined));
      const columnsOf = (rows: Int32Array): Columns => given.map((column) => column?.column(rows));
      const count = data[0]!.shape[0]!;
      const places = tfc.range(0, count, 1, 'int32');
      const { isShared } = this.exchange;
      const isAhead = !isShared && !looksAtBatches(more[CALLBACKS]);
      const ofValidation = validationWeights(weights, count);
      if (ofValidation && Array.isArray(more[VALIDATION]) && more[VALIDATION].length > 0)
        more[VALIDATION] = [...(more[VALIDATION] as unknown[]), ofValidation];
      this.exchange.course?.same(fitText(this.user.name, count, more));
      const rows = new FitRows(count, Number(more[BATCH_SIZE] ?? BATCH_SIZE_DEFAULT), this.shuffling(more));
      const train: TrainFunction = ([batch]) => {
        const { 0: from, length: size } = valuesOf(batch!) as Int32Array;
        const numbers = rows.of(from!, size);
        const next = isAhead ? rows.after(from!) : undefined;
        return this.train(model, columnsOf(numbers), {
          rowsDigest: isShared ? crc32(new Uint8Array(numbers.buffer)) : 0,
          fit: { rows, from: from!, next: next && { from: next.from, columns: columnsOf(rows.of(next.from, next.size)) } },
        });
      };
      try {
        return await fitLoop(train, [places], ...more);
      } finally {
        places.dispose();
        ofValidation?.dispose();
        this.forgetBegun();
      }
    };
  }

  private attachEvaluation(model: TfModel): void {
    const evaluation = new Evaluation(model, (rows) => {
      const { trainer, weights, link } = this.sessionOf(model);
      weights.takeUp();
      return trainer.predict(rows, link.nextStep());
    });
    const { course } = this.exchange;
    model.makeTestFunction = () =>
      void (model.testFunction = course ? (data) => told(course, () => evaluation.test(data)) : evaluation.test);
    const [testLoop, predictLoop] = [model.testLoop.bind(model), model.predictLoop.bind(model)];
    // What tf.js does not take, it refuses itself.
    model.testLoop = (test, data, batchSize, verbose = 0, steps = undefined) => {
      if (verbose > 0 || steps != null) return testLoop(test, data, batchSize, verbose, steps);
      const { weights } = this.evaluated;
      const all = (): tfc.Scalar[] => evaluation.testAll(weights ? [...data, weights] : data, batchSize);
      return course ? told(course, all) : all();
    };
    model.predictLoop = (inputs, batchSize, verbose = false) => {
      const tensors = [inputs].flat();
      if (verbose || tensors[0]!.shape[0] === 0) return predictLoop(inputs, batchSize, verbose);
      const outputs = evaluation.predictAll(tensors, batchSize);
      return course ? toldOutputs(course, outputs) : outputs;
    };
  }

  /**
   * How the rows of an epoch are put in order: here and not by tf.js, since the rows of the batch after a batch have to be known, and processes must take the
   * same ones. With several processes the seed and the count of epochs decide, else chance, as in tf.js.
   * @param more arguments of `fitLoop`; that it shuffles is taken out
   */
  private shuffling(more: unknown[]): ((order: Int32Array) => void) | undefined {
    const shuffle = more[SHUFFLE] ?? true;
    if (!shuffle || shuffle === 'batch') return undefined; // what it does not have, tf.js refuses itself
    more[SHUFFLE] = false;
    if (!this.exchange.isShared) return (order) => tfc.util.shuffle(order);
    this.epochs = Math.max(this.epochs, Number(more[INITIAL_EPOCH] ?? 0));
    return (order) => fillPermutation(this.seed, this.epochs++, order.length, order);
  }

  private leaveTrained(): void {
    const model: Partial<TfModel> | undefined = this.attachedTo;
    delete model?.makeTrainFunction;
    delete model?.fitLoop;
    delete model?.fitDataset;
    delete model?.makeTestFunction;
    delete model?.testFunction;
    delete model?.testLoop;
    delete model?.predictLoop;
    for (const name of TAKING_ARRAYS) delete model?.[name];
    this.attachedTo = undefined;
  }

  private train(model: TfModel, columns: Columns, { rowsDigest = 0, fit }: { rowsDigest?: number; fit?: FitBatch } = {}): tfc.Scalar[] {
    if (!fit) this.settleBegun();
    const session = this.sessionOf(model);
    if (!session.trained.includes(true))
      throw new ArgumentError(
        `nothing of the model ${this.user.name} is trained: set trainable of a layer to true, and compile the model again`,
      );
    const begun = this.takeBegun(session, fit) ?? this.start(session, model, columns, rowsDigest);
    if (fit?.next && !begun.hasFailed) this.startNext(session, model, fit);
    const result = this.resultOf(begun);
    const { course } = this.exchange;
    if (course) {
      const values = valuesBy(course, 'what the step came to', () => this.measuredNow(model, columns, result).map(scalarOf));
      return values.map((value) => tfc.scalar(value));
    }
    return this.measuredNow(model, columns, result);
  }

  private measuredNow(model: TfModel, columns: Columns, result: StepResult): tfc.Scalar[] {
    const { rows } = result;
    // A process whose replicas train alone, and have no row of a small batch, has nothing new to say.
    if (rows.from === rows.to) return (this.measured ?? [0, ...model.metricsTensors.map(() => 0)]).map((value) => tfc.scalar(value));
    const measured = { rows, columns: targetsOf(model, columns), targets: result.targets, outputs: result.outputs };
    const measures = measure(model, measured);
    if (rows.to - rows.from < columns[0]!.shape[0]!) this.measured = [result.loss, ...measures.map((value) => value.dataSync()[0]!)];
    return [tfc.scalar(result.loss), ...measures];
  }

  private start({ compiled, trainer, weights, link, optimizer }: Session, model: TfModel, columns: Columns, rowsDigest: number): Begun {
    const targets = targetsOf(model, columns);
    checkWeights(model, compiled, targets);
    const [count] = columns[0]!.shape as [number];
    const batch = { ...batchOf(model, compiled, columns.slice(0, model.inputs.length) as Column[], targets, count), rowsDigest };
    const prepared = trainer.prepare?.(batch);
    weights.takeUp();
    const step = link.nextStep();
    if (!prepared)
      return {
        trainer,
        step,
        result: () => {
          const result = trainer.step(batch, step, optimizer.learningRate);
          link.stepped(step);
          return result;
        },
        leaveOut: () => undefined, // only a step that ends well is counted
      };
    const result = prepared.start(step, optimizer.learningRate);
    link.stepped(step); // whoever reads the optimizer now waits for the step
    return { trainer, step, result, leaveOut: () => link.stepped(step - 1) };
  }

  /** The threads go on with the next batch while tf.js keeps its books of this one. */
  private startNext(session: Session, model: TfModel, { rows, next }: FitBatch): void {
    const { from, columns } = next!;
    if (!session.trainer.prepare) return;
    try {
      this.begun = { ...this.start(session, model, columns, 0), rows, from };
    } catch {
      this.begun = undefined; // what is wrong with that batch is said when its turn comes
    }
  }

  private takeBegun({ trainer }: Session, fit: FitBatch | undefined): Begun | undefined {
    const { begun } = this;
    if (!fit || !begun) return undefined;
    if (begun.trainer !== trainer || begun.rows !== fit.rows || begun.from !== fit.from) {
      this.forgetBegun(); // of a fit beside this one
      return undefined;
    }
    this.begun = undefined;
    return begun;
  }

  /** A batch of somebody else comes between two of `fit`: the result of the one that was begun is kept, as its buffers are taken now. */
  private settleBegun(): void {
    const { begun } = this;
    if (!begun) return;
    try {
      const result = begun.result();
      const copies = (all: readonly Float32Array[]): Float32Array[] => all.map((values) => values.slice());
      const kept = { ...result, targets: copies(result.targets), outputs: copies(result.outputs) };
      this.begun = { ...begun, result: () => kept };
    } catch (error) {
      begun.leaveOut();
      const fail = (): never => {
        throw error;
      };
      this.begun = { ...begun, result: fail, leaveOut: () => undefined, hasFailed: true };
    }
  }

  private resultOf({ step, result, leaveOut }: Begun): StepResult {
    try {
      return result();
    } catch (error) {
      if (this.begun && this.begun.step > step) this.forgetBegun(); // it was left out
      leaveOut();
      throw error;
    }
  }

  /** A fit has ended before the batch that was started last: it counts, as weights and optimizer have it, and nobody asks for its loss. */
  private forgetBegun(): void {
    const { begun } = this;
    this.begun = undefined;
    try {
      begun?.result();
    } catch {
      begun?.leaveOut();
    }
  }

  /** What a model was compiled to may change between two batches. */
  private sessionOf(model: TfModel): Session {
    if (this.isDetached)
      throw new StrategyError(
        'STRATEGY_DISPOSED',
        `the model ${this.user.name} was released from its strategy, or disposed, while it was used: what had begun cannot go on`,
      );
    const { session } = this;
    if (session && session.compiledTo === model.lossFunctions && session.optimizer === model.optimizer_) {
      if (this.begun || !this.hasFrozen(session, model) || this.refreeze(session, model)) return session;
      this.mayThaw = true;
    }
    this.closeSession();
    this.session = this.openSession(model);
    return this.session;
  }

  /** A layer was frozen or thawed since the last step. */
  private hasFrozen({ trained }: Session, model: TfModel): boolean {
    const now = trainedNow(model);
    return now.some((isTrained, i) => isTrained !== trained[i]);
  }

  /** @returns false where the session has no gradient of what is trained now */
  private refreeze(session: Session, model: TfModel): boolean {
    const frozen = frozenIn(this.user, model);
    const isFrozen = new Set(frozen);
    if (!session.compiled.spec.freeze.every((path) => isFrozen.has(path))) return false;
    session.trainer.freeze(frozen);
    session.trained = trainedNow(model);
    return true;
  }

  private openSession(model: TfModel): Session {
    const compiled = readCompiled(this.user, model, this.seed, this.mayThaw);
    const optimizer = model.optimizer_ as TfOptimizer;
    const named = namedWeights(this.user.layers);
    const rule = ruleFor(optimizer, named);
    const { spec, format, frozen } = compiled;
    const trainer = this.trainerOf({ spec, format, rule, readsOutputs: model.metricsTensors.length > 0 });
    let weights: ModelWeights | undefined;
    try {
      if (frozen.length > 0) trainer.freeze(frozen);
      weights = new ModelWeights(trainer, named);
      const places = new Map(trainer.layout.variables.map((place) => [place.path, place]));
      const byWeight = new Map(named.map(({ path, weight }) => [weight, places.get(path)!]));
      const link = new OptimizerLink(optimizer, rule, trainer, trainedWeights(model.collectedTrainableWeights ?? [], byWeight));
      return { compiledTo: model.lossFunctions, optimizer, compiled, trainer, weights, link, trained: trainedNow(model) };
    } catch (error) {
      weights?.leave();
      trainer.close();
      throw error;
    }
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
    try {
      session.weights.leave();
      session.link.leave();
    } finally {
      session.trainer.close();
    }
  }
}

const given = (tensor: tfc.Tensor | null | undefined): Column | undefined => (tensor ? columnOf(tensor) : undefined);

function targetsOf({ inputs: { length: inputs }, outputs }: TfModel, columns: Columns): Measured['columns'] {
  return outputs.map((_, i) => ({ target: columns[inputs + i]!, weights: columns[inputs + outputs.length + i] }));
}

/** @throws ArgumentError for rows that do not fit the model */
function batchOf(
  model: TfModel,
  { format, losses }: Compiled,
  inputs: readonly Column[],
  targets: Measured['columns'],
  count: number,
): HostBatch {
  return {
    count,
    inputs: format.inputs.map(({ shape }, i) => filler(inputs[i]!, count, shape, `input ${model.inputNames[i]!}`)),
    targets: format.targets.map(({ shape }, i) => {
      const fill = filler(targets[i]!.target, count, shape, `target of output ${model.outputNames[i]!}`);
      const { name } = losses[i]!;
      if (!HINGES.has(name)) return fill;
      return (into) => {
        fill(into);
        if (into.includes(0)) throw new UnsupportedError(`loss ${name}`, 'its targets are −1 and 1, and this batch has a 0');
      };
    }),
    weights: targets[0]!.weights && filler(targets[0]!.weights, count, [], targets[0]!.weights.isOfRows ? 'sampleWeight' : 'classWeight'),
  };
}
