/** Groups of several workers: bits, bytes at the servers, what goes wrong, and mistakes that were planted. */
import type { Content, Handler, Received } from '@paceline/collectives';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { MemberGone } from './coordinator.js';
import { GroupCluster, ROWS, type Training } from './group-cluster.fixture.js';
import type { Sums } from './messages.js';

const WORKERS = 4;
let cluster: GroupCluster;
beforeAll(async () => void (cluster = await GroupCluster.start(WORKERS)));
afterAll(() => cluster.dispose());
afterEach(() => cluster.reset());

const STEPS = 4;
async function trained(workersPerGroup: number, options: Parameters<GroupCluster['train']>[1] = {}, among = cluster) {
  const training = await among.train(workersPerGroup, options);
  const losses: (readonly number[])[] = [];
  losses.push((await training.step()).losses);
  among.asked.clear();
  const before = among.serverBytes();
  for (let i = 1; i < STEPS; i++) losses.push((await training.step()).losses);
  const bytes = (among.serverBytes() - before) / (STEPS - 1);
  const asked = new Set(among.asked);
  const [outputs, parameters] = [await training.predict(), await training.parameters()];
  training.end();
  return { bytes, asked, ends: { losses, outputs, parameters }, whole: training.bytes };
}

it('one group: its head alone has connections to the servers, and each worker one to the worker above it', async () => {
  await trained(WORKERS);
  const [head] = cluster.workers;
  const ofServers = cluster.servers.flatMap((server) => [`0 ${server}`, `${head} ${server}`]);
  const ofWorkers = [...cluster.workers.map((worker) => `0 ${worker}`), '2 1', '3 1', '4 3'];
  expect([...cluster.connected].sort()).toEqual([...ofServers, ...ofWorkers].sort());
});

it('groups of two and of four workers have the bits of plain parameter servers, and groups / workers of the bytes at the servers', async () => {
  const plain = await trained(1);
  expect(plain.bytes).toBe(2 * WORKERS * plain.whole);
  for (const size of [2, 4]) {
    const { bytes, asked, ends } = await trained(size);
    expect(ends).toEqual(plain.ends);
    expect(bytes).toBe((plain.bytes * (WORKERS / size)) / WORKERS);
    const askers = (servers: readonly number[]): string[] =>
      [...asked].filter((pair) => servers.includes(Number(pair.split(' ')[1])) && !pair.startsWith('0 ')).sort();
    const heads = cluster.workers.filter((_, worker) => worker % size === 0);
    expect(askers(cluster.servers)).toEqual(heads.flatMap((head) => cluster.servers.map((server) => `${head} ${server}`)));
    expect(askers(cluster.workers)).toEqual(size === 2 ? ['2 1', '4 3'] : ['2 1', '3 1', '4 3']);
  }
});

it('three workers: a last group of one, and a group whose workers send several nodes, which are added in the order of the tree', async () => {
  const three = await GroupCluster.start(3);
  try {
    // With three replicas each, worker 1 has the nodes [3, 4) and [4, 6) of nine.
    for (const [size, each] of [
      [2, 1],
      [3, 3],
    ] as const) {
      const [plain, grouped] = [await trained(1, { each }, three), await trained(size, { each }, three)];
      expect(grouped.ends).toEqual(plain.ends);
      expect(grouped.bytes).toBe(2 * grouped.whole * Math.ceil(3 / size));
    }
  } finally {
    await three.dispose();
  }
});

it('a loss and a learning rate that are no numbers stay so: nothing takes them for 0', async () => {
  const training = await cluster.train(1);
  const { losses } = await training.step({ input: Number.NaN });
  expect(losses.some(Number.isNaN)).toBe(true);
  training.end();
  const another = await cluster.train(1);
  await another.step({ rate: Number.NaN });
  expect((await another.values()).some(Number.isNaN)).toBe(true);
  another.end();
});

