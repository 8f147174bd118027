/** What goes on from the newest checkpoint of a run that has ended without a result, as a new run. */
import type { RunDetails } from './run-details.js';

type Ended = Pick<RunDetails, 'id' | 'status'> & {
  readonly progress: Pick<RunDetails['progress'], 'totalRounds'>;
  readonly checkpoints: readonly Pick<RunDetails['checkpoints'][number], 'round' | 'state'>[];
};

export function resumeCommand({
  id,
  status,
  progress,
  checkpoints,
}: Ended): { readonly command: string; readonly round: number } | undefined {
  if (status !== 'FAILED' && status !== 'CANCELLED') return undefined;
  const round = checkpoints.find(({ state }) => state === 'USABLE')?.round ?? 0;
  // Round 0 is the beginning, and behind the last round nothing is left.
  if (round === 0 || round >= progress.totalRounds) return undefined;
  return { command: `npx paceline train --resume-from ${id}`, round };
}
