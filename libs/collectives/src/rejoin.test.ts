/**
 * A member is lost, and another process comes for its place while the others train on: at every step, while others die, two at once. All that are there at
 * the end have the parameters of a training that lost nobody.
 */
import { describe, expect, it } from 'vitest';
import { Loss, Network, parametersAfter, trainee, trainees, type Setting, type Trainee } from './membership.fixture.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
const SETTING: Setting = { members: 3, replicas: 4, steps: 8, topology: 'direct', hosts: ['a', 'a', 'b'], deadlineMs: 4_000 };
const soon = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const bits = ({ parameters }: Trainee): string => Buffer.from(parameters.buffer).toString('hex');

class Training {
  readonly losses: Loss[];
  readonly network: Network;
  all: Trainee[] = [];
  private readonly running = new Set<Trainee>();

  constructor(
    readonly setting: Setting = SETTING,
    delayMs?: () => number,
  ) {
    this.losses = Array.from({ length: setting.members }, () => new Loss(undefined));
    this.network = new Network(this.losses, delayMs);
  }

  /** @param stepMs what a step takes at least */
  async begin(stepMs = 30): Promise<void> {
    this.all = await trainees(this.setting, this.losses, this.network);
    for (const each of this.all) this.run(each, stepMs);
  }

  run(each: Trainee, stepMs = 30): void {
    const pause = each.pause;
    each.pause = async () => {
      await soon(stepMs);
      await pause();
    };
    this.running.add(each);
    void each
      .train()
      .catch((error: unknown) => void (each.error = error))
      .finally(() => this.running.delete(each));
  }

  async until(step: number, member = 0): Promise<void> {
    while (this.all[member]!.steps < step && this.all[member]!.error === undefined) await soon(2);
  }

  lose(member: number): void {
    this.losses[member]!.lose();
    this.all[member]!.membership.leave('it has died');
  }

  async start(member: number, at?: ConstructorParameters<typeof Loss>[0]): Promise<Trainee> {
    const loss = new Loss(at);
    loss.count();
    this.network.replace(member, loss);
    const made = await trainee(this.setting, member, this.network);
    this.all[member] = made;
    this.run(made);
    return made;
  }

  async ended(): Promise<void> {
    const started = [...this.running];
    while ([...this.running].some(({ self }) => !this.losses[self]!.isLost)) await soon(5);
    for (const each of started) each.membership.leave('the test is over');
  }

  expectEqual(members = this.all): void {
    const { steps, replicas } = this.setting;
    const expected = Buffer.from(parametersAfter(steps, replicas).buffer).toString('hex');
    for (const each of members) {
      expect(each.error, `${each.self}: ${String(each.error)}`).toBeUndefined();
      expect([each.steps, bits(each)], `member ${each.self}`).toEqual([steps, expected]);
    }
  }
}

const CASES = [0, 1, 2].flatMap((victim) =>
  (IS_SOAK ? [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] : [2 + victim]).map((step) => ({ victim, step })),
);

describe.concurrent('a member is lost, and comes again', () => {
  it.each(CASES)('member $victim at step $step', async ({ victim, step }) => {
    const training = new Training({ ...SETTING, steps: step + 50 });
    await training.begin();
    await training.until(step);
    training.lose(victim);
    const made = await training.start(victim);
    await training.ended();
    training.expectEqual();
    expect(made.views.at(-1)).toMatchObject({ members: [0, 1, 2], entrant: { member: victim } });
  });

  it('of two the first one, at once', async () => {
    const training = new Training({ ...SETTING, members: 2, hosts: ['a', 'b'], steps: 60 });
    await training.begin();
    await training.until(3);
    training.lose(0);
    await training.start(0);
    await training.ended();
    training.expectEqual();
  });

  it('two at once', async () => {
    const training = new Training({ ...SETTING, members: 4, hosts: ['a', 'a', 'b', 'b'], steps: 40 });
    await training.begin();
    await training.until(2);
    training.lose(1);
    await training.until(4);
    training.lose(3);
    await training.until(6);
    const made = await Promise.all([training.start(1), training.start(3)]);
    await training.ended();
    training.expectEqual();
    for (const { views } of made) expect(views.at(-1)!.members).toEqual([0, 1, 2, 3]);
  });

  it.each(IS_SOAK ? [0, 1, 2] : [0])('member %i, over a network on which everything takes up to 40 ms', async (victim) => {
    let [messages, seed] = [0, victim + 1];
    const delayMs = (): number => {
      messages++;
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % 40;
    };
    const training = new Training({ ...SETTING, steps: 40, deadlineMs: 16_000 }, delayMs);
    await training.begin();
    await training.until(3, (victim + 1) % 3);
    training.lose(victim);
    const made = await training.start(victim);
    await training.ended();
    training.expectEqual();
    expect(made.views.at(-1)).toMatchObject({ members: [0, 1, 2], entrant: { member: victim } });
    expect(messages, 'they have gone over that network').toBeGreaterThan(1_000);
  });

  it('again and again', async () => {
    const training = new Training({ ...SETTING, steps: 150 });
    await training.begin();
    for (const victim of [2, 0, 1]) {
      await training.until(training.all[(victim + 1) % 3]!.steps + 3, (victim + 1) % 3);
      training.lose(victim);
      const made = await training.start(victim);
      while (made.membership.isNew && made.error === undefined) await soon(5);
    }
    await training.ended();
    training.expectEqual();
  });
});

