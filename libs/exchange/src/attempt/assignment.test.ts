import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { balancedAssignment, weightedAssignment } from './assignment.js';

const membersOf = (speeds: readonly number[]) => speeds.map((speed, i) => ({ id: `w${i}`, speed }));
const slowest = (members: ReturnType<typeof membersOf>, assignment: ReadonlyMap<string, readonly number[]>): number =>
  Math.max(...members.map(({ id, speed }) => assignment.get(id)!.length / speed));

describe('replicas by speed', () => {
  it('every replica once, in contiguous blocks in the order of the members', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0.01, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 20 }),
        fc.integer({ min: 1, max: 200 }),
        (speeds, replicas) => {
          const assignment = weightedAssignment(membersOf(speeds), replicas);
          expect([...assignment.values()].flat()).toEqual(Array.from({ length: replicas }, (_, i) => i));
          expect([...assignment.keys()]).toEqual(membersOf(speeds).map(({ id }) => id));
        },
      ),
    );
  });

  it('no round is slower than with equal blocks, and no single move makes it faster', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 1000 }), { minLength: 2, maxLength: 8 }),
        fc.integer({ min: 1, max: 64 }),
        (speeds, replicas) => {
          const members = membersOf(speeds);
          const assignment = weightedAssignment(members, replicas);
          const equal = balancedAssignment(
            members.map(({ id }) => id),
            replicas,
          );
          const ms = slowest(members, assignment);
          expect(ms).toBeLessThanOrEqual(slowest(members, equal) + 1e-9);
          for (const { id, speed } of members) expect((assignment.get(id)!.length + 1) / speed).toBeGreaterThanOrEqual(ms - 1e-9);
        },
      ),
    );
  });

  it('a worker of three times the speed gets three times the replicas; one that would hold up the others gets none', () => {
    expect(weightedAssignment(membersOf([3000, 1000]), 8)).toEqual(
      new Map([
        ['w0', [0, 1, 2, 3, 4, 5]],
        ['w1', [6, 7]],
      ]),
    );
    expect(weightedAssignment(membersOf([1000, 10]), 8).get('w1')).toEqual([]);
  });
});
