/**
 * What all strategies share. A strategy owns what computes, behind `Exchange`, and distributes models that a person builds and compiles with tf.js:
 * those that are compiled while `scope` runs, those that its function returns, and those that are given to `distribute`.
 */
import * as tfl from '@tensorflow/tfjs-layers';
import { ArgumentError, disposed, ForeignModelError, ScopeError } from './errors.js';
import type { Exchange } from './exchange.js';
import { DistributedModel } from './model/distributed-model.js';
import { isModel, type UserModel } from './model/tf-model.js';

export interface StrategyOptions {
  /** Seeds dropout and noise; 0 by default. */
  readonly seed?: number;
}

/** Which strategy distributes a model. */
const owners = new WeakMap<object, Strategy>();

export abstract class Strategy {
  private readonly models = new Map<UserModel, DistributedModel>();
  private isDisposed = false;

  protected constructor(
    private readonly exchange: Exchange,
    private readonly options: StrategyOptions,
  ) {}

  /** Replicas that share each batch. */
  get numReplicasInSync(): number {
    return this.exchange.replicas;
  }

  /**
   * Runs `build` and distributes the models that it compiles or returns, also those in an array or in an object.
   * @throws ScopeError for an asynchronous function; what it has compiled stays as it is
   */
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
  distribute<M extends tfl.LayersModel>(model: M): M {
    this.check();
    if (!isModel(model)) throw new ArgumentError('distribute takes a model of tf.js (tf.LayersModel), made by tf.sequential or tf.model');
    if (!(model instanceof tfl.LayersModel)) throw new ForeignModelError((model as UserModel).name);
    const owner = owners.get(model);
    if (owner === this) return model;
    if (owner) throw new ArgumentError(`the model ${model.name} is distributed by another strategy: dispose that one first`);
    const distributed = new DistributedModel(model, this.exchange, this.options.seed ?? 0, () => this.release(model));
    this.models.set(model, distributed);
    owners.set(model, this);
    return model;
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

  /** Ends what computes. Models keep their weights and their optimizer state, and are trained by tf.js again. */
  async dispose(): Promise<void> {
    if (this.isDisposed) return;
    this.isDisposed = true;
    try {
      for (const model of [...this.models.keys()]) this.release(model);
    } finally {
      await this.exchange.dispose();
    }
  }

  private check(): void {
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
