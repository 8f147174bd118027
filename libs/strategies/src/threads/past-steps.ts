/** Steps and predictions where processes may be started again (members/course.ts): they are lines of the journal, and one that was started again does them not. */
import type { FlatValues, HostBatch, StepResult } from '../exchange.js';
import type { MemberCourse } from '../members/course.js';
import { replicaError } from './answers.js';
import type { FromThread } from './protocol.js';
import type { ThreadPool } from './thread-pool.js';

/** What others have completed, of a step or prediction in which a member was lost. */
export const outcome =
  <T>(step: number, result: () => T) =>
  (failures: readonly FromThread[]): T => {
    if (failures.length > 0) throw replicaError(failures, step - 1);
    return result();
  };

interface Step {
  readonly model: number;
  readonly step: number;
}

/** @param past what this process counts, where it was not there */
export function stepOf(
  course: MemberCourse,
  { model, step, rate, batch }: Step & { readonly rate: number; readonly batch: Pick<HostBatch, 'count' | 'rowsDigest'> },
  live: () => StepResult,
  past: () => void,
): StepResult {
  const { count, rowsDigest = 0 } = batch;
  const what = `step ${step} of model ${model}: ${count} examples, rate ${rate}, rows ${rowsDigest.toString(16)}`;
  return course.operation(what, live, () => {
    past();
    return { loss: 0, rows: { from: 0, to: count }, targets: [], outputs: [], isPast: true };
  });
}

/** @param floats of each output for one example @returns what replicas answered; where nobody has that any more zeros, in place of which the journal says what followed */
export function predictionOf(
  course: MemberCourse,
  { model, step, count, floats }: Step & { readonly count: number; readonly floats: readonly number[] },
  live: () => Float32Array[],
): Float32Array[] {
  const what = `a prediction of model ${model} after step ${step - 1}: ${count} examples`;
  const unknown = (): Float32Array[] => floats.map((each) => new Float32Array(each * count));
  const copies = (outputs: readonly Float32Array[]): Float32Array[] => outputs.map((values) => values.slice());
  return course.operation(what, live, ({ outputs }) => (outputs ? [...outputs] : unknown()), { outputs: copies });
}

/** Values that are written, and that nobody may read as long as this process goes through what the others did. */
export function readable(
  values: FlatValues,
  what: string,
  { course, pool }: { readonly course: MemberCourse | undefined; readonly pool: ThreadPool },
): FlatValues {
  if (!course || !pool.isOpen || !course.isCatchingUp) return values;
  return {
    slice: () => course.refuseReading(what),
    set: (given, offset) => values.set(given, offset),
  };
}
