/** Groups inside one process, over memory. */
import { memoryPair, processClock, type Clock, type Connection } from '@paceline/exchange';
import { Group } from './group.js';
import { Link } from './link.js';

export function groupsInMemory(
  members: number,
  {
    clock = processClock,
    deadlineMs = 30_000,
    end = (_, connection) => connection,
  }: {
    clock?: Clock | ((self: number) => Clock);
    deadlineMs?: number;
    /** What a member speaks through, in place of this end of a connection. */
    end?: (self: number, connection: Connection) => Connection;
  } = {},
): Group[] {
  const links: (Link | undefined)[][] = Array.from({ length: members }, () => Array.from({ length: members }, () => undefined));
  for (let a = 0; a < members; a++)
    for (let b = 0; b < a; b++) {
      const [one, other] = memoryPair({ lingerMs: 500 }); // what a member says last has to arrive, also on a machine that is busy
      links[a]![b] = new Link(end(a, one));
      links[b]![a] = new Link(end(b, other));
    }
  const names = Array.from({ length: members }, (_, i) => `worker ${i}`);
  return links.map(
    (own, self) => new Group({ self, names, links: own, clock: typeof clock === 'function' ? clock(self) : clock, deadlineMs }),
  );
}

/** A clock that is wound by hand. */
export function wound() {
  let now = 0;
  const ticks = new Set<() => void>();
  const clock: Clock = {
    now: () => now,
    after: () => () => undefined,
    every: (_, act) => {
      ticks.add(act);
      return () => void ticks.delete(act);
    },
    soon: (act) => process.nextTick(act),
  };
  const pass = async (ms: number): Promise<void> => {
    now += ms;
    for (const tick of ticks) tick();
    await new Promise(setImmediate);
  };
  return { clock, pass };
}
