/** Gives functions of modules to the workers of a ParameterServerStrategy: tf.distribute.coordinator.ClusterCoordinator. */
import { processClock } from '@paceline/collectives';
import * as tfl from '@tensorflow/tfjs-layers';
import { ArgumentError, disposed, FunctionError, MemberError, ReplicaError, StrategyError, UnsupportedError } from '../errors.js';
import { ServedStrategy } from '../parameter-server.js';
import { decode, encode, mapLeaves, type Encoded } from '../replicas/per-replica.js';
import { functionOf, type NamedFunction, type ReplicaFunction } from '../replicas/replica-function.js';
import { packed, unpacked, type Argument, type DatasetSource, type FunctionCall } from '../servers/function-protocol.js';
import { CODES } from '../servers/messages.js';
import { CallFailed } from '../servers/server-link.js';
import { LONGEST_MS } from '../thread-strategies.js';
import { ClosureQueue, WorkerGone } from './closure-queue.js';

export interface CoordinatorOptions {
  /** A function that has not ended after so long is given to another worker, in milliseconds; an hour by default. */
  readonly deadlineMs?: number;
}

interface Closure extends NamedFunction {
  readonly deadlineMs: number;
  readonly args: readonly Argument[];
  readonly models: readonly GivenModel[];
}

/** A model among the arguments, and the number by which the servers know it. */
interface GivenModel {
  readonly model: tfl.LayersModel;
  readonly served: number;
}

/** A dataset of every worker's own. */
export class PerWorkerDataset {
  /** @internal */
  constructor(readonly source: DatasetSource) {}
}

/** What a function will have given back. tf.distribute.coordinator.RemoteValue. */
export class RemoteValue {
  /** @internal */
  constructor(private readonly value: Promise<Encoded>) {}

  /** Tensors are new ones, which the program disposes. @throws the failure of the function */
  async fetch(): Promise<unknown> {
    return decode(await this.value);
  }
}

const MOST_WAITING = 65_536;
/** As a round that kills its worker: the function is at fault. */
const MOST_LOSSES = 5;
const REVIVE_MS = 500;
const LONELY_MS = 60_000;

/** What all coordinators of a strategy have in common: a worker takes one function at a time, and knows datasets by their numbers. */
class Schedule {
  readonly queue: ClosureQueue<Closure, Encoded>;
  /** Models that functions may have updated since they were last taken up. */
  readonly given = new Set<tfl.LayersModel>();
  datasets = 0;

  private constructor(private readonly strategy: ServedStrategy) {
    const { workers, coordinated } = strategy;
    this.queue = new ClosureQueue<Closure, Encoded>(
      {
        call: (worker, closure) => this.call(worker, closure),
        revive: (worker) =>
          coordinated.revive(worker).then(
            () => true,
            (error: unknown) => {
              if (error instanceof CallFailed) return false;
              throw error;
            },
          ),
        lostBy: (lost, message, cause) =>
          new MemberError(
            lost.map((worker) => coordinated.workerTask(worker)),
            message,
            { cause },
          ),
        after: (ms, act) => processClock.after(ms, act),
      },
      { workers, mostWaiting: MOST_WAITING, mostLosses: MOST_LOSSES, reviveMs: REVIVE_MS, lonelyMs: LONELY_MS },
    );
    strategy.onDispose(() => this.queue.close(disposed()));
  }

  private static readonly all = new WeakMap<ServedStrategy, Schedule>();

  static of(strategy: ServedStrategy): Schedule {
    const known = Schedule.all.get(strategy) ?? new Schedule(strategy);
    Schedule.all.set(strategy, known);
    return known;
  }

  private async call(worker: number, { module, name, args, models, deadlineMs }: Closure): Promise<Encoded> {
    const call: FunctionCall = { module, name, args, workerIndex: worker, numWorkers: this.strategy.workers };
    try {
      return unpacked<Encoded>(await this.strategy.coordinated.call(worker, packed(call), deadlineMs));
    } catch (error) {
      if (!(error instanceof CallFailed)) throw error;
      if (error.isGone) throw new WorkerGone(error.message);
      if (error.code === CODES.function) throw new FunctionError(error.message);
      if (error.code === CODES.replica) throw new ReplicaError(worker, undefined, undefined, error.message);
      throw new StrategyError('STRATEGY_THREAD', error.message);
    } finally {
      // A function that failed may have sent gradients before.
      for (const { model, served } of models) this.strategy.ended(model, served);
    }
  }
}

