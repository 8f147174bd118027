import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { expect, it } from 'vitest';
import type { Fleet, FleetRole } from '../fleet/fleet.js';
import { FleetMemory } from './fleet-memory.js';

type Member = { readonly id: string; readonly memoryBytes?: number; readonly isGone?: boolean };

async function said(members: Partial<Record<FleetRole, readonly Member[]>>, input: RunSpecInput = {}): Promise<string | undefined> {
  const fleet = {
    list: async (role: FleetRole) => (members[role] ?? []).map((member) => Object.assign({ host: 'h' }, member)),
    isAlive: ({ isGone }: Member) => !isGone,
    isCompatible: () => true,
  } as unknown as Fleet;
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error('the spec is wrong');
  return (await new FleetMemory(fleet).issueOf(parsed.spec, 50_000_000))?.message;
}

const large = (id: string): Member => ({ id, memoryBytes: 8e9 });

it('refuses what the largest worker or server cannot hold, with the numbers', async () => {
  expect(
    await said({
      worker: [
        { id: 'w1', memoryBytes: 5e8 },
        { id: 'w2', memoryBytes: 9e8 },
      ],
      server: [large('s')],
    }),
  ).toBe(
    'has 50000000 parameters (state included): a worker holds at least 1000 MB of it, and the largest that is connected (w2 on h) may use 900 MB; ' +
      'use a smaller model, or connect a worker with more memory',
  );
  const small = { worker: [large('w')], server: [{ id: 's', memoryBytes: 7e8 }] };
  expect(await said(small)).toBeUndefined(); // two generations and a velocity
  expect(await said(small, { optimizer: { name: 'adam' } })).toMatch(
    /a server holds at least 800 MB.*\(s on h\) may use 700 MB; use more servers/,
  );
  expect(await said(small, { optimizer: { name: 'adam' }, strategy: { kind: 'parameter-server', servers: 2 } })).toBeUndefined();
});

it('says nothing while somebody may come, or does not say what it has', async () => {
  expect(await said({})).toBeUndefined();
  expect(await said({ worker: [{ id: 'w', memoryBytes: 1, isGone: true }] })).toBeUndefined();
  expect(await said({ worker: [{ id: 'w', memoryBytes: 1 }, { id: 'older' }] })).toBeUndefined();
  expect(await said({ worker: [{ id: 'w', memoryBytes: 1 }, large('x')] })).toBeUndefined();
});
