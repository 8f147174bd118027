/** Networks that are cut, and strangers at the address of a member that has died: at most one part goes on, and nobody is misled by who is no member. */
import { memoryPair, processClock } from '@paceline/exchange';
import { afterEach, describe, expect, it } from 'vitest';
import { joinGroup } from './join.js';
import { Loss, Network, parametersAfter, SECRET, trainees, type Trainee } from './membership.fixture.js';
import { groupId } from './proof.js';

const [DEADLINE_MS, SHORT_MS] = [1_200, 600];
const pauseMs = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

interface Trial {
  readonly all: readonly Trainee[];
  readonly losses: readonly Loss[];
  readonly network: Network;
}

const running: Trainee[] = [];
afterEach(() => {
  for (const trainee of running.splice(0)) trainee.membership.leave('the test is over');
});

/** Members that train until they are lost, fail, or the test is over. */
async function training(members: number, deadlineMs = DEADLINE_MS): Promise<Trial> {
  const losses = Array.from({ length: members }, () => new Loss(undefined));
  const network = new Network(losses);
  const hosts = losses.map(() => 'a');
  const setting = { members, replicas: 4, steps: Infinity, topology: 'direct', hosts, deadlineMs } as const;
  const all = await trainees(setting, losses, network);
  running.push(...all);
  for (const trainee of all) {
    trainee.pause = () => pauseMs(5);
    void trainee.train().catch((error: unknown) => (trainee.error = error));
  }
  await expect.poll(() => all.every(({ steps }) => steps > 1)).toBe(true);
  return { all, losses, network };
}

const lastViewOf = ({ views }: Trainee): readonly number[] | undefined => views.at(-1)?.members;
const isGoingOn = async (trainee: Trainee): Promise<boolean> => {
  const { steps } = trainee;
  await pauseMs(100);
  return trainee.error === undefined && trainee.steps > steps;
};

describe('a network that is cut', () => {
  /** 1 and 2 go on without 0, and 2 dies. */
  async function goneOn(): Promise<Trial> {
    const trial = await training(3);
    const { all, losses, network } = trial;
    network.sever([0, 1], [0, 2]);
    await expect.poll(() => lastViewOf(all[1]!), { timeout: 4_000 }).toEqual([1, 2]);
    losses[2]!.lose();
    await expect.poll(() => lastViewOf(all[1]!), { timeout: 4_000 }).toEqual([1]);
    return trial;
  }

  it('a member that comes back after one of those that went on has died does not go on', async () => {
    const { all, network } = await goneOn();
    network.heal();
    await expect.poll(() => all[0]!.error, { timeout: 4_000 }).toBeDefined();
    expect(all[0]!.views).toEqual([]);
    expect(await isGoingOn(all[1]!)).toBe(true);
  });

  it('it learns that it is out from one behind it, which does not dial it any more', async () => {
    const { all, network } = await goneOn();
    network.heal([0, 1]);
    await expect.poll(() => all[0]!.error, { timeout: 4_000 }).toMatchObject({ kind: 'out', members: [0] });
    expect((all[0]!.error as Error).message).toContain('worker 1: the others have given this process up');
  });

  it('one that does not reach the others any more does not take them for ended because one of them is', async () => {
    const { all, losses, network } = await training(3);
    network.sever([0, 1]);
    losses[2]!.lose();
    await expect.poll(() => all.filter(({ error }) => error !== undefined).length, { timeout: 6_000 }).toBe(2);
    for (const self of [0, 1]) expect(all[self]!.error).toMatchObject({ kind: 'few' });
  });
});

/** Numbers that look like chance, and are the same each time. */
function numbers(seed: number) {
  let state = seed;
  return (below: number): number => {
    state = (state * 1_103_515_245 + 12_345) & 0x7fffffff;
    return (state >> 8) % below;
  };
}

const PAIRS = [0, 1, 2, 3].flatMap((b) => Array.from({ length: b }, (_, a) => [a, b] as const));

describe('4 members, any cut, a death, and a network that is whole again or is not', () => {
  it('at most one view goes on, with the bits of a training that lost nobody', async () => {
    const rounds = process.env['PACELINE_SOAK'] === '1' ? 20 : 1;
    for (let round = 0; round < rounds; round++) {
      const below = numbers(round + 1);
      const trials = Array.from({ length: 6 }, () => ({
        cut: PAIRS.filter(() => below(3) > 0),
        death: below(4),
        deathMs: below(SHORT_MS / 2),
        healsMs: below(3) > 0 ? below(SHORT_MS) : undefined,
      }));
      await Promise.all(
        trials.map(async ({ cut, death, deathMs, healsMs }) => {
          const { all, losses, network } = await training(4, SHORT_MS);
          network.sever(...cut);
          await Promise.all([
            pauseMs(deathMs).then(() => losses[death]!.lose()),
            healsMs === undefined ? undefined : pauseMs(healsMs).then(() => network.heal()),
          ]);
          await pauseMs(2 * SHORT_MS + 200); // nobody agrees for longer
          const left = all.filter(({ self }) => self !== death);
          const before = left.map(({ steps }) => steps);
          await pauseMs(100);
          const goOn = left.filter(({ error, steps }, i) => error === undefined && steps > before[i]!);
          const where = JSON.stringify({
            cut,
            death,
            deathMs,
            healsMs,
            views: all.map(({ views }) => views.map(({ members }) => members)),
          });
          for (const trainee of goOn) {
            expect(lastViewOf(trainee), where).toEqual(goOn.map(({ self }) => self));
            expect(trainee.parameters, where).toEqual(parametersAfter(trainee.steps, 4));
          }
          for (const trainee of left) trainee.membership.leave('the trial is over');
        }),
      );
    }
  }, 300_000);
});

describe('where a member has died, another process listens, and', () => {
  const NAMES = Array.from({ length: 4 }, (_, i) => `worker ${i}`);

  it.each([
    [0, 'of another group', groupId('another'), SECRET],
    [0, 'with another secret', groupId(NAMES), 'another secret, as long'],
    [3, 'of another group', groupId('another'), SECRET],
  ])('at the address of member %i %s, it is no reason for the others to end', async (member, _, group, secret) => {
    const { all, losses, network } = await training(4);
    const transport = { listen: async (on: Parameters<Network['take']>[1]) => (network.take(member, on), { close: async () => undefined }), connect: async () => memoryPair({ lingerMs: 1 })[0] }; // prettier-ignore
    const other = joinGroup({ self: 0, names: NAMES, group, secret, transport, clock: processClock, deadlineMs: 300 });
    other.catch(() => undefined); // nobody joins it
    losses[member]!.lose();
    const left = all.filter(({ self }) => self !== member);
    for (const trainee of left) await expect.poll(() => lastViewOf(trainee), { timeout: 4_000 }).toEqual(left.map(({ self }) => self));
    for (const trainee of left) expect(await isGoingOn(trainee)).toBe(true);
  });
});
