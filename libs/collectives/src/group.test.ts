/** Groups in memory: sums with the bits of the tree, bytes, failures, disagreement, deaths, silence. */
import type { Clock } from '@paceline/exchange';
import { split } from '@paceline/learning';
import { FrameType, type FrameHeader } from '@paceline/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AllReducePlan } from './all-reduce.js';
import { MemberLostError } from './errors.js';
import type { Group } from './group.js';
import { groupsInMemory } from './group.fixture.js';
import { nodesOf, replicasOf } from './parts.js';
import { Spread } from './spread.js';

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

/** What each member gets, and the bytes of gradients and sums that it has sent and received. */
async function allReduced(members: number, replicas: number, length: number, pieceLength: number, rounds = 1) {
  const groups = groupsInMemory(members);
  const results = groups.map(() => new Float32Array(length));
  const plans = groups.map((_, self) => new AllReducePlan({ members, self, replicas, length, pieceLength }));
  const all = gradients(replicas, length);
  for (let round = 0; round < rounds; round++)
    await Promise.all(
      groups.map((group, self) => {
        const own = nodesOf(replicas, members, self).map(({ lo, hi }) => treeSum(all, lo, hi));
        return group.run({ what: `step ${round}`, operations: [plans[self]!.reduce(own, results[self]!)] });
      }),
    );
  for (const group of groups) group.leave('the test is over');
  return { results, counters: groups.map(({ counters }) => counters), expected: treeSum(all, 0, replicas) };
}

describe('all-reduce', () => {
  it('gives every member the bits of the tree over all replicas, whatever the numbers', async () => {
    const cases = fc.record({
      members: fc.integer({ min: 1, max: 8 }),
      more: fc.integer({ min: 0, max: 9 }),
      length: fc.integer({ min: 1, max: 500 }),
      pieceLength: fc.integer({ min: 1, max: 300 }),
    });
    await fc.assert(
      fc.asyncProperty(cases, async ({ members, more, length, pieceLength }) => {
        const { results, expected } = await allReduced(members, members + more, length, pieceLength, 2);
        for (const result of results) expect(bits(result)).toBe(bits(expected));
      }),
      { numRuns: 40 },
    );
  });

  it.each([2, 3, 4, 5, 6, 7, 8])('moves 2(n − 1)/n of the vector per member, with %i members', async (members) => {
    const length = 40_003;
    const { counters } = await allReduced(members, members * 2, length, 1 << 10);
    for (const { sentBytes, receivedBytes } of counters)
      for (const bytes of [sentBytes, receivedBytes]) {
        const share = bytes / (((2 * (members - 1)) / members) * length * 4);
        expect(Math.abs(share - 1)).toBeLessThan(0.01);
      }
  });

  it('replicas are shared out whole, and each member has some', () => {
    for (let members = 1; members <= 8; members++)
      for (let replicas = members; replicas < 20; replicas++) {
        const shares = Array.from({ length: members }, (_, member) => replicasOf(replicas, members, member));
        expect(shares[0]!.from).toBe(0);
        expect(shares.at(-1)!.to).toBe(replicas);
        shares.forEach(({ from, to }, i) => {
          expect(to).toBeGreaterThan(from);
          if (i > 0) expect(from).toBe(shares[i - 1]!.to);
        });
      }
  });
});

describe('spread', () => {
  it('broadcasts and gathers, with small values beside', async () => {
    const groups = groupsInMemory(3);
    const vectors = groups.map((_, self) => Float32Array.from({ length: 300_000 }, (__, i) => (self === 0 ? i : 0)));
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

  /** A clock that is wound by hand. */
  function wound() {
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

  it('waits no longer than the deadline, and says for whom and for what', async () => {
    const { clock, pass } = wound();
    const groups = groupsInMemory(3, { clock, deadlineMs: 500 });
    const running = [0, 2].map((i) => lost(groups[i]!.run({ what: 'step 1', ...nothing })));
    for (let i = 0; i < 50; i++) await pass(100);
    const [error] = await Promise.all(running);
    expect(error!.members).toEqual([1]);
    expect(error!.message).toContain('waited 500 ms for worker 1 to begin "step 1"');
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
    void groups[1]!.run({ what: 'the weights', operations: operations(1) }); // it never ends
    const { peers } = groups[0] as unknown as { peers: { member: number; calls: unknown[]; gone?: string }[] };
    const ofDead = peers.find(({ member }) => member === 1)!;
    await expect.poll(() => ofDead.calls.length).toBe(1);
    groups[1]!.leave('it dies');
    await expect.poll(() => ofDead.gone).toContain('has left');
    const errors = await Promise.all([0, 2].map((self) => lost(groups[self]!.run({ what: 'the weights', operations: operations(self) }))));
    for (const error of errors) expect([error.members, error.message.includes('worker 1 has left: it dies')]).toEqual([[1], true]);
  });
});
