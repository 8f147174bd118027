/** Rows of a recording of updates, replayed by the kernels that servers have. */
import type { UpdatesRecording } from '@paceline/models';
import { differenceOf, larger, NONE, type Difference } from './difference.js';

export interface RowResult extends Difference {
  readonly name: string;
  readonly class: string;
  readonly ok: boolean;
  /** The step, from 1, with the largest relative difference. */
  readonly step: number;
  /** Why it was not replayed: it counts as failed. */
  readonly reasons: readonly string[];
}

export async function verifyUpdates(recording: UpdatesRecording, tolerance: number): Promise<RowResult[]> {
  const [{ replayUpdates }, { optimizerOfKeras }] = await Promise.all([import('@paceline/hosting'), import('@paceline/spec')]);
  return recording.cases.map(({ name, trajectory, ...optimizer }): RowResult => {
    const row = { name, class: optimizer.class };
    const mapped = optimizerOfKeras(optimizer);
    if (!mapped.ok) {
      const reasons = mapped.issues.map(({ path, message }) => `${path}: ${message}`);
      return { ...row, ok: false, absolute: Number.POSITIVE_INFINITY, relative: Number.POSITIVE_INFINITY, step: 0, reasons };
    }
    const { initial, gradients } = recording;
    let [largest, step, at] = [NONE, 0, 0];
    for (const weights of replayUpdates({ optimizer: mapped.optimizer, gradient: mapped.gradient, initial, gradients })) {
      const difference = differenceOf(weights, trajectory[at++]!);
      if (difference.relative > largest.relative) step = at;
      largest = larger(largest, difference);
    }
    return { ...row, ok: largest.relative <= tolerance, ...largest, step, reasons: [] };
  });
}