it('a codec encodes the sum of a group once: the bytes are those of the groups, and every session has the same bits', async () => {
  const [plain, one, again] = [
    await trained(1, { codec: 'int8' }),
    await trained(2, { codec: 'int8' }),
    await trained(2, { codec: 'int8' }),
  ];
  expect(again.ends).toEqual(one.ends);
  expect(one.bytes).toBe(plain.bytes / 2);
  const feedback = await trained(4, { codec: 'sign' });
  expect(feedback.ends).toEqual((await trained(4, { codec: 'sign' })).ends);
  expect(feedback.bytes).toBeLessThan(one.bytes);
});

it('a replica that fails in any worker of a group is told, nothing has changed, and training goes on', async () => {
  const ends = [];
  for (const size of [1, 4]) {
    const training = await cluster.train(size);
    await training.step();
    const before = await training.parameters();
    for (const replica of [3, 2, 1, 0]) {
      const { failures } = await training.step({ bad: replica * (ROWS / WORKERS) });
      expect(failures).toMatchObject([{ replica }]);
      expect(await training.parameters()).toBe(before);
      await training.predict();
    }
    const { losses } = await training.step();
    ends.push({ losses, parameters: await training.parameters() });
    training.end();
  }
  expect(ends[1]).toEqual(ends[0]);
});

/** The fault of a step that cannot be taken, and how long it took. */
async function faultOf(training: Training): Promise<{ readonly fault: Error; readonly tookMs: number }> {
  const begunMs = performance.now();
  const fault = await training.step().then(
    () => new Error('the step was taken'),
    (error: unknown) => error as Error,
  );
  return { fault, tookMs: performance.now() - begunMs };
}

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
it.runIf(IS_SOAK).each([
  ['a worker below the head', 2],
  ['one in the middle', 3],
  ['the head', 1],
])('%s that dies between two steps is named at once; the next session trains', async (_, victim) => {
  const training = await cluster.train(4);
  await training.step();
  await cluster.kill(victim);
  for (let i = 0; i < 2; i++) {
    const { fault, tookMs } = await faultOf(training);
    expect(fault).toBeInstanceOf(MemberGone);
    expect((fault as MemberGone).places, fault.message).toEqual([victim]);
    expect(fault.message).toContain('its process has died or was ended');
    expect(tookMs).toBeLessThan(10_000);
  }
  training.end();
  await cluster.serve(victim);
  expect((await trained(4)).ends.losses).toHaveLength(STEPS);
});

it.each(
  IS_SOAK
    ? ([
        ['a worker below the head', 2],
        ['one below another', 4],
        ['the head', 1],
      ] as const)
    : [['one below another', 4] as const],
)('%s that stands still is named after the deadline, by whoever waits for it', async (_, victim) => {
  const training = await cluster.train(4, { deadlineMs: 1_500 });
  await training.step();
  let isHeld = false;
  cluster.plants.set(victim, (_from, name, received, own) => {
    if (name !== 'step') return own(name, received);
    isHeld = true;
    return new Promise(() => undefined);
  });
  const { fault, tookMs } = await faultOf(training);
  expect(isHeld).toBe(true);
  expect((fault as MemberGone).places, fault.message).toEqual([victim]);
  expect(tookMs).toBeLessThan(20_000);
  training.end();
});

const SEEDS = IS_SOAK ? 40 : 1;
it('whatever the order in which requests are handled, the bits are the same', async () => {
  const { ends } = await trained(1);
  for (let seed = 1; seed <= SEEDS; seed++) {
    let state = seed;
    const draw = (): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
    let held = 0;
    for (const place of [...cluster.workers, ...cluster.servers])
      cluster.plants.set(place, async (_, name, received, own) => {
        const [beforeMs, afterMs] = [draw() * 8, draw() * 8];
        held++;
        await new Promise((resolve) => setTimeout(resolve, beforeMs));
        const answer = await own(name, received);
        await new Promise((resolve) => setTimeout(resolve, afterMs));
        return answer;
      });
    expect((await trained(seed % 2 === 0 ? 2 : 4)).ends, `seed ${seed}`).toEqual(ends);
    expect(held).toBeGreaterThan(STEPS * WORKERS);
    cluster.reset();
  }
});

