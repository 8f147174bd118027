/** Memory that stays when the compute thread has ended: the worker's process ends between two seats, `up` starts another, and the run says why. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createHome, until, type Home, type Running } from './command-line.js';

let home: Home;
let up: Running;
beforeAll(async () => {
  home = createHome();
  writeFileSync(join(home.folder, 'leak-once'), '');
  up = home.start(['up', '--json', '--port', '0', '--workers', '1'], {
    NODE_OPTIONS: `--import=${new URL('keeps-memory.mjs', import.meta.url).href}`,
    PACELINE_LEAK_RSS_MB: '60',
  });
  await until('up to be ready', () => up.stdout() || (up.child.exitCode === null ? undefined : up.stderr()), 90_000);
});
afterAll(() => home.dispose());

interface Shown {
  readonly status: string;
  readonly result: { readonly weightsSha256: string } | null;
  readonly events: readonly { readonly type: string; readonly message: string }[];
}

it('a worker whose process leaks is replaced by another, and the run ends with the weights of one without', async () => {
  const flags = ['--rounds', '750', '--replicas', '2', '--global-batch', '64'];
  const [first] = (await home.json<{ workers: { id: string; pid: number }[] }>('workers')).workers;
  const id = (await home.run(['train', '--detach', ...flags])).stdout.trim();
  const over = await until(
    'the run to end',
    async () => {
      const run = await home.json<Shown>('run', id, '--events', '100');
      return ['SUCCEEDED', 'FAILED'].includes(run.status) ? run : undefined;
    },
    100_000,
  );
  expect(over.status).toBe('SUCCEEDED');
  const told = over.events.filter(({ type }) => type === 'worker.recycled').map(({ message }) => message);
  expect(told[0]).toMatch(/^worker worker-\S+ leaks: [\d.]+ MB more memory in \d+ rounds.*native code, or another thread; it leaves/);
  expect(told[1]).toMatch(/still holds \d+ MB more than at its start though its engine has ended: its process ends, to be started again$/);
  expect(up.stderr()).toContain('worker-1 ended with code 71');

  const second = await until('the worker in its place', async () => {
    const { workers } = await home.json<{ workers: { id: string; pid: number; status: string }[] }>('workers');
    return workers.find(({ id: other, status }) => other !== first!.id && status !== 'GONE');
  });
  expect(second.pid).not.toBe(first!.pid);
  const calm = await home.json<{ result: { weightsSha256: string } }>('train', ...flags);
  expect(over.result!.weightsSha256).toBe(calm.result.weightsSha256);
});
