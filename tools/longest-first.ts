/**
 * The order of test files: those that are known to take long begin first, so that none of them is left alone at the end while the other core waits. vitest orders by what
 * it has measured before, and in a fresh clone by the size of the file, which tells little: files that mostly wait are short.
 */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The longest first, by the list at the end of `npm test`. */
export const LONGEST: readonly string[] = [
  'libs/testkit/src/simulator/simulator.test.ts',
  'libs/strategies/src/fit.test.ts',
  'apps/cli/src/verify/library.test.ts',
  'test/api/dispatch.test.ts',
  'test/api/outage.test.ts',
  'test/api/over-http.test.ts',
  'test/cli/stack.test.ts',
  'test/cluster/bits.test.ts',
];

/** @param files with absolute paths, in any order @returns the known ones first, the others as they came */
export function longestFirst<T extends { readonly moduleId: string }>(files: readonly T[]): T[] {
  const rank = ({ moduleId }: T): number => {
    const place = LONGEST.findIndex((name) => moduleId.endsWith(`/${name}`));
    return place < 0 ? LONGEST.length : place;
  };
  return [...files].sort((a, b) => rank(a) - rank(b));
}

export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return longestFirst(await super.sort(files));
  }
}
