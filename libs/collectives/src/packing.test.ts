/** Packed sums, with a packing of two bytes for each element that is easy to follow. */
import { ProtocolError } from '@paceline/protocol';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { AllReducePlan, type AllReduceOptions } from './all-reduce.js';
import { groupsInMemory } from './group.fixture.js';
import type { Packing } from './packing.js';
import { nodesOf, piecesOf } from './parts.js';
import { TOPOLOGIES, type Topology } from './routes.js';

const HALVES = 7;
/** The upper half of each float32. */
const upper = (value: number): number => {
  const word = new Uint32Array(Float32Array.of(value).buffer);
  word[0]! &= 0xffff0000;
  return new Float32Array(word.buffer)[0]!;
};

function upperHalves(length: number, keys: string[] = []): Packing {
  return {
    number: HALVES,
    length,
    bytes: (elements) => elements * 2,
    pack: (from, into, key) => {
      keys.push(key.join(' '));
      const words = new Uint32Array(Float32Array.from(from).buffer);
      words.forEach((word, i) => new DataView(into.buffer, into.byteOffset).setUint16(i * 2, word >>> 16, true));
    },
    unpack: (from, into) => {
      const view = new DataView(from.buffer, from.byteOffset);
      const words = Uint32Array.from(into, (_, i) => view.getUint16(i * 2, true) << 16);
      into.set(new Float32Array(words.buffer));
      return true;
    },
  };
}

interface Given extends Omit<AllReduceOptions, 'self' | 'packing'> {
  /** Elements that are packed. */
  readonly packed: number;
}

async function reduced({ packed, ...options }: Given, rounds = 1) {
  const { members, replicas, length } = options;
  const groups = groupsInMemory(members);
  const keys: string[] = [];
  const plans = groups.map((_, self) => new AllReducePlan({ ...options, self, packing: upperHalves(packed, keys) }));
  const all = Array.from({ length: replicas }, (_, replica) => Float32Array.from({ length }, (__, i) => Math.sin(replica * 31 + i) + 1.1));
  const results: Float32Array[] = [];
  for (let round = 0; round < rounds; round++)
    await Promise.all(
      groups.map((group, self) => {
        const own = nodesOf(replicas, members, self).map(({ lo, hi }) =>
          all.slice(lo, hi).reduce((sum, vector) => sum.map((value, i) => value + vector[i]!), new Float32Array(length)),
        );
        results.push(own[0]!);
        return group.run({ what: `step ${round}`, operations: [plans[self]!.reduce(own, own[0]!)] });
      }),
    );
  for (const group of groups) group.leave('the test is over');
  const exact = Float64Array.from({ length }, (_, i) => all.reduce((sum, vector) => sum + vector[i]!, 0));
  return { results, groups, keys, exact, plans };
}

const bits = (vector: Float32Array): string => Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('hex');

it.each(TOPOLOGIES)(
  '%s: all members have one sum, near the exact one; the elements behind those that are packed are exact',
  async (topology) => {
    const shape = {
      members: fc.integer({ min: 1, max: 6 }),
      more: fc.integer({ min: 0, max: 5 }),
      length: fc.integer({ min: 1, max: 300 }),
      pieceLength: fc.integer({ min: 1, max: 90 }),
      share: fc.constantFrom(0, 0.4, 1),
      hosts: fc.array(fc.constantFrom('a', 'b'), { minLength: 6, maxLength: 6 }),
    };
    await fc.assert(
      fc.asyncProperty(fc.record(shape), async ({ more, share, hosts, ...given }) => {
        const packed = Math.floor(given.length * share);
        const options = { ...given, topology, packed, replicas: given.members + more, hosts: hosts.slice(0, given.members) };
        const { results, exact } = await reduced(options, 2);
        for (const result of results) expect(bits(result)).toBe(bits(results[0]!));
        results[0]!.forEach((value, i) => {
          // Each packing loses less than 1/128; a ring packs once for each hop.
          const hops = i < packed ? given.members + 1 : 0;
          expect(Math.abs(value / exact[i]! - 1)).toBeLessThanOrEqual(hops / 128 + 1e-6);
          if (hops > 0) expect(value).toBe(upper(value));
        });
      }),
      { numRuns: 20 },
    );
  },
);

