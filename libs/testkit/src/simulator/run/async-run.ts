/**
 * What a seed of modes async and ssp adds to the shape of its run, and which of its gradients are no numbers. Both follow from the seed by
 * a stream of their own, so a seed of mode sync means what it would mean without them.
 */
import { Random } from '../world/random.js';

export type RunMode = 'sync' | 'async' | 'ssp';
export const RUN_MODES: readonly RunMode[] = ['sync', 'async', 'ssp'];

export interface AsyncShape {
  readonly mode: 'async' | 'ssp';
  readonly stalenessBound: number;
  readonly delayCompensation: number;
  readonly stalenessScaledRate: boolean;
  readonly nonFinite: 'fail' | 'skip' | 'rollback';
  /** Share of the work items whose gradients have NaN, and which ones those are. */
  readonly nanShare: number;
  readonly nanSalt: number;
  /** Every other worker computes numbers where the rest find NaN: they began from other parameters. */
  readonly disagree: boolean;
}

/** Streams of randomness: of the mode, of what it adds, of gradients. */
const [MODE, SHAPE, GRADIENTS] = [4, 3, 5] as const;

/** Draws the mode of a seed that names none. */
export function drawMode(seed: number): RunMode {
  return new Random(seed, MODE).pick(['sync', 'sync', 'async', 'ssp']);
}

export function randomAsync(seed: number, mode: 'async' | 'ssp'): AsyncShape {
  const random = new Random(seed, SHAPE);
  return {
    mode,
    stalenessBound: random.pick([0, 1, 2, 4]),
    delayCompensation: random.pick([0, 0, 0.5]),
    stalenessScaledRate: random.chance(0.3),
    nonFinite: random.chance(0.1) ? 'fail' : 'skip',
    nanShare: random.pick([0, 0, 0.02, 0.15]),
    nanSalt: random.int(0, 1000),
    disagree: random.chance(0.3),
    ...(random.chance(0.1) ? { nonFinite: 'rollback' as const } : {}),
  };
}

/** Whether the gradient of a work item has NaN, for the workers that find it. With `rollback` the attempts after the first one find none. */
export function isNonFinite(
  { shape }: { readonly shape: { readonly items?: AsyncShape | undefined } },
  round: number,
  replica: number,
): boolean {
  const { items } = shape;
  if (!items || items.nanShare === 0) return false;
  return new Random(items.nanSalt + round * 1_009 + replica * 7, GRADIENTS).float() < items.nanShare;
}

/** Rows of the work item tables that a few seeds in ten thousand take, each with what leads there; async-moments.test.ts and async-member.test.ts take them. */
export const ASYNC_ROWS_RARELY_REACHED: Readonly<Record<string, string>> = {
  'async-shard.dropRepeated': 'two workers disagree about NaN, and some servers have applied the work item; or a DROP is said again',
  'async-coordinator.contributionStale':
    'a connection that breaks takes what it carried with it; a work item that is held is counted only when it was told again',
  'async-coordinator.nonFiniteStale': 'as contributionStale',
  'async-member.staleTerm': 'as member.staleTerm; async-member.test.ts takes it',
  'async-member.parametersStale': 'a shard answers a FETCH once; another answer comes when it is fetched again while nothing is lost',
};
