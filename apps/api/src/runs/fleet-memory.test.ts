import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { expect, it } from 'vitest';
import type { Fleet, FleetRole } from '../fleet/fleet.js';
import { FleetMemory } from './fleet-memory.js';

const ELEMENTS = 50_000_000;

type Member = { readonly id: string; readonly memoryBytes?: number; readonly isGone?: boolean };

async function said(
  members: Partial<Record<FleetRole, readonly Member[]>>,
  input: RunSpecInput = {},
  worker = ELEMENTS,
): Promise<string | undefined> {
  const fleet = {
    list: async (role: FleetRole) => (members[role] ?? []).map((member) => Object.assign({ host: 'h' }, member)),
    isAlive: ({ isGone }: Member) => !isGone,
    isCompatible: () => true,
  } as unknown as Fleet;
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error('the spec is wrong');
  return (await new FleetMemory(fleet).issueOf(parsed.spec, { all: ELEMENTS, worker }))?.message;
}

const large = (id: string): Member => ({ id, memoryBytes: 8e9 });

it('refuses what the largest worker or server cannot hold, with the numbers and with what helps', async () => {
  const workers = [
    { id: 'w1', memoryBytes: 5e8 },
    { id: 'w2', memoryBytes: 9e8 },
  ];
  expect(await said({ worker: workers, server: [large('s')] }, { replicas: 1 })).toBe(
    'has 50000000 parameters (state included): a worker with its replica needs 1000 MB, the largest that is connected (w2 on h) may use 900 MB; ' +
      'the server needs 600 MB, the largest that is connected (s on h) may use 8000 MB: connect a worker with more memory, or use a smaller model',
  );
  expect(await said({ worker: [{ id: 'w', memoryBytes: 13e8 }] }, { replicas: 8 })).toMatch(
    /with all 8 replicas needs 1600 MB.*may use 1300 MB; the server needs 600 MB: use at most 3 replicas \(`replicas`\), or connect a worker/,
  );
  const small = { worker: [large('w')], server: [{ id: 's', memoryBytes: 7e8 }] };
  expect(await said(small)).toBeUndefined(); // two generations and a velocity
  expect(await said(small, { optimizer: { name: 'adam' } })).toMatch(
    /the server needs 800 MB.*\(s on h\) may use 700 MB: use 2 servers \(`strategy.servers`\), or connect a server with more memory/,
  );
  expect(await said(small, { optimizer: { name: 'adam' }, strategy: { kind: 'parameter-server', servers: 2 } })).toBeUndefined();
});

it('says nothing while somebody may come, or does not say what it has', async () => {
  expect(await said({})).toBeUndefined();
  expect(await said({ worker: [{ id: 'w', memoryBytes: 1, isGone: true }] })).toBeUndefined();
  expect(await said({ worker: [{ id: 'w', memoryBytes: 1 }, { id: 'older' }] })).toBeUndefined();
  expect(await said({ worker: [{ id: 'w', memoryBytes: 1 }, large('x')] })).toBeUndefined();
});

it('counts at a worker the rows of a table that it holds, and at the servers the whole table', async () => {
  const [small, held] = [{ id: 'w', memoryBytes: 1e8 }, 1_000_000];
  const input: RunSpecInput = { replicas: 1 };
  expect(await said({ worker: [small], server: [large('s')] }, input)).toContain('needs 1000 MB');
  expect(await said({ worker: [small], server: [large('s')] }, input, held)).toBeUndefined();
  expect(await said({ worker: [small], server: [{ id: 's', memoryBytes: 5e8 }] }, input, held)).toBe(
    'has 50000000 parameters (state included), of which a worker holds 1000000, with the rows of one round: a worker with its replica needs 20 MB, ' +
      'the largest that is connected (w on h) may use 100 MB; the server needs 600 MB, the largest that is connected (s on h) may use 500 MB: ' +
      'use 2 servers (`strategy.servers`), or connect a server with more memory, or use a smaller model',
  );
});