describe.concurrent('while a member comes, another one is lost', () => {
  /** Of 4: member 3 has been lost, and is there again. @param at what the other one was about to call when it died; `state`: before it got or gave the state */
  async function whileComing(victim: number, at: string | 'state'): Promise<Training> {
    const training = new Training({ ...SETTING, members: 4, hosts: ['a', 'a', 'b', 'b'], steps: 90 });
    const { losses } = training;
    if (at !== 'state' && victim !== 3) losses[victim] = new Loss({ what: at, time: 2 }); // it has said that to two others at the loss before
    await training.begin();
    await training.until(2);
    training.lose(3);
    await training.until(4);
    const dies = (each: Trainee): void => {
      each.beforeState = async () => {
        losses[victim]!.lose();
        await new Promise(() => undefined);
      };
    };
    if (at === 'state' && victim !== 3) dies(training.all[victim]!);
    const made = await training.start(3, at !== 'state' && victim === 3 ? { what: at, time: 0 } : undefined);
    if (at === 'state' && victim === 3) dies(made);
    await training.ended();
    expect(losses[victim]!.isLost, 'it was to die').toBe(true);
    return training;
  }

  it.each([
    { who: 'who comes', victim: 3 },
    { who: 'who decides and has the state', victim: 0 },
    { who: 'another one', victim: 2 },
  ])('$who: in the report, before the view holds, and before the state is handed on', async ({ victim }) => {
    const moments = ['report', 'state', ...(victim === 0 ? ['next view'] : [])];
    for (const training of await Promise.all(moments.map((at) => whileComing(victim, at))))
      training.expectEqual(training.all.filter(({ self }) => self !== victim));
  });

  it('who comes has not got the state for a while: the others go on without it, and let it in later', async () => {
    const training = new Training({ ...SETTING, steps: 90, deadlineMs: 800 });
    await training.begin();
    await training.until(2);
    training.lose(1);
    const made = await training.start(1);
    let times = 0;
    made.beforeState = () => soon(times++ === 0 ? 2_000 : 0);
    await training.ended();
    training.expectEqual();
    expect(training.all[0]!.views.map(({ members }) => members)).toContainEqual([0, 2]);
  });
});

describe('who is not let in', () => {
  it('a stranger with another secret, and a process for a place whose member lives; the others do not notice', async () => {
    const training = new Training({ ...SETTING, steps: 60 });
    await training.begin();
    await training.until(2);
    training.lose(2);
    await training.until(4);
    const views = training.all[0]!.views.length;
    training.network.replace(2, new Loss(undefined));
    await expect(trainee(SETTING, 2, training.network, 'a secret of somebody else', 3_000)).rejects.toThrow(
      'the proof of the shared secret is wrong',
    );
    await expect(trainee(SETTING, 1, elsewhere(training.network), undefined, 900)).rejects.toThrow(
      'worker 0 (another process is worker 1: every process needs a task of its own)',
    );
    await training.ended();
    training.expectEqual(training.all.slice(0, 2));
    expect(training.all[0]!.views.length).toBe(views);
  });

  it('a process that comes when the others have ended', async () => {
    const training = new Training();
    await training.begin();
    await training.until(2);
    training.lose(2);
    await training.ended();
    await expect(trainee(SETTING, 2, training.network, undefined, 1_000)).rejects.toThrow(
      'waited 1000 ms for worker 0 (connect ECONNREFUSED)',
    );
  });

  it('a process whose others end while it learns what they did', async () => {
    const training = new Training({ ...SETTING, steps: 40, enterDeadlineMs: 1_500 });
    await training.begin();
    await training.until(2);
    training.lose(2);
    training.network.replace(2, new Loss(undefined));
    const made = await trainee(training.setting, 2, training.network);
    expect((await made.membership.told(0)).length).toBe(50_001);
    await training.ended();
    const message = expect.stringMatching(/waited 1500 ms for .*worker 0 .* to join/) as string;
    await expect(made.membership.enter(0), 'it does not ask for ever').rejects.toMatchObject({ kind: 'few', message });
  });
});

/** The same network for a process that does not take the listener of the member whose index it has. */
const elsewhere = (network: Network): Network =>
  Object.assign(Object.create(network) as Network, {
    transport: (self: number) => ({ ...network.transport(self), listen: async () => ({ close: async () => undefined }) }),
  });
