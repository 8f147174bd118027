/**
 * Sweeps of random seeds: few in the suite, which many people wait for, and in the soak as many as take every row of the state tables.
 *
 *     PACELINE_SOAK=1 npx vitest run libs/testkit/src/simulator/async.test.ts
 */
import { simulateSeed, type SeedOptions } from '../simulate.js';
import { addSeed, emptyTally, type Tally } from '../checks/tally.js';

export const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

/** How many seeds. */
export const seeds = (inSuite: number, inSoak: number): number => (IS_SOAK ? inSoak : inSuite);

export interface Sweep {
  readonly options: Omit<SeedOptions, 'seed'>;
  /** Seeds 1 to this one in any case. */
  readonly least: number;
}

/** A change of a machine changes what seeds mean: the rows that it takes may be taken by later ones. */
const MOST_SEEDS = 160;

/** Every sweep as far as it goes in any case, and in the soak all of them on from there, seed by seed, until no row is missing. */
export async function swept(sweeps: readonly Sweep[], missing: (tally: Tally) => readonly string[]): Promise<Tally> {
  const tally = emptyTally();
  const add = async (seed: number, { options }: Sweep): Promise<void> =>
    addSeed(tally, await simulateSeed(Object.assign({ seed }, options)));
  for (const sweep of sweeps) for (let seed = 1; seed <= sweep.least; seed++) await add(seed, sweep);
  for (let seed = 1; IS_SOAK && seed <= MOST_SEEDS && missing(tally).length > 0; seed++)
    for (const sweep of sweeps) if (seed > sweep.least) await add(seed, sweep);
  return tally;
}
