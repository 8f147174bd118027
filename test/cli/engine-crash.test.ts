/** Native code that crashes costs the worker's process and nothing else: its replicas move, the run ends with the same weights, and an event says why. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createHome, until, type Home, type Running } from './command-line.js';

let home: Home;
let up: Running;
beforeAll(async () => {
  home = createHome();
  up = home.start(['up', '--json', '--port', '0', '--workers', '2']);
  await until('up to be ready', () => up.stdout() || (up.child.exitCode === null ? undefined : up.stderr()), 90_000);
});
afterAll(() => home.dispose());

interface FleetMember {
  readonly id: string;
  readonly pid: number;
  readonly runId: string | null;
  readonly engines: readonly { readonly name: string }[];
}

it('a worker that crashes is replaced, and the run says why', async () => {
  const flags = ['--rounds', '1200', '--replicas', '4', '--global-batch', '256'];
  const calm = await home.json<{ result: { weightsSha256: string } }>('train', ...flags);
  const id = (await home.run(['train', '--detach', ...flags])).stdout.trim();
  const workers = await until('both workers to have a seat', async () => {
    const { workers: fleet } = await home.json<{ workers: FleetMember[] }>('workers');
    const busy = fleet.filter(({ runId }) => runId === id);
    return busy.length === 2 ? busy : undefined;
  });
  expect(workers[0]!.engines.map(({ name }) => name)).toContain('wasm');
  process.kill(workers[0]!.pid, 'SIGSEGV');
  const over = await until(
    'the run to end',
    async () => {
      const run = await home.json<{
        status: string;
        result: { weightsSha256: string } | null;
        events: { type: string; message: string }[];
      }>('run', id, '--events', '100');
      return ['SUCCEEDED', 'FAILED'].includes(run.status) ? run : undefined;
    },
    90_000,
  );
  expect(over.status).toBe('SUCCEEDED');
  expect(over.result!.weightsSha256).toBe(calm.result.weightsSha256);
  const why = over.events.find(({ type }) => type === 'worker.died');
  expect(why?.message).toBe(
    `the process of worker ${workers[0]!.id} ended by SIGSEGV: native code of its engine has crashed; its replicas are computed by others`,
  );
});
