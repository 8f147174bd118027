/** Groups in memory: sums with the bits of the tree, bytes, failures, disagreement, deaths, silence. */
import type { Clock } from '@paceline/exchange';
import { split } from '@paceline/learning';
import { FrameType, type FrameHeader } from '@paceline/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AllReducePlan } from './all-reduce.js';
import { MemberLostError } from './errors.js';
import type { Group } from './group.js';
import { groupsInMemory, wound } from './group.fixture.js';
import type { Operation } from './operation.js';
import { nodesOf, rangeOf } from './parts.js';
import { keepsOrder, routeOf, TOPOLOGIES, type Topology } from './routes.js';
import { Spread } from './spread.js';

/** Bytes of data by member. */
const received = (group: Group): [number, number][] =>
  (group as unknown as { peers: { member: number; link: { connection: { receivedDataBytes: number } } }[] }).peers.map((peer) => [
    peer.member,
    peer.link.connection.receivedDataBytes,
  ]);
/** Numbers whose sum depends on the order. */
function gradients(replicas: number, length: number): Float32Array[] {
  let state = 7;
  const next = (): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32 - 0.5;
  return Array.from({ length: replicas }, () => Float32Array.from({ length }, () => next() * 10 ** Math.round(next() * 8)));
}
function treeSum(vectors: readonly Float32Array[], lo: number, hi: number): Float32Array {
  if (hi - lo === 1) return vectors[lo]!.slice();
  const middle = split(lo, hi);
  const right = treeSum(vectors, middle, hi);
  return treeSum(vectors, lo, middle).map((value, i) => value + right[i]!);
}
const bits = (vector: Float32Array): string => Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('hex');

interface Case {
  readonly members: number;
  readonly replicas: number;
  readonly length: number;
  readonly pieceLength: number;
  readonly topology?: Topology;
  readonly hosts?: readonly string[];
  readonly rounds?: number;
  /** The result is the first vector, as in an arena. */
  readonly inPlace?: boolean;
}

/** What each member gets in each round, and the bytes of gradients and sums that it has sent and received. */
async function allReduced({ rounds = 1, inPlace = false, ...options }: Case) {
  const { members, replicas, length } = options;
  const groups = groupsInMemory(members);
  const plans = groups.map((_, self) => new AllReducePlan({ ...options, self }));
  const all = gradients(replicas, length);
  const results: Float32Array[] = [];
  for (let round = 0; round < rounds; round++)
    await Promise.all(
      groups.map((group, self) => {
        const own = nodesOf(replicas, members, self).map(({ lo, hi }) => treeSum(all, lo, hi));
        const result = inPlace ? own[0]! : new Float32Array(length);
        results.push(result);
        return group.run({ what: `step ${round}`, operations: [plans[self]!.reduce(own, result)] });
      }),
    );
  for (const group of groups) group.leave('the test is over');
  return { results, groups, keepsOrder: plans[0]!.keepsOrder, expected: treeSum(all, 0, replicas), all };
}

const shape = {
  members: fc.integer({ min: 1, max: 8 }),
  more: fc.integer({ min: 0, max: 9 }),
  length: fc.integer({ min: 1, max: 500 }),
  pieceLength: fc.integer({ min: 1, max: 300 }),
  inPlace: fc.boolean(),
};

