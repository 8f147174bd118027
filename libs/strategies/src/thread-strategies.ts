/** The strategies over compute threads of this process, and over processes of devices, each of which has a thread here. */
import { availableParallelism } from 'node:os';
import { LIMITS } from '@paceline/spec';
import { chosenDevices, devicesOf } from './devices/device-names.js';
import { DeviceProcesses, type DeviceReport } from './devices/device-processes.js';
import { ArgumentError } from './errors.js';
import { checkKeys } from './known-options.js';
import { asRun, type RunStrategy } from './run-options.js';
import { Strategy } from './strategy.js';
import type { MirroredOptions, OneDeviceOptions, ThreadStrategyOptions } from './strategy-options.js';
import { ThreadExchange } from './threads/thread-exchange.js';

export interface Counts {
  readonly threads: number;
  readonly replicas: number;
  readonly deadlineMs: number;
}

const DEADLINE_MS = 60_000;
export const THREADS_MAX = LIMITS.threads;
export const LONGEST_MS = 86_400_000;

/** One replica in one compute thread. */
export class OneDeviceStrategy extends Strategy {
  constructor(options: OneDeviceOptions = {}) {
    const counts = countsOf(options, 'OneDeviceStrategy', ['seed', 'deadlineMs'], { threads: 1, replicas: 1 });
    super(new ThreadExchange({ ...counts, updaters: 1, loadsEarly: true }), options);
  }

  /** One replica, on one worker. */
  override toRun(): RunStrategy {
    return asRun('OneDeviceStrategy', this.options, { strategy: { kind: 'one-device' }, replicas: 1 });
  }
}

/**
 * Every thread, or the process of every device, keeps a copy of the parameters; gradients are summed and applied by all threads of this process together, each its
 * range of chunks.
 */
export class MirroredStrategy extends Strategy {
  private readonly processes: DeviceProcesses | undefined;

  /**
   * @throws ArgumentError for an option that has no meaning, and for a device that is not here
   * @throws EngineError where TensorFlow is asked for and not installed
   */
  constructor(options: MirroredOptions = {}) {
    const { counts, processes } = mirrored(options);
    super(new ThreadExchange({ ...counts, updaters: counts.threads, loadsEarly: true, devices: processes }), options);
    this.processes = processes;
  }

  /** The processes of the devices, in the order of their replicas, and what went to and fro; none where replicas are compute threads. */
  get devices(): readonly DeviceReport[] {
    return this.processes?.reports ?? [];
  }

  /** One worker that holds the parameters itself. */
  override toRun(): RunStrategy {
    return asRun('MirroredStrategy', this.options, onOneWorker(this.numReplicasInSync));
  }
}

/** The parameters have one place, where one thread sums and applies the gradients; every thread loads them from there for each step. */
export class CentralStorageStrategy extends Strategy {
  constructor(options: ThreadStrategyOptions = {}) {
    const counts = countsOf(options, 'CentralStorageStrategy', ['threads', 'replicas', 'seed', 'deadlineMs']);
    super(new ThreadExchange({ ...counts, updaters: 1, loadsEarly: false }), options);
  }

  /** The worker of a run of kind mirrored updates the parameters in one place, from which all of its threads load them. */
  override toRun(): RunStrategy {
    return asRun('CentralStorageStrategy', this.options, onOneWorker(this.numReplicasInSync));
  }
}

const MIRRORED: readonly string[] = ['threads', 'replicas', 'seed', 'deadlineMs', 'engine', 'devices'];

function mirrored(options: MirroredOptions): { readonly counts: Counts; readonly processes: DeviceProcesses | undefined } {
  const name = 'MirroredStrategy';
  checkKeys(name, options, MIRRORED);
  const devices = chosenDevices(name, options, devicesOf(Math.min(availableParallelism(), THREADS_MAX)));
  if (!devices) return { counts: countsOf(options, name, MIRRORED), processes: undefined };
  if (devices.length > THREADS_MAX) throw new ArgumentError(`${name}: there are at most ${THREADS_MAX} devices, not ${devices.length}`);
  if (options.replicas !== undefined && options.replicas < devices.length)
    throw new ArgumentError(
      `${name}: ${devices.length} devices for ${options.replicas} replicas would leave devices without work: name as many at most`,
    );
  const counts = countsOf({ ...options, replicas: options.replicas ?? devices.length, threads: devices.length }, name, MIRRORED);
  return { counts, processes: new DeviceProcesses(devices, counts.deadlineMs) };
}

/** Where the number of threads was not given it is that of the cores, there as here. */
const onOneWorker = (replicas: number): RunStrategy => ({ strategy: { kind: 'mirrored' }, replicas });

export function countsOf(
  options: ThreadStrategyOptions,
  name: string,
  known: readonly string[],
  fixed?: { readonly threads: number; readonly replicas: number },
): Counts {
  checkKeys(name, options, known);
  const whole = (key: keyof ThreadStrategyOptions, least: number, most: number): number | undefined => {
    const value: unknown = options[key];
    if (value === undefined || (Number.isInteger(value) && Number(value) >= least && Number(value) <= most))
      return value as number | undefined;
    throw new ArgumentError(`${name}: ${key} must be a whole number from ${least} to ${most}, not ${String(value)}`);
  };
  whole('seed', 0, LIMITS.seedMax);
  const deadlineMs = whole('deadlineMs', 1, LONGEST_MS) ?? DEADLINE_MS;
  if (fixed) return { threads: fixed.threads, replicas: fixed.replicas, deadlineMs };
  const given = { threads: whole('threads', 1, THREADS_MAX), replicas: whole('replicas', 1, LIMITS.replicas) };
  const cores = Math.min(availableParallelism(), THREADS_MAX);
  const threads = given.threads ?? Math.min(cores, given.replicas ?? cores);
  const replicas = given.replicas ?? threads;
  if (threads > replicas)
    throw new ArgumentError(
      `${name}: ${threads} threads for ${replicas} replicas would leave threads without work: use at most as many threads`,
    );
  return { threads, replicas, deadlineMs };
}
