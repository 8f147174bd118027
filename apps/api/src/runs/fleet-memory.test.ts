import { parseRunSpec, type RunSpec, type RunSpecInput } from '@paceline/spec';
import { expect, it } from 'vitest';
import type { Fleet, FleetRole } from '../fleet/fleet.js';
import { FleetMemory } from './fleet-memory.js';

const ELEMENTS = 50_000_000;

type Member = { readonly id: string; readonly memoryBytes?: number; readonly isGone?: boolean };

type Members = Partial<Record<FleetRole, readonly Member[]>>;

const memoryOf = (members: Members): FleetMemory =>
  new FleetMemory({
    list: async (role: FleetRole) => (members[role] ?? []).map((member) => Object.assign({ host: 'h' }, member)),
    isAlive: ({ isGone }: Member) => !isGone,
    isCompatible: () => true,
  } as unknown as Fleet);

function specOf(input: RunSpecInput): RunSpec {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error('the spec is wrong');
  return parsed.spec;
}

const said = async (members: Members, input: RunSpecInput = {}, worker = ELEMENTS): Promise<string | undefined> =>
  (await memoryOf(members).issueOf(specOf(input), { all: ELEMENTS, worker }))?.message;

const large = (id: string): Member => ({ id, memoryBytes: 8e9 });

it('refuses what the largest worker or server cannot hold, with the numbers and with what helps', async () => {
  const workers = [
    { id: 'w1', memoryBytes: 5e8 },
    { id: 'w2', memoryBytes: 9e8 },
  ];
  expect(await said({ worker: workers, server: [large('s')] }, { replicas: 1 })).toBe(
    'has 50000000 parameters (state included): a worker with its replica needs 1000 MB, the largest that is connected (w2 on h) may use 900 MB; ' +
      'the server needs 1000 MB, the largest that is connected (s on h) may use 8000 MB: connect a worker with more memory, or use a smaller model',
  );
  expect(await said({ worker: [{ id: 'w', memoryBytes: 13e8 }] }, { replicas: 8 })).toMatch(
    /with all 8 replicas needs 1600 MB.*may use 1300 MB; the server needs 1135 MB: use at most 3 replicas \(`replicas`\), or connect a worker/,
  );
  const small = { worker: [large('w')], server: [{ id: 's', memoryBytes: 13e8 }] };
  expect(await said(small)).toBeUndefined(); // two generations and a velocity, one of each beside a checkpoint, and the window
  expect(await said(small, { optimizer: { name: 'adam' } })).toMatch(
    /the server needs 1468 MB.*\(s on h\) may use 1300 MB: use 2 servers \(`strategy.servers`\), or connect a server with more memory/,
  );
  expect(await said(small, { optimizer: { name: 'adam' }, strategy: { kind: 'parameter-server', servers: 2 } })).toBeUndefined();
});

it('counts a compute thread for each replica where hybrid and mirrored do not say how many, and says how many would do', async () => {
  const servers = [large('s')];
  const input = (strategy: object): RunSpecInput => ({ globalBatch: 256, replicas: 64, strategy: strategy as RunSpecInput['strategy'] });
  for (const kind of ['hybrid', 'mirrored']) {
    const on = (memoryBytes: number, threads?: number) =>
      said({ worker: [{ id: 'w', memoryBytes }], server: servers }, input({ kind, threads }));
    const message = await on(16e9);
    const [, most] =
      /: use at most (\d+) compute threads \(`strategy\.threads`\), or connect a worker with more memory/.exec(message ?? '') ?? [];
    expect(Number(most), message).toBeGreaterThanOrEqual(8);
    expect(await on(16e9, Number(most))).toBeUndefined();
    expect(await on(16e9, Number(most) + 1)).toContain(`use at most ${most} compute threads`);
    expect(await on(1e9), 'one thread needs more than that').not.toContain('compute thread');
  }
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
      'the largest that is connected (w on h) may use 100 MB; the server needs 1000 MB, the largest that is connected (s on h) may use 500 MB: ' +
      'use 2 servers (`strategy.servers`), or connect a server with more memory, or use a smaller model',
  );
});

it('says of a run that goes on with fewer servers what each of them needs, and nothing of workers', async () => {
  const members = { worker: [{ id: 'w', memoryBytes: 1 }], server: [{ id: 's', memoryBytes: 9e8 }] };
  const on = (servers: number) => memoryOf(members).issueOfServers(specOf({ strategy: { kind: 'parameter-server', servers } }), ELEMENTS);
  expect(await on(2)).toBeUndefined();
  expect(await on(1)).toEqual({
    path: 'servers',
    message:
      'the model has 50000000 parameters (state included): the server needs 1068 MB, the largest that is connected (s on h) may use 900 MB: ' +
      'use 2 servers (`servers`), or connect a server with more memory',
  });
  const mirrored = specOf({ globalBatch: 64, replicas: 2, strategy: { kind: 'multi-worker-mirrored', workers: 2 } });
  expect(await memoryOf(members).issueOfServers(mirrored, ELEMENTS)).toBeUndefined();
});

it('says how many workers would do where so many cannot hold their shards', async () => {
  const spec = (workers: number) =>
    specOf({ replicas: 4, optimizer: { name: 'adam' }, strategy: { kind: 'multi-worker-mirrored', workers } });
  const issue = (workers: number, memoryBytes: number) =>
    memoryOf({ worker: [{ id: 'w', memoryBytes }] }).issueOfShardWorkers(spec(workers), { all: ELEMENTS, worker: ELEMENTS });
  const small = await issue(1, 2e9);
  expect(small).toMatchObject({ path: 'workers' });
  const [, enough] = /with one worker each needs \d+ MB .* may use 2000 MB: (\d) workers would do$/.exec(small!.message) ?? [];
  expect(Number(enough), small!.message).toBeGreaterThan(1);
  expect(await issue(Number(enough), 2e9)).toBeUndefined();
  expect(await issue(Number(enough) - 1, 2e9)).toBeDefined();
  expect((await issue(1, 1e8))!.message).toContain('no number of workers of this run would do');
  expect(await memoryOf({}).issueOfShardWorkers(spec(1), { all: ELEMENTS, worker: ELEMENTS })).toBeUndefined();
});