describe('all-reduce', () => {
  it.each(['direct', 'tree'] as const)(
    '%s gives every member the bits of the tree over all replicas, whatever the numbers',
    async (topology) => {
      await fc.assert(
        fc.asyncProperty(fc.record(shape), async ({ more, ...given }) => {
          const { results, expected } = await allReduced({ ...given, topology, replicas: given.members + more, rounds: 2 });
          for (const result of results) expect(bits(result)).toBe(bits(expected));
        }),
        { numRuns: 25 },
      );
    },
  );

  it.each(['ring', 'hierarchical'] as const)(
    '%s gives every member the same bits in every run, and those of the tree where it says so',
    async (topology) => {
      const cases = fc.record({ ...shape, hosts: fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 8, maxLength: 8 }) });
      await fc.assert(
        fc.asyncProperty(cases, async ({ more, hosts, ...given }) => {
          const options = { ...given, topology, hosts: hosts.slice(0, given.members), replicas: given.members + more, rounds: 2 };
          const { results, expected, all, keepsOrder: keeps } = await allReduced(options);
          for (const result of results) expect(bits(result)).toBe(bits(keeps ? expected : results[0]!));
          results[0]!.forEach((value, i) => {
            const size = all.reduce((sum, vector) => sum + Math.abs(vector[i]!), 0);
            expect(Math.abs(value - expected[i]!)).toBeLessThanOrEqual(size * 2e-6);
          });
        }),
        { numRuns: 25 },
      );
    },
  );

  it('says which order keeps its bits', () => {
    const hosts = (names: string): string[] => [...names];
    expect(keepsOrder('ring', hosts('ab'), 4)).toBe(true);
    expect(keepsOrder('ring', hosts('abc'), 3)).toBe(false);
    expect(keepsOrder('hierarchical', hosts('aabb'), 8)).toBe(true);
    expect(keepsOrder('hierarchical', hosts('aab'), 3)).toBe(true);
    expect(keepsOrder('hierarchical', hosts('abab'), 4)).toBe(false);
    expect(keepsOrder('hierarchical', hosts('aaabbb'), 6)).toBe(false);
  });

  it.each([2, 3, 4, 5, 6, 7, 8])('moves 2(n − 1)/n of the vector per member, with %i members', async (members) => {
    const length = 8_003;
    const bound = ((2 * (members - 1)) / members) * length * 4;
    for (const topology of ['direct', 'ring', 'hierarchical'] as const) {
      const hosts = Array.from({ length: members }, (_, i) => (i < Math.ceil(members / 2) ? 'a' : 'b'));
      const { groups } = await allReduced({ members, replicas: members * 2, length, pieceLength: 300, topology, hosts });
      if (topology === 'hierarchical' && members % 2 === 1) continue; // hosts of unequal size share unequally
      for (const { counters } of groups)
        for (const bytes of [counters.sentBytes, counters.receivedBytes]) expect(Math.abs(bytes / bound - 1)).toBeLessThan(0.01);
    }
  });

  it.each([2, 3, 4, 5, 6, 7, 8])(
    'a ring of %i members uses the links between neighbours alone, each for 2(n − 1)/n of the vector',
    async (members) => {
      const length = 8_003;
      const { groups } = await allReduced({ members, replicas: members * 2, length, pieceLength: 300, topology: 'ring' });
      for (const [self, group] of groups.entries())
        for (const [member, bytes] of received(group)) {
          const bound = member === (self + members - 1) % members ? ((2 * (members - 1)) / members) * length * 4 : 0;
          expect(Math.abs(bytes - bound)).toBeLessThanOrEqual(bound * 0.01);
        }
    },
  );

  it('hosts exchange 2(H − 1)/H of the vector among each other, however many members they have', async () => {
    const [hosts, length] = [[...'aabbaabb'], 8_000];
    const { groups } = await allReduced({ members: 8, replicas: 8, length, pieceLength: 300, topology: 'hierarchical', hosts });
    const between = groups
      .flatMap((group, self) => (hosts[self] === 'a' ? [...received(group)] : []))
      .filter(([member]) => hosts[member] === 'b');
    expect(between.reduce((sum, [, bytes]) => sum + bytes, 0)).toBe(length * 4);
  });

  it('a tree needs at most ⌈log₂ n⌉ hops up and as many down, and n − 1 messages each way', () => {
    for (let members = 1; members <= 17; members++)
      for (const owner of [0, members - 1]) {
        const { up } = routeOf(
          'tree',
          Array.from({ length: members }, () => 'a'),
          owner,
        );
        const hops = (member: number): number => (up[member] === undefined ? 0 : 1 + hops(up[member]));
        expect(up[owner]).toBeUndefined();
        expect(Math.max(...up.map((_, member) => hops(member)))).toBeLessThanOrEqual(Math.ceil(Math.log2(members)));
        expect(up.filter((to) => to !== undefined).length).toBe(members - 1);
      }
  });

  it.each(TOPOLOGIES)('%s: its halves give each member the sums of its range, and all members the ranges of all', async (topology) => {
    const [members, replicas, length] = [5, 7, 1003];
    const options = { members, replicas, length, pieceLength: 100, topology, hosts: [...'aabba'], isSharded: true };
    const { results } = await allReduced(options);
    const groups = groupsInMemory(members);
    const all = gradients(replicas, length);
    const plans = groups.map((_, self) => new AllReducePlan({ ...options, self }));
    const vectors = await Promise.all(
      groups.map(async (group, self) => {
        const own = nodesOf(replicas, members, self).map(({ lo, hi }) => treeSum(all, lo, hi));
        await group.run({ what: 'sums', operations: [plans[self]!.scatter(own, own[0]!)] });
        const { offset, length: count } = rangeOf(length, members, self);
        expect(bits(own[0]!.slice(offset, offset + count))).toBe(bits(results[self]!.slice(offset, offset + count)));
        for (let i = 0; i < length; i++) if (i < offset || i >= offset + count) own[0]![i] = NaN;
        await group.run({ what: 'all', operations: [plans[self]!.gather(own[0]!)] });
        return own[0]!;
      }),
    );
    vectors.forEach((vector, i) => expect(bits(vector)).toBe(bits(results[i]!)));
    for (const group of groups) group.leave('the test is over');
  });

  it.each([
    { members: 4, replicas: 20, isSharded: false, late: 1, at: 2, child: 3 },
    { members: 3, replicas: 9, isSharded: true, late: 2, at: 0, child: 1 },
  ])('a sum of others alone goes on when all calls are here: tree, %j', async ({ late, at, child, ...options }) => {
    const { members, replicas } = options;
    const length = 30;
    const groups = groupsInMemory(members);
    const plans = groups.map((_, self) => new AllReducePlan({ ...options, self, length, topology: 'tree' }));
    const all = gradients(replicas, length);
    type Peer = { member: number; link: { connection: { sendMessage(...given: unknown[]): void } } };
    const towards = (groups[late] as unknown as { peers: Peer[] }).peers.find(({ member }) => member === at)!.link.connection;
    const send = towards.sendMessage.bind(towards);
    let call: () => void = () => undefined;
    towards.sendMessage = (...given) => void (call = () => send(...given));
    const results = groups.map((group, self) => {
      const own = nodesOf(replicas, members, self).map(({ lo, hi }) => treeSum(all, lo, hi));
      const result = new Float32Array(length);
      const { offset, length: count } = options.isSharded ? rangeOf(length, members, self) : { offset: 0, length };
      const operation = options.isSharded ? plans[self]!.scatter(own, result) : plans[self]!.reduce(own, result);
      return group.run({ what: 'step 1', operations: [operation] }).then(() => [result, offset, offset + count] as const);
    });
    for (const result of results) result.catch(() => undefined);
    const ofChild = (): number => received(groups[at]!).find(([member]) => member === child)![1];
    await expect.poll(ofChild).toBeGreaterThan(0); // its child has all calls, and has sent
    call();
    const expected = treeSum(all, 0, replicas);
    for (const [result, from, to] of await Promise.all(results)) expect(bits(result.slice(from, to))).toBe(bits(expected.slice(from, to)));
    for (const group of groups) group.leave('the test is over');
  });
});

