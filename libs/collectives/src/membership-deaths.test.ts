/**
 * A member is lost at step j of a training, for every member, every j and every topology. A step is a frame that it sends. The others go on without it, and
 * end with the parameters of a training that lost nobody: each step is in them once.
 */
import { describe, expect, it } from 'vitest';
import { LENGTH, Loss, parametersAfter, trainees, type Setting, type Trainee } from './membership.fixture.js';
import { keepsOrder, TOPOLOGIES, type Topology } from './routes.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
const SETTING = { members: 3, replicas: 4, steps: 3, hosts: ['a', 'a', 'b'], deadlineMs: 4_000 };
/** Every step in the soak; in the suite some, each member from another one on. */
const STRIDE = IS_SOAK ? 1 : 9;

async function trained(setting: Setting, losses: readonly Loss[]): Promise<Trainee[]> {
  const all = await trainees(setting, losses);
  const isLost = ({ self }: Trainee): boolean => losses[self]!.isLost;
  const running = new Set(all);
  for (const trainee of all)
    void trainee
      .train()
      .catch((error: unknown) => (trainee.error = error))
      .finally(() => running.delete(trainee));
  while ([...running].some((trainee) => !isLost(trainee))) await new Promise((resolve) => setTimeout(resolve, 5));
  for (const trainee of all) trainee.membership.leave('the test is over');
  return all;
}

const nobody = (): Loss[] => Array.from({ length: SETTING.members }, () => new Loss(undefined));
const bits = ({ parameters }: Trainee): string => Buffer.from(parameters.buffer).toString('hex');

/** @returns whether the member was lost, and whether one of the others had completed more than another then */
async function losing(
  topology: Topology,
  member: number,
  step: number,
  how: Loss['how'],
  expected: string,
): Promise<false | { readonly hadBehind: boolean }> {
  const losses = nobody();
  losses[member] = new Loss(step, how);
  const setting = { ...SETTING, topology, deadlineMs: how === 'dies' ? SETTING.deadlineMs : 600 };
  const all = await trained(setting, losses);
  if (!losses[member]!.isLost) return false;
  const left = all.filter(({ self }) => self !== member);
  const where = `${topology}: member ${member} ${how} at frame ${step}`;
  for (const trainee of left) {
    expect(trainee.error, `${where}: ${String(trainee.error)}`).toBeUndefined();
    expect(trainee.steps, where).toBe(SETTING.steps);
    // A member that has ended with the sums of all cannot take part in other sums of the last step.
    const endedBefore = left.some(({ views }) => views.length === 0) && !keepsOrder(topology, SETTING.hosts, SETTING.replicas);
    if (endedBefore) for (const [i, value] of trainee.parameters.entries()) expect(value, where).toBeCloseTo(left[0]!.parameters[i]!, 5);
    else expect(bits(trainee), where).toBe(bits(left[0]!));
    for (const { members } of trainee.views) expect(members, where).not.toContain(member);
    if (keepsOrder(topology, SETTING.hosts, SETTING.replicas)) expect(bits(trainee), where).toBe(expected);
  }
  return { hadBehind: left.some(({ views }) => views.some(({ behind }) => behind.length > 0)) };
}

describe('two of 4 members are lost', () => {
  const FOUR = { ...SETTING, members: 4, hosts: ['a', 'a', 'b', 'b'], replicas: 8 };
  const expected = Buffer.from(parametersAfter(FOUR.steps, FOUR.replicas).buffer).toString('hex');

  async function losingTwo(topology: Topology, of: Readonly<Record<number, Loss>>): Promise<void> {
    const losses = Array.from({ length: FOUR.members }, (_, member) => of[member] ?? new Loss(undefined));
    const all = await trained({ ...FOUR, topology }, losses);
    for (const trainee of all.filter(({ self }) => !losses[self]!.isLost)) {
      expect(trainee.error, String(trainee.error)).toBeUndefined();
      expect([trainee.steps, bits(trainee)]).toEqual([FOUR.steps, expected]);
    }
  }

  const WHILE = [0, 1, 2].flatMap((member) => [0, 1].map((time) => ({ first: 3, member, what: 'report', time })));
  const DECIDER = [0, 1, 2].map((time) => ({ first: 3, member: 0, what: 'next view', time }));
  // Half is left, without the first: they have to find out that both have ended.
  const LAST = [2, 3].flatMap((member) => [0, 1].map((time) => ({ first: 0, member, what: 'report', time })));

  it.each([...WHILE, ...DECIDER, ...LAST])(
    'member $first, and member $member while the others agree: it calls "$what", and has done so $time times',
    async ({ first, member, ...at }) => {
      for (const topology of IS_SOAK ? (['direct', 'tree'] as const) : (['direct'] as const))
        for (const frame of IS_SOAK ? [5, 9, 14, 18, 25, 31] : [14])
          await losingTwo(topology, { [first]: new Loss(frame), [member]: new Loss(at) });
    },
  );

  it.runIf(IS_SOAK)(
    'at any steps',
    async () => {
      for (const topology of ['direct', 'tree'] as const)
        for (let one = 0; one < FOUR.members; one++)
          for (let other = 0; other < FOUR.members; other++)
            for (let frame = 0; frame < 40; frame += 3)
              for (let later = frame; later < frame + 30 && one !== other; later += 5)
                await losingTwo(topology, { [one]: new Loss(frame), [other]: new Loss(later) });
    },
    600_000,
  );
});

/** Frames of member 0 after which some others have all of a step, and others not. */
const BETWEEN = [12, 13, 15, 16, 26, 27, 31, 32];

describe.each(TOPOLOGIES)('topology %s', (topology) => {
  it('the others go on without a member that dies at any step, with the parameters of a training that lost nobody', async () => {
    const [whole] = await trained({ ...SETTING, topology }, nobody());
    expect(whole!.parameters).not.toEqual(new Float32Array(LENGTH).fill(0.1));
    for (let member = 0; member < SETTING.members; member++)
      for (let step = member; await losing(topology, member, step, 'dies', bits(whole!)); step += STRIDE);
  }, 600_000);

  it.runIf(topology === 'ring' || topology === 'hierarchical')(
    'one that has not got all of a step takes it over from one that has',
    async () => {
      const [whole] = await trained({ ...SETTING, topology }, nobody());
      const cases: Awaited<ReturnType<typeof losing>>[] = [];
      for (const step of BETWEEN) cases.push(await losing(topology, 0, step, 'dies', bits(whole!)));
      expect(cases.some((each) => typeof each === 'object' && each.hadBehind)).toBe(true);
    },
    600_000,
  );

  it.runIf(IS_SOAK || topology === 'direct')(
    'and without one that stands still',
    async () => {
      const [whole] = await trained({ ...SETTING, topology }, nobody());
      for (let member = 0; member < SETTING.members; member++)
        for (let step = member; await losing(topology, member, step, 'stands still', bits(whole!)); step += IS_SOAK ? 1 : 33);
    },
    600_000,
  );
});