const VICTIMS = IS_SOAK ? [1, 2, 3, 4] : [3];
it.each(VICTIMS)(
  'the worker at place %i dies at each request of a step: it is named, and nothing of the step is applied',
  async (victim) => {
    for (let at = 0; ; at++) {
      const training = await cluster.train(4);
      await training.step();
      const before = await training.parameters();
      let [requests, killed] = [0, undefined as Promise<void> | undefined];
      cluster.plants.set(victim, async (_, name, received, own) => {
        if (name === 'awake' || requests++ !== at) return own(name, received);
        const answer = own(name, received);
        answer.catch(() => undefined);
        await (killed = cluster.kill(victim));
        return answer;
      });
      const { fault } = await faultOf(training);
      await killed;
      if (!killed) break;
      expect((fault as MemberGone).places, `request ${at}: ${fault.message}`).toEqual([victim]);
      expect(await training.parameters(), `request ${at}`).toBe(before);
      training.end();
      cluster.reset();
      await cluster.serve(victim);
    }
  },
);

describe('mistakes that were planted are found:', () => {
  it('a sum that comes twice, from a worker or from a group', async () => {
    for (const place of [1, cluster.servers[0]!]) {
      const training = await cluster.train(2);
      await training.step();
      cluster.plants.set(place, async (_, name, received, own) => {
        if (name === 'sums') await own(name, received);
        return own(name, received);
      });
      expect((await faultOf(training)).fault.message).toMatch(/the sum of the replicas .* came twice in round/);
      training.end();
      cluster.plants.clear();
    }
  });

  it('a sum of other replicas, of the round before, and of a worker that is not below', async () => {
    const messages = [];
    const isSum = (name: string, { body }: Received): boolean => name === 'sums' && (body as Sums).hasFailed !== true;
    for (const change of [{ nodes: [{ lo: 0, hi: 1 }] }, { round: 1 }, { session: 'another' }]) {
      const training = await cluster.train(4);
      await training.step();
      await training.step();
      cluster.plants.set(3, (_, name, received, own) =>
        own(name, isSum(name, received) ? { ...received, body: { ...(received.body as object), ...change } } : received),
      );
      messages.push((await faultOf(training)).fault.message);
      training.end();
      cluster.plants.clear();
    }
    expect(messages[0]).toContain('sums of other replicas than 3 to 3 came');
    expect(messages[1]).toMatch(/a sum of round 1 came in round \d+/);
    expect(messages[2]).toContain('serves another session');
  });

  it('parameters of two generations that are handed on', async () => {
    const training = await cluster.train(4);
    const first = new Map<string, Content>();
    let hasFired = false;
    cluster.plants.set(3, async (_, name, received, own) => {
      const { server } = received.body as { readonly server?: number };
      const answer = await own(name, received);
      if (name !== 'read' || server !== 1) return answer;
      const old = first.get('1') ?? { body: answer.body, parts: answer.parts!.map((part) => part.slice()) };
      first.set('1', old);
      hasFired ||= old.body !== answer.body;
      return old;
    });
    await training.step();
    const { fault } = await faultOf(training);
    expect(hasFired).toBe(true);
    expect(fault.message).toMatch(/worker 2 .* gave parameters of generation \d+, and this step needs those of \d+: nothing was computed/);
    training.end();
  });

  it('a group whose sum is counted twice, and a part of it that is old: other bits', async () => {
    const { ends } = await trained(2);
    const doubled = (part: Uint8Array): Uint8Array => {
      const floats = new Float32Array(part.slice().buffer);
      return new Uint8Array(floats.map((value) => 2 * value).buffer);
    };
    let old: readonly Uint8Array[] | undefined;
    for (const plant of [
      async (name: string, received: Received, own: Handler) =>
        own(name, name === 'sums' ? { ...received, parts: received.parts.map(doubled) } : received),
      async (name: string, received: Received, own: Handler) => {
        const answer = await own(name, received);
        if (name !== 'read') return answer;
        old ??= answer.parts!.map((part) => part.slice());
        return { ...answer, parts: old };
      },
    ]) {
      cluster.plants.set(1, (from, name, received, own) => (from === 0 ? own(name, received) : plant(name, received, own)));
      expect((await trained(2)).ends.parameters).not.toBe(ends.parameters);
      cluster.plants.clear();
    }
  });
});