describe('spread', () => {
  it('broadcasts and gathers, with small values beside', async () => {
    const groups = groupsInMemory(3);
    const vectors = groups.map((_, self) => new Float32Array(1_100_000).map((__, i) => (self === 0 ? i : 0)));
    const gathered = groups.map((_, self) => Float32Array.from({ length: 3 }, (__, i) => (i === self ? self + 1 : 0)));
    const called = await Promise.all(
      groups.map((group, self) =>
        group.run({
          what: 'weights',
          values: Uint8Array.of(self),
          operations: [
            new Spread(3, self, [{ member: 0, values: vectors[self]! }]),
            new Spread(
              3,
              self,
              [0, 1, 2].map((member) => ({ member, values: gathered[self]!.subarray(member, member + 1) })),
            ),
          ],
        }),
      ),
    );
    for (const vector of vectors) expect(vector.every((value, i) => value === i)).toBe(true);
    for (const values of gathered) expect([...values]).toEqual([1, 2, 3]);
    for (const { values } of called) expect(values.map(([value]) => value)).toEqual([0, 1, 2]);
    for (const group of groups) group.leave('the test is over');
  });
});

it('sends one view of memory to all, so that its checksum is taken once', () => {
  const sent: Uint8Array[] = [];
  const send = (_: number, __: unknown, payload: Uint8Array): void => void sent.push(payload);
  new Spread(3, 0, [{ member: 0, values: new Float32Array(5) }]).start(send);
  const operation = new AllReducePlan({ members: 3, self: 0, replicas: 3, length: 3 }).reduce([new Float32Array(3)], new Float32Array(3));
  operation.start(send);
  for (const member of [1, 2])
    operation.received(member, { type: FrameType.gradient, chunk: 0, nodeLo: member, nodeHi: member + 1 } as FrameHeader);
  expect(sent.length).toBe(6); // two of the spread, two gradients, two of the sum
  expect([sent[1] === sent[0], sent[5] === sent[4]]).toEqual([true, true]);
});