/** Several of one strategy are as one: they share the functions that wait, their failures and the datasets. */
export class ClusterCoordinator {
  private readonly shared: Schedule;
  private readonly deadlineMs: number;

  /** @param strategy a ParameterServerStrategy or a HybridStrategy */
  constructor(
    private readonly strategy: ServedStrategy,
    { deadlineMs = 3_600_000 }: CoordinatorOptions = {},
  ) {
    if (!(strategy instanceof ServedStrategy))
      throw new ArgumentError(
        'ClusterCoordinator takes a ParameterServerStrategy or a HybridStrategy: other strategies have no workers that take functions, and run() calls functions in their replicas',
      );
    if (strategy.workersPerGroup > 1)
      throw new UnsupportedError(
        'ClusterCoordinator with groups of several workers',
        'a function reads and updates the parameters at the servers by itself, and the workers of a group get theirs from its first one: leave workersPerGroup out',
      );
    if (!Number.isInteger(deadlineMs) || deadlineMs < 1 || deadlineMs > LONGEST_MS)
      throw new ArgumentError(
        `ClusterCoordinator: deadlineMs must be a whole number of milliseconds from 1 to ${LONGEST_MS}, not ${String(deadlineMs)}`,
      );
    this.deadlineMs = deadlineMs;
    this.shared = Schedule.of(strategy);
  }

  private get queue(): Schedule['queue'] {
    return this.shared.queue;
  }

  /**
   * Has a worker call a function of a module, with a WorkerContext and these arguments. It does not wait.
   * @param args data, models of the strategy (the function gets ServedParameters), datasets of createPerWorkerDataset (it gets their iterator)
   * @throws the first failure of a function since the last one was thrown
   */
  schedule(fn: ReplicaFunction, args: readonly unknown[] = []): RemoteValue {
    this.throwFailure();
    if (this.queue.isFull) throw new ArgumentError(`schedule: ${MOST_WAITING} functions wait already: await join() before`);
    const named = functionOf(fn);
    if (!Array.isArray(args)) throw new ArgumentError('schedule takes the arguments of the function as an array');
    const models: GivenModel[] = [];
    const { deadlineMs } = this;
    return new RemoteValue(this.queue.put({ ...named, args: args.map((arg, i) => this.argument(arg, i, models)), models, deadlineMs }));
  }

  /** When all functions have ended. The models have what was learned then. @throws the first failure of a function */
  async join(): Promise<void> {
    await this.queue.done();
    const { given } = this.shared;
    for (const model of given) this.strategy.takeUp(model);
    given.clear();
    this.throwFailure();
  }

  /** Whether all functions have ended. @throws the first failure of a function */
  done(): boolean {
    this.throwFailure();
    return this.queue.isDone;
  }

  /** The values of RemoteValue, also in arrays and objects. */
  async fetch(value: unknown): Promise<unknown> {
    const values = new Map<RemoteValue, unknown>();
    mapLeaves(value, (leaf) => (leaf instanceof RemoteValue ? values.set(leaf, undefined) : leaf));
    for (const remote of values.keys()) values.set(remote, await remote.fetch());
    return mapLeaves(value, (leaf) => (leaf instanceof RemoteValue ? values.get(leaf) : leaf));
  }

  /** Each worker makes a dataset of its own, by a function of a module, when a function first asks for it; a worker that is started again makes it anew. */
  createPerWorkerDataset(fn: ReplicaFunction, args: readonly unknown[] = []): PerWorkerDataset {
    return new PerWorkerDataset({ ...functionOf(fn), id: this.shared.datasets++, args: args.map((arg, i) => encoded(arg, i)) });
  }

  private throwFailure(): void {
    const { failure } = this.queue;
    this.queue.failure = undefined;
    if (failure) throw failure;
  }

  private argument(arg: unknown, i: number, models: GivenModel[]): Argument {
    if (arg instanceof PerWorkerDataset) return { kind: 'dataset', dataset: arg.source };
    if (!(arg instanceof tfl.LayersModel)) return { kind: 'data', value: encoded(arg, i) };
    const served = this.strategy.served(arg);
    models.push({ model: arg, served: served.model });
    this.shared.given.add(arg);
    return { kind: 'model', ...served };
  }
}

function encoded(value: unknown, i: number): Encoded {
  try {
    return encode(value, undefined, `argument ${i}`);
  } catch (cause) {
    if (cause instanceof TypeError) throw new ArgumentError(cause.message);
    throw cause;
  }
}
