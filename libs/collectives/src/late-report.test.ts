/** Groups in memory: reports that come late. */
import type { Connection } from '@paceline/exchange';
import { it } from 'vitest';
import { groupsInMemory } from './group.fixture.js';

it('a report that comes after this member has heard who goes on is no call (agreement.ts)', async () => {
  let first: Connection | undefined;
  const groups = groupsInMemory(2, { end: (self, connection) => (self === 1 ? (first = connection) : connection) });
  const all = (number: number): Promise<unknown> =>
    Promise.all(groups.map((group) => group.run({ what: `step ${number}`, operations: [] })));
  const step = all(1);
  first!.sendMessage({ type: 'call', number: 0, what: 'report', values: '', failures: [] }, { attempt: 1, term: 0, view: 0, round: 0 });
  await step;
  const second = groups[1]!.run({ what: 'step 2', operations: [] });
  await new Promise((resolve) => setTimeout(resolve, 20));
  await Promise.all([second, groups[0]!.run({ what: 'step 2', operations: [] })]);
  for (const group of groups) group.leave('the test is over');
});