describe('a group', () => {
  const nothing = { operations: [] };
  const lost = async (running: Promise<unknown>): Promise<MemberLostError> => {
    const error: unknown = await running.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(MemberLostError);
    return error as MemberLostError;
  };
  const ended = (groups: readonly Group[]): void => groups.forEach((group) => group.leave('the test is over'));

  it('leaves an operation out together when one member fails, and goes on', async () => {
    const groups = groupsInMemory(3);
    const results = groups.map(() => new Float32Array(10).fill(9));
    const plans = groups.map((_, self) => new AllReducePlan({ members: 3, self, replicas: 3, length: 10 }));
    const failing = await Promise.all(
      groups.map((group, self) =>
        group.run({
          what: 'step 1',
          failures: self === 0 ? [] : [{ replica: 3 - self, message: `replica ${3 - self}` }],
          operations: [plans[self]!.reduce([new Float32Array(10)], results[self]!)],
        }),
      ),
    );
    for (const { failures } of failing) expect(failures.map(({ replica }) => replica)).toEqual([1, 2]);
    expect(results.every((result) => result.every((value) => value === 9))).toBe(true);
    expect(groups.every(({ counters }) => counters.sentBytes === 0)).toBe(true);
    await Promise.all(
      groups.map((group, self) =>
        group.run({ what: 'step 1', operations: [plans[self]!.reduce([new Float32Array(10).fill(1)], results[self]!)] }),
      ),
    );
    expect(results.every((result) => result.every((value) => value === 3))).toBe(true);
    ended(groups);
  });

  it('an operation in which this member leaves ends', async () => {
    const groups = groupsInMemory(2);
    const running = lost(groups[0]!.run({ what: 'step 1', ...nothing }));
    groups[0]!.leave('it was told to');
    expect((await running).message).toBe('this member has left: it was told to');
  });

  it('says who is at something else', async () => {
    const groups = groupsInMemory(2);
    const [a, b] = await Promise.all(groups.map((group, i) => lost(group.run({ what: `step ${i + 1}`, ...nothing }))));
    expect(a!.message).toContain('worker 1 is at "step 2", and worker 0 at "step 1"');
    expect(b!.message).toContain('step 2');
  });

  it('names a member that dies to all others, in the middle of an operation and between two', async () => {
    for (const isBetween of [true, false]) {
      const groups = groupsInMemory(4);
      const running = isBetween ? [] : [0, 1, 3].map((i) => lost(groups[i]!.run({ what: 'step 1', ...nothing })));
      (groups[2] as unknown as { peers: { link: { connection: { close(): void } } }[] }).peers.forEach(({ link }) =>
        link.connection.close(),
      );
      const errors = await Promise.all(isBetween ? [0, 1, 3].map((i) => lost(groups[i]!.run({ what: 'step 1', ...nothing }))) : running);
      for (const error of errors) {
        expect(error.members).toEqual([2]);
        expect(error.message).toContain('worker 2');
      }
    }
  });

  it('is told whose fault it was by a member that has noticed', async () => {
    const groups = groupsInMemory(3);
    const running = [0, 1].map((i) => lost(groups[i]!.run({ what: 'step 1', ...nothing })));
    const { peers } = groups[0] as unknown as { peers: { member: number; link: { connection: { close(): void } } }[] };
    peers.find(({ member }) => member === 2)!.link.connection.close(); // worker 1 still reaches worker 2
    const [first, second] = await Promise.all(running);
    expect([first!.members, second!.members]).toEqual([[2], [2]]);
    expect(second!.message).toContain('(said by worker 0)');
    groups[2]!.leave('the test is over');
  });

  it('does not mind a member that has done its part and is gone', async () => {
    const groups = groupsInMemory(3);
    await Promise.all(
      groups.map((group) => group.run({ what: 'step 1', ...nothing }).then(() => group === groups[1] && group.leave('done'))),
    );
    const error = await lost(groups[0]!.run({ what: 'step 2', ...nothing }));
    expect(error.members).toEqual([1]);
    expect(error.message).toContain('has left: done');
  });

  /** It receives, and does nothing with it. */
  const standing = (operation: Operation): Operation => ({
    start: () => undefined,
    destination: (member, header) => operation.destination(member, header),
    received: () => undefined,
    missingOf: () => 1,
  });

  it('waits no longer than the deadline, and says for whom and for what', async () => {
    const { clock, pass } = wound();
    const groups = groupsInMemory(3, { clock, deadlineMs: 500 });
    const running = [0, 2].map((i) => lost(groups[i]!.run({ what: 'step 1', ...nothing })));
    for (let i = 0; i < 50; i++) await pass(100);
    const [error] = await Promise.all(running);
    expect(error!.members).toEqual([1]);
    expect(error!.message).toContain('waited 500 ms for worker 1 to begin "step 1"');
  });

  it('in a ring names the member that stands still, not those that wait for the one before them', async () => {
    const { clock, pass } = wound();
    const stopped: Clock = { ...clock, every: () => () => undefined };
    let looks = 0;
    // The member behind it, which has waited for the longest time, is the last one to look.
    const late: Clock = { ...clock, every: (ms, act) => clock.every(ms, () => ++looks % 7 === 0 && act()) };
    const groups = groupsInMemory(5, { clock: (self) => [clock, clock, stopped, late, clock][self]!, deadlineMs: 2000 });
    const plans = groups.map((_, self) => new AllReducePlan({ members: 5, self, replicas: 5, length: 50, topology: 'ring' }));
    const running = groups.map((group, self) => {
      const whole = plans[self]!.reduce([new Float32Array(50)], new Float32Array(50));
      return group.run({ what: 'step 1', operations: [self === 2 ? standing(whole) : whole] });
    });
    const errors = Promise.all([0, 1, 3, 4].map((i) => lost(running[i]!)));
    void running[2]!.catch(() => undefined);
    for (let i = 0; i < 100; i++) await pass(100);
    for (const { members } of await errors) expect(members).toEqual([2]);
  });

  it('takes others that are silent for lost too, when it is told of one of them: they are not waited for one after the other', async () => {
    const { clock, pass } = wound();
    const stopped: Clock = { ...clock, every: () => () => undefined };
    const told = async (silentMs: number): Promise<readonly number[]> => {
      const groups = groupsInMemory(5, { clock: (self) => (self < 3 ? clock : stopped), deadlineMs: 2000 });
      const operations = groups.map((group) => group.run({ what: 'step 1', operations: [] }).catch((error: MemberLostError) => error));
      await Promise.all(operations);
      const second = groups.slice(0, 3).map((group) => group.run({ what: 'step 2', operations: [] }));
      const ends = second.map((operation) => operation.catch((error: MemberLostError) => error));
      for (let ms = 0; ms < silentMs; ms += 100) await pass(100);
      groups[0]!.fail(new MemberLostError([3], 'waited for worker 3'));
      return ((await ends[1]) as MemberLostError).members;
    };
    expect(await told(1_500)).toEqual([3, 4]);
    expect(await told(500), 'nobody is silent yet').toEqual([3]);
  });

  it('goes on after a stall of the whole process, however long', async () => {
    const { clock, pass } = wound();
    const groups = groupsInMemory(2, { clock, deadlineMs: 500 });
    const first = groups[0]!.run({ what: 'step 1', ...nothing });
    for (let i = 0; i < 3; i++) await pass(100);
    for (let i = 0; i < 3; i++) await pass(60_000);
    await Promise.all([first, groups[1]!.run({ what: 'step 1', ...nothing })]);
    ended(groups);
  });

  it('ends at once, without the deadline, when data is for a member that has called and died', async () => {
    const { clock } = wound();
    const groups = groupsInMemory(3, { clock });
    const operations = (self: number) => [new Spread(3, self, [{ member: 0, values: new Float32Array(10) }])];
    const dying = lost(groups[1]!.run({ what: 'the weights', operations: operations(1) }));
    const { peers } = groups[0] as unknown as { peers: { member: number; calls: unknown[]; gone?: string }[] };
    const ofDead = peers.find(({ member }) => member === 1)!;
    await expect.poll(() => ofDead.calls.length).toBe(1);
    groups[1]!.leave('it dies');
    await dying;
    await expect.poll(() => ofDead.gone).toContain('has left');
    const errors = await Promise.all([0, 2].map((self) => lost(groups[self]!.run({ what: 'the weights', operations: operations(self) }))));
    for (const error of errors) expect([error.members, error.message.includes('worker 1 has left: it dies')]).toEqual([[1], true]);
  });
});
