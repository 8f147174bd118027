/**
 * What all strategies share. A strategy owns what computes, behind `Exchange`, and distributes models that a person builds and compiles with tf.js:
 * those that are compiled while `scope` runs, those that its function returns, and those that are given to `distribute`.
 */
import * as tfl from '@tensorflow/tfjs-layers';
import { ArgumentError, disposed } from './errors.js';
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
   * Runs `build` and distributes the models that it compiles or returns, also those in an array or in an object. Of an asynchronous function the
   * models that it resolves to are distributed.
   */
  scope<T>(build: () => T): T {
    this.check();
    const [result, compiled] = whileCompiling(build);
    for (const model of compiled) this.distribute(model);
    if (result instanceof Promise)
      return result.then((value: unknown) => {
        this.claim(value);
        return value;
      }) as T;
    this.claim(result);
    return result;
  }

  /** Distributes a model, compiled already or not, and gives it back. @throws UnsupportedError for a model that the engine does not train */
  distribute<M extends tfl.LayersModel>(model: M): M {
    this.check();
    if (!isModel(model)) throw new ArgumentError('distribute takes a model of tf.js (tf.LayersModel), made by tf.sequential or tf.model');
    const owner = owners.get(model);
    if (owner === this) return model;
    if (owner) throw new ArgumentError(`the model ${model.name} is distributed by another strategy: dispose that one first`);
    this.models.set(model, new DistributedModel(model, this.exchange, this.options.seed ?? 0));
    owners.set(model, this);
    return model;
  }

  /** Ends what computes. Models keep their weights and their optimizer state, and are trained by tf.js again. */
  async dispose(): Promise<void> {
    if (this.isDisposed) return;
    this.isDisposed = true;
    try {
      for (const [model, distributed] of this.models) {
        owners.delete(model);
        distributed.detach();
      }
    } finally {
      this.models.clear();
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
