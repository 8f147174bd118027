/**
 * What all strategies share. A strategy owns what computes, behind `Exchange`, and distributes models that a person builds and compiles with tf.js:
 * those that are compiled while `scope` runs, those that its function returns, and those that are given to `distribute`.
 */
import * as tfl from '@tensorflow/tfjs-layers';
import { ArgumentError, disposed, ForeignModelError, ScopeError, UnsupportedError } from './errors.js';
import type { Exchange } from './exchange.js';
import { DistributedModel } from './model/distributed-model.js';
import type { TakesArrays } from './model/given-arrays.js';
import { isModel, type UserModel } from './model/tf-model.js';
import { gather, reduce, type Share } from './replicas/combine.js';
import {
  distributed,
  distributedFromFunction,
  type BatchSource,
  type DistributedDataset,
  type InputContext,
  type LocalReplicas,
} from './replicas/distributed-dataset.js';
import {
  encode,
  hasPerReplica,
  inCommon,
  joined,
  PerReplica,
  type Encoded,
  type ReduceOp,
  type ValueContext,
} from './replicas/per-replica.js';
import { functionOf, type ReplicaFunction } from './replicas/replica-function.js';
import type { RunStrategy } from './run-options.js';
import type { StrategyOptions } from './strategy-options.js';

/** Which strategy distributes a model. */
const owners = new WeakMap<object, Strategy>();

/** @internal The strategy that distributes a model. */
export const strategyOf = (model: object): Strategy | undefined => owners.get(model);

/** @internal This process was started again, and goes through what the others did meanwhile. */
export const isCatchingUpIn = (strategy: Strategy): boolean => strategy[CATCHING_UP];

/** @internal Which replicas this process has. */
export const localOf = (strategy: Strategy): LocalReplicas => strategy[LOCAL];

const LOCAL = Symbol('local');
const CATCHING_UP = Symbol('catching up');

export abstract class Strategy {
  private readonly models = new Map<UserModel, DistributedModel>();
  private isDisposed = false;

  protected constructor(
    private readonly exchange: Exchange,
    /** As they were given. */
    protected readonly options: StrategyOptions,
  ) {}

  /** Replicas that share each batch. */
  get numReplicasInSync(): number {
    return this.exchange.replicas;
  }

  /**
   * Runs `build` and distributes the models that it compiles or returns, also those in an array or in an object.
   * @throws ScopeError for an asynchronous function; what it has compiled stays as it is
   */
  scope<M extends tfl.LayersModel>(build: () => M): M & TakesArrays;
  scope<T>(build: () => T): T;
  scope<T>(build: () => T): T {
    this.check();
    const [result, compiled] = whileCompiling(build);
    if (isPromise(result)) {
      result.then(undefined, () => undefined); // what it fails with later has no reader
      throw new ScopeError();
    }
    for (const model of compiled) this.distribute(model);
    this.claim(result);
    return result;
  }

  /**
   * Distributes a model, compiled already or not, and gives it back.
   * @throws UnsupportedError for a model that the engine does not train
   * @throws ForeignModelError for one of another copy of tf.js
   */
  distribute<M extends tfl.LayersModel>(model: M): M & TakesArrays {
    this.check();
    if (!isModel(model)) throw new ArgumentError('distribute takes a model of tf.js (tf.LayersModel), made by tf.sequential or tf.model');
    if (!(model instanceof tfl.LayersModel)) throw new ForeignModelError((model as UserModel).name);
    const owner = owners.get(model);
    if (owner === this) return model as M & TakesArrays;
    if (owner) throw new ArgumentError(`the model ${model.name} is distributed by another strategy: dispose that one first`);
    const distributed = new DistributedModel(model, this.exchange, this.options.seed ?? 0, () => this.release(model));
    this.models.set(model, distributed);
    owners.set(model, this);
    return model as M & TakesArrays;
  }

  /**
   * Gives back the memory that a model takes in the compute threads. It keeps its weights and optimizer state, and is an ordinary model of
   * tf.js again; `model.dispose()` releases it too. A model that is not distributed by this strategy is left alone.
   */
  release(model: tfl.LayersModel): void {
    const distributed = this.models.get(model);
    if (!distributed) return;
    this.models.delete(model);
    owners.delete(model);
    distributed.detach();
  }

  /**
   * Calls a function of a module in every replica, at the same time, and gives what the replicas gave back: its structure, with `PerReplica` values in
   * the leaves. Tensors come as tensors of this thread's backend, which the program disposes.
   * @param args for the function, after its ReplicaContext; where a `PerReplica` stands, each replica gets its own value
   * @throws FunctionError for a closure, and for what compute threads cannot load
   * @throws ReplicaError when the function throws in a replica; what replicas keep is as it was left
   */
  async run(fn: ReplicaFunction, args: readonly unknown[] = []): Promise<unknown> {
    this.check();
    const named = functionOf(fn);
    if (!Array.isArray(args)) throw new ArgumentError('run takes the arguments of the function as an array');
    const { from, to } = this.exchange.local;
    const own = (replica: number) => (value: unknown) => {
      const { values } = value as PerReplica;
      if (values.length === to - from) return values[replica];
      throw new ArgumentError(`run was given a value of ${values.length} replicas, and this process has ${to - from}`);
    };
    const encoded = (arg: unknown, i: number, replica: number): Encoded => {
      try {
        return encode(arg, own(replica), `argument ${i}`);
      } catch (cause) {
        if (cause instanceof TypeError) throw new ArgumentError(cause.message);
        throw cause;
      }
    };
    const all = args.map((arg, i) => {
      // What replicas have in common is read and sent once for all of them.
      if (!hasPerReplica(arg)) return Array<Encoded>(to - from).fill(inCommon(encoded(arg, i, 0)));
      return Array.from({ length: to - from }, (_, replica) => encoded(arg, i, replica));
    });
    return joined(this.exchange.call(named, (replica) => all.map((values) => values[replica]!)));
  }

