/** What an extension of a run adds up to, before it is asked for. */
import type { RunDetails } from './run-details.js';
import { count } from '../text/format.js';

export type Unit = 'epochs' | 'rounds';

/** `epochs` and `rounds` of a spec; the api says when the sum is beyond it. */
export const MOST: Readonly<Record<Unit, number>> = { epochs: 100_000, rounds: 100_000_000 };

/** What is made longer: a run that has succeeded goes on from where it ended, which may be before its planned end. */
export interface Extended extends Pick<RunDetails['progress'], 'totalRounds' | 'totalEpochs'> {
  /** Rounds that more are added to. */
  readonly rounds: number;
}

export function extendedOf({
  status,
  progress: { totalRounds, totalEpochs },
  result,
}: {
  readonly status: RunDetails['status'];
  readonly progress: Pick<RunDetails['progress'], 'totalRounds' | 'totalEpochs'>;
  readonly result: Pick<NonNullable<RunDetails['result']>, 'rounds'> | null;
}): Extended {
  return { rounds: status === 'SUCCEEDED' && result ? result.rounds : totalRounds, totalRounds, totalEpochs };
}

/**
 * "1,175 rounds + 470 = 1,645 rounds (7 epochs)"; empty while nothing is asked.
 * @param hasEvenEpochs whether all epochs have the same number of rounds: else rounds say nothing of epochs here
 */
export function totalText(typed: string, unit: Unit, { rounds, totalRounds, totalEpochs }: Extended, hasEvenEpochs = true): string {
  const asked = Number(typed);
  if (typed.trim() === '' || !Number.isInteger(asked) || asked < 1 || asked > MOST[unit] || totalRounds <= 0 || totalEpochs <= 0) return '';
  if (!hasEvenEpochs) return unit === 'epochs' ? '' : `${count(rounds)} rounds + ${count(asked)} = ${count(rounds + asked)} rounds`;
  const perEpoch = Math.round(totalRounds / totalEpochs);
  const more = unit === 'rounds' ? asked : asked * perEpoch;
  const epochs = (rounds + more) / perEpoch;
  const inEpochs = `${Number.isInteger(epochs) ? count(epochs) : epochs.toFixed(1)} ${epochs === 1 ? 'epoch' : 'epochs'}`;
  return `${count(rounds)} rounds + ${count(more)} = ${count(rounds + more)} rounds (${inEpochs})`;
}
