/** The replicas of each member. */
import { expect, it } from 'vitest';
import { replicasOf } from './parts.js';

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