it.each(['direct', 'ring', 'hierarchical'] as const)(
  '%s: takes half the bytes, where each element takes two',
  async (topology: Topology) => {
    const options = { members: 4, replicas: 4, length: 4_000, pieceLength: 300, topology, hosts: [...'aabb'] };
    const { groups } = await reduced({ ...options, packed: 4_000 });
    for (const { counters } of groups) expect(counters.sentBytes).toBe(((2 * 3) / 4) * 4_000 * 2);
  },
);

it('packs no two pieces under one key, in any round', async () => {
  const { keys } = await reduced({ members: 3, replicas: 7, length: 100, pieceLength: 20, packed: 90, topology: 'direct' }, 3);
  expect(keys.length).toBeGreaterThan(30);
  expect(new Set(keys).size).toBe(keys.length);
});

it('says that bits depend on the members', async () => {
  const { plans } = await reduced({ members: 2, replicas: 2, length: 10, packed: 10, topology: 'direct' });
  expect(plans.map(({ keepsOrder }) => keepsOrder)).toEqual([false, false]);
});

it('a piece lies on one side of the cut', () => {
  for (const cut of [0, 1, 5, 9, 10])
    for (const pieceLength of [1, 3, 20]) {
      const pieces = piecesOf(10, 2, pieceLength, cut);
      expect(pieces.map(({ index }) => index)).toEqual(pieces.map((_, i) => i));
      expect(pieces.reduce((sum, { offset, length }) => (expect(offset).toBe(sum), sum + length), 0)).toBe(10);
      for (const { offset, length } of pieces) expect(offset < cut && offset + length > cut).toBe(false);
    }
});

it('the optimizer in parts: sums are packed, parameters are not', async () => {
  const groups = groupsInMemory(2);
  const plans = groups.map(
    (_, self) => new AllReducePlan({ members: 2, self, replicas: 2, length: 10, isSharded: true, packing: upperHalves(10) }),
  );
  const vectors = groups.map(() => new Float32Array(10).fill(1.001));
  await Promise.all(
    groups.map((group, self) => group.run({ what: 'sums', operations: [plans[self]!.scatter([vectors[self]!], vectors[self]!)] })),
  );
  expect(vectors[1]![7]).toBe(Math.fround(Math.fround(1.001) + upper(1.001))); // its own part is exact
  for (const [self, vector] of vectors.entries()) vector.fill(1.0001, self * 5, self * 5 + 5);
  await Promise.all(groups.map((group, self) => group.run({ what: 'all', operations: [plans[self]!.gather(vectors[self]!)] })));
  for (const vector of vectors) expect(bits(vector)).toBe(bits(new Float32Array(10).fill(1.0001)));
  expect(groups.map(({ counters }) => counters.sentBytes)).toEqual([30, 30]);
  for (const group of groups) group.leave('the test is over');
});

it('a frame of another codec or length is refused, and so are bytes that hold no numbers', () => {
  const packing = upperHalves(4);
  const plan = new AllReducePlan({ members: 2, self: 0, replicas: 2, length: 4, packing: { ...packing, unpack: () => false } });
  const operation = plan.reduce([new Float32Array(4)], new Float32Array(4));
  const frame = { type: 2, chunk: 0, nodeLo: 1, nodeHi: 2, codec: HALVES, length: 4 } as const;
  const codeOf = (act: () => unknown): unknown => {
    try {
      return act();
    } catch (error) {
      return (error as ProtocolError).code;
    }
  };
  const given = (changes: object) => Object.assign({}, frame, changes) as unknown as Parameters<typeof operation.destination>[1];
  expect(codeOf(() => operation.destination(1, given({})))).toBeInstanceOf(Uint8Array);
  expect(codeOf(() => operation.destination(1, given({ codec: 0, length: 8 })))).toBe('BAD_CODEC');
  expect(codeOf(() => operation.destination(1, given({ length: 8 })))).toBe('WRONG_LENGTH');
  expect(codeOf(() => operation.received(1, given({})))).toBe('BAD_PAYLOAD');
});
