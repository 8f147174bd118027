/** What an extension of a run adds up to, before it is asked for. */
import type { RunDetails } from './run-details.js';
import { count } from '../text/format.js';

export type Unit = 'epochs' | 'rounds';

/** `epochs` and `rounds` of a spec; the api says when the sum is beyond it. */
export const MOST: Readonly<Record<Unit, number>> = { epochs: 100_000, rounds: 100_000_000 };

/**
 * "1,175 rounds + 470 = 1,645 rounds (7 epochs)"; empty while nothing is asked.
 * @param hasEvenEpochs whether all epochs have the same number of rounds: else rounds say nothing of epochs here
 */
export function totalText(
  typed: string,
  unit: Unit,
  { totalRounds, totalEpochs }: Pick<RunDetails['progress'], 'totalRounds' | 'totalEpochs'>,
  hasEvenEpochs = true,
): string {
  const more = Number(typed);
  if (typed.trim() === '' || !Number.isInteger(more) || more < 1 || more > MOST[unit] || totalRounds <= 0 || totalEpochs <= 0) return '';
  if (!hasEvenEpochs) return unit === 'epochs' ? '' : `${count(totalRounds)} rounds + ${count(more)} = ${count(totalRounds + more)} rounds`;
  const perEpoch = Math.round(totalRounds / totalEpochs);
  const rounds = unit === 'rounds' ? more : more * perEpoch;
  const epochs = (totalRounds + rounds) / perEpoch;
  const inEpochs = `${Number.isInteger(epochs) ? count(epochs) : epochs.toFixed(1)} ${epochs === 1 ? 'epoch' : 'epochs'}`;
  return `${count(totalRounds)} rounds + ${count(rounds)} = ${count(totalRounds + rounds)} rounds (${inEpochs})`;
}
