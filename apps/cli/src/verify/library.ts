/** A recorded training in processes of the library. */
import { recordedProgram } from '@paceline/models';
import { UserError } from '@paceline/runtime/user-error';
import { trainInProcesses, type RecordedProgram } from '@paceline/strategies/recorded';
import { compareNumbers, type Compared, type PlannedTraining } from './training.js';
import type { LibraryTarget, Sizes } from './targets.js';

export const programOf = ({ recording, spec, variables }: PlannedTraining): Promise<RecordedProgram> =>
  recordedProgram(recording, spec, variables);

/** @throws UserError LIBRARY_FAILED with what a process says; LIBRARY_PROCESSES_DIFFER when they end with other bits */
export async function replayInLibrary(
  target: LibraryTarget,
  { workers: processes, servers }: Sizes,
  plan: PlannedTraining,
  program: RecordedProgram,
  tolerance: number,
  signal: AbortSignal,
): Promise<Compared> {
  const { kind, communication, workersPerGroup } = target;
  const engine = kind === 'mirrored' && plan.spec.engine === 'tensorflow' ? 'tensorflow' : undefined;
  const failed = (cause: Error): never => {
    throw new UserError('LIBRARY_FAILED', `${plan.recording.file}: ${target.name}: ${cause.message}`, { exit: 'unsuccessful', cause });
  };
  const results = await trainInProcesses(
    { ...program, replicas: Math.max(program.replicas, processes) },
    { kind, communication, engine, processes, servers, ...(workersPerGroup === undefined ? {} : { workersPerGroup }) },
    { signal },
  ).catch(failed);
  const [first, ...others] = results;
  for (const other of others)
    if (other.losses.join() !== first!.losses.join() || other.weights.some((values, i) => !sameBits(values, first!.weights[i]!)))
      throw new UserError('LIBRARY_PROCESSES_DIFFER', `${plan.recording.file}: ${target.name}: the processes end with different bits.`, {
        exit: 'unsuccessful',
      });
  return compareNumbers(plan.recording, first!.losses, first!.weights, tolerance);
}

const sameBits = (a: Float32Array, b: Float32Array): boolean =>
  Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer, b.byteOffset, b.byteLength));
