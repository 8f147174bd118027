/** Groups inside one process, over memory. */
import { memoryPair, processClock, type Clock } from '@paceline/exchange';
import { Group } from './group.js';
import { Link } from './link.js';

export function groupsInMemory(
  members: number,
  { clock = processClock, deadlineMs = 30_000 }: { clock?: Clock | ((self: number) => Clock); deadlineMs?: number } = {},
): Group[] {
  const links: (Link | undefined)[][] = Array.from({ length: members }, () => Array.from({ length: members }, () => undefined));
  for (let a = 0; a < members; a++)
    for (let b = 0; b < a; b++) {
      const [one, other] = memoryPair({ lingerMs: 500 }); // what a member says last has to arrive, also on a machine that is busy
      links[a]![b] = new Link(one);
      links[b]![a] = new Link(other);
    }
  const names = Array.from({ length: members }, (_, i) => `worker ${i}`);
  return links.map(
    (own, self) => new Group({ self, names, links: own, clock: typeof clock === 'function' ? clock(self) : clock, deadlineMs }),
  );
}
