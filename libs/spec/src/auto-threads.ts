/**
 * `strategy: auto`: the compute threads that each worker might have, from the cores that workers report and from the step that one thread has taken. The
 * replicas of a worker go to its threads in contiguous parts, so the step takes as long as the largest part.
 */
import { LIMITS } from './limits.js';

/** What is measured of workers that have one compute thread each. */
export interface MeasuredWorkers {
  readonly stepMs: number;
  /** Workers that compute. */
  readonly workers: number;
  /** That each worker may use, at least. */
  readonly cores: number;
  /** Workers with work on one machine, at most, which share its cores. Left out: one. */
  readonly workersOnMachine?: number | undefined;
}

export interface ThreadedStep {
  /** Of each worker. */
  readonly threads: number;
  /** Expected. */
  readonly stepMs: number;
}

/** Of what threads would save alone: they share caches, and wait for each other. A second thread makes the CNN of docs/performance.md 1.6 times as fast. */
const COUNTED_SHARE = 0.75;

/** Cores that a worker has for its threads. */
export const coresOf = ({ cores, workersOnMachine = 1 }: Pick<MeasuredWorkers, 'cores' | 'workersOnMachine'>): number =>
  Math.max(1, Math.floor(cores / Math.max(1, workersOnMachine)));

/** Numbers of threads above one that shorten a step, the shortest step first; of equal steps the one with the fewest threads. */
export function threadedSteps(replicas: number, measured: MeasuredWorkers): ThreadedStep[] {
  const { stepMs, workers } = measured;
  const ofWorker = Math.ceil(replicas / workers);
  const most = Math.min(ofWorker, coresOf(measured), LIMITS.threads);
  const steps: ThreadedStep[] = [];
  for (let largest = Math.ceil(ofWorker / Math.max(1, most)); largest < ofWorker; largest++) {
    const threads = Math.ceil(ofWorker / largest);
    if (steps.at(-1)?.threads === threads) continue; // more threads with parts of another size
    steps.push({ threads, stepMs: stepMs * (1 - COUNTED_SHARE * (1 - largest / ofWorker)) });
  }
  return steps;
}