  /**
   * Adds values of the replicas up, or takes their mean.
   * @param axis of the values that is reduced too; the mean is then over all elements, however many each replica has
   * @throws ArgumentError for the sum of a value that is no `PerReplica`, and over several processes for its mean too
   */
  reduce(op: ReduceOp, value: unknown, axis: number | null = null): unknown {
    return reduce(op, value, axis, this.combined());
  }

  /** Joins values of the replicas along an axis. Over several processes, as in reduce, of all replicas: every process calls it. */
  gather(value: unknown, axis: number): unknown {
    return gather(value, axis, this.combined());
  }

  /** The values of the replicas of this process, in their order. tf.distribute calls it experimental_local_results. */
  localResults(value: unknown): readonly unknown[] {
    return value instanceof PerReplica ? value.values : [value];
  }

  /** A value that differs between replicas: what the function gives for each replica of this process. tf.distribute calls it experimental_distribute_values_from_function. */
  distributeValuesFromFunction<T>(make: (context: ValueContext) => T): PerReplica<T> {
    this.check();
    if (typeof make !== 'function') throw new ArgumentError('distributeValuesFromFunction takes a function of the context of a replica');
    const { from, to, replicas } = this.exchange.local;
    const contextOf = (i: number): ValueContext => ({ replicaIdInSyncGroup: from + i, numReplicasInSync: replicas });
    const values = Array.from({ length: to - from }, (_, i) => make(contextOf(i)));
    if (values.some(isPromise)) throw new ArgumentError('the function of distributeValuesFromFunction must not be asynchronous');
    return new PerReplica(values);
  }

  /** Cuts each batch of a dataset into parts for the replicas. In several processes all have the same dataset. */
  distributeDataset(dataset: BatchSource): DistributedDataset {
    return distributed(dataset, this.exchange.local);
  }

  /**
   * Each replica takes whole batches, one after the other, of the dataset that the function makes for this process. Over several processes all of them
   * take as many steps: where one has no batch left, its replicas get batches without rows.
   */
  distributeDatasetsFromFunction(make: (context: InputContext) => BatchSource | Promise<BatchSource>): DistributedDataset {
    return distributedFromFunction(make, this.exchange.local, this.combined().share);
  }

  /** @internal */
  get [LOCAL](): LocalReplicas {
    return this.exchange.local;
  }

  /** @internal */
  get [CATCHING_UP](): boolean {
    return this.exchange.course?.isCatchingUp ?? false;
  }

  /** @internal What distributes a model of this strategy. */
  protected distributedModel(model: unknown): DistributedModel | undefined {
    return isModel(model) ? this.models.get(model) : undefined;
  }

  /**
   * What this strategy is as a run of the service: `client.train` asks for it.
   * @throws UnsupportedError for one that the service does not have, and naming the options that were given and that the service cannot do
   */
  toRun(): RunStrategy {
    throw new UnsupportedError(
      this.constructor.name,
      "the service has no such strategy: give that of a run, such as { kind: 'parameter-server' }",
    );
  }

  /** Ends what computes. Models keep their weights and their optimizer state, and are trained by tf.js again. */
  async dispose(): Promise<void> {
    if (this.isDisposed) return;
    this.isDisposed = true;
    const faults: unknown[] = [];
    for (const model of [...this.models.keys()])
      try {
        this.release(model);
      } catch (error) {
        faults.push(error); // the other models are released all the same
      }
    await this.exchange.dispose();
    if (faults.length > 0) throw faults[0];
  }

  /** The replicas whose values are combined, and how those of other processes come, if there are any. */
  private combined(): { readonly replicas: number; readonly share: Share | undefined } {
    this.check();
    const { replicas, isShared } = this.exchange;
    return { replicas, share: isShared ? (what, values) => this.exchange.shareValues(what, values) : undefined };
  }

  protected check(): void {
    if (this.isDisposed) throw disposed();
  }

  private claim(value: unknown): void {
    const values: unknown[] = Array.isArray(value)
      ? value
      : typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
        ? Object.values(value)
        : [value];
    for (const each of values) if (isModel(each)) this.distribute(each);
  }
}

const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof (value as { readonly then?: unknown } | null | undefined)?.then === 'function';

type Compiling = { compile(args: tfl.ModelCompileArgs): void };

/** Notes who is compiled meanwhile. The prototypes are as before when it returns. */
function whileCompiling<T>(build: () => T): [result: T, compiled: UserModel[]] {
  const compiled = new Set<UserModel>();
  const prototypes: Compiling[] = [tfl.LayersModel.prototype, tfl.Sequential.prototype];
  const originals = prototypes.map(({ compile }) => compile);
  prototypes.forEach((prototype, i) => {
    prototype.compile = function compile(this: UserModel, args: tfl.ModelCompileArgs): void {
      originals[i]!.call(this, args);
      compiled.add(this);
    };
  });
  try {
    const result = build();
    // A Sequential model compiles the one inside.
    const inner = new Set<unknown>([...compiled].map(({ model }) => model));
    return [result, [...compiled].filter((model) => !inner.has(model))];
  } finally {
    prototypes.forEach((prototype, i) => (prototype.compile = originals[i]!));
  }
}
