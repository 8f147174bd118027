/**
 * A member is lost at step j of two all-reduces, for every member, every j and every topology. A step is a frame that it sends. Its process is gone, and
 * its connections end; or it stands still, and they stay. All others learn who it was, and what they have got until then is right.
 */
import type { Connection } from '@paceline/exchange';
import { describe, expect, it } from 'vitest';
import { AllReducePlan } from './all-reduce.js';
import { MemberLostError } from './errors.js';
import type { Group } from './group.js';
import { groupsInMemory, wound } from './group.fixture.js';
import { TOPOLOGIES, type Topology } from './routes.js';
import { whileItMay } from './silenced.fixture.js';

const MEMBERS = 4;
const LENGTH = 40;
const ROUNDS = 2;
const DEADLINE_MS = 2_000;
/** Two on each of two machines. */
const HOSTS = ['a', 'a', 'b', 'b'];
/** Turns of the event loop in which everything that can arrive has arrived; where time passes afterwards there are more. */
const TURNS = { dies: 400, 'stands still': 100 } as const;
/** Every step in the soak; in the suite every third, each member from another one on. */
const STRIDE = process.env['PACELINE_SOAK'] === '1' ? 1 : 3;

interface Loss {
  readonly topology: Topology;
  readonly member: number;
  readonly step: number;
  readonly how: 'dies' | 'stands still';
}

/** What a survivor has come to: the rounds that it has, and why it has no more. */
interface Survivor {
  member: number;
  sums: number[][];
  error: unknown;
}

/** The ends of all connections of the member that is lost, and what it has sent. */
class Victim {
  private readonly ends: Connection[] = [];
  private sent = 0;
  isLost = false;

  constructor(private readonly loss: Loss) {}

  /** What it speaks through. From step j on nothing leaves. */
  end(connection: Connection): Connection {
    this.ends.push(connection);
    const mayLeave = (): boolean => {
      if (!this.isLost && this.sent++ === this.loss.step) this.lose();
      return !this.isLost;
    };
    return whileItMay(connection, mayLeave);
  }

  private lose(): void {
    this.isLost = true;
    if (this.loss.how === 'dies') for (const end of this.ends) end.close();
  }
}

const sumOf = (round: number): number => Array.from({ length: MEMBERS }, (_, self) => self + round).reduce((sum, each) => sum + each, 0);

/** Both rounds, and then operations without data: whoever had told some of the others that it begins the first is missed in the second. */
async function takePart(group: Group, self: number, topology: Topology, survivor: Survivor, victim: Victim): Promise<void> {
  const plan = new AllReducePlan({ members: MEMBERS, self, replicas: MEMBERS, length: LENGTH, pieceLength: 5, topology, hosts: HOSTS });
  for (let round = 0; round < ROUNDS; round++) {
    const result = new Float32Array(LENGTH);
    await group.run({ what: `step ${round}`, operations: [plan.reduce([new Float32Array(LENGTH).fill(self + round)], result)] });
    survivor.sums.push([...result]);
  }
  await group.run({ what: 'the end', operations: [] });
  if (victim.isLost) await group.run({ what: 'one more', operations: [] });
}

/** @returns what the others have come to; undefined when the member has sent all before that step */
async function lostAt(loss: Loss): Promise<Survivor[] | undefined> {
  const victim = new Victim(loss);
  const { clock, pass } = wound();
  const stopped = { ...clock, every: () => () => undefined };
  const groups = groupsInMemory(MEMBERS, {
    clock: (self) => (self === loss.member ? stopped : clock),
    deadlineMs: DEADLINE_MS,
    end: (self, connection) => (self === loss.member ? victim.end(connection) : connection),
  });
  const survivors = groups.map((_, member): Survivor => ({ member, sums: [], error: undefined }));
  let running = MEMBERS;
  for (const [self, group] of groups.entries())
    void takePart(group, self, loss.topology, survivors[self]!, victim)
      .catch((error: unknown) => (survivors[self]!.error = error))
      .finally(() => running--);
  const others = (): number => survivors.filter(({ member, error }) => member !== loss.member && error === undefined).length;
  const isOver = (): boolean => running === 0 || (victim.isLost && others() === 0);
  // Whoever has died is missed without a deadline: the clock stands still.
  for (let turn = 0; turn < TURNS[loss.how] && !isOver(); turn++) await new Promise(setImmediate);
  if (victim.isLost && loss.how === 'stands still') for (let ms = 0; ms < 3 * DEADLINE_MS && !isOver(); ms += 100) await pass(100);
  const { isLost } = victim;
  for (const group of groups) group.leave('the test is over');
  return isLost ? survivors.filter(({ member }) => member !== loss.member) : undefined;
}

describe.each(TOPOLOGIES)('topology %s', (topology) => {
  it.each(['dies', 'stands still'] as const)(
    'a member that %s at any step is named by all others, and nobody waits for it for ever',
    async (how) => {
      for (let member = 0; member < MEMBERS; member++) {
        for (let step = member % STRIDE; ; step += STRIDE) {
          const survivors = await lostAt({ topology, member, step, how });
          if (!survivors) {
            // It tells three others of three operations, and sends something in each round.
            expect(step).toBeGreaterThanOrEqual((MEMBERS - 1) * (ROUNDS + 1) + ROUNDS);
            break;
          }
          for (const survivor of survivors) {
            const where = `member ${survivor.member}, of ${member} at step ${step}`;
            expect(survivor.error, where).toBeInstanceOf(MemberLostError);
            expect((survivor.error as MemberLostError).members, `${where}: ${(survivor.error as Error).message}`).toEqual([member]);
            for (const [round, sum] of survivor.sums.entries()) expect(new Set(sum), where).toEqual(new Set([sumOf(round)]));
          }
        }
      }
    },
  );
});
