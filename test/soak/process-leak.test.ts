/** A worker whose process holds more and more memory, under `paceline up`: it ends between two seats, and another takes its place. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createHome, until, type Home, type Running } from '../cli/command-line.js';

/** As soon as there is a file that says so, until the next `up`. */
const LEAKS_ONCE = { NODE_OPTIONS: `--import=${new URL('keeps-memory.mjs', import.meta.url).href}`, PACELINE_LEAK_RSS_MB: '60' };

interface Member {
  readonly id: string;
  readonly pid: number;
  readonly status: string;
}
interface Ended {
  readonly status: string;
  readonly result: { readonly weightsSha256: string } | null;
  readonly events: readonly { readonly type: string; readonly message: string }[];
}

let home: Home;
let up: Running;
let announced: { processes: { name: string; pid: number }[] };
beforeAll(async () => {
  home = createHome();
  up = home.start(['up', '--json', '--port', '0', '--workers', '1'], LEAKS_ONCE);
  announced = JSON.parse(await until('up to be ready', () => up.stdout(), 90_000)) as typeof announced;
});
afterAll(() => home.dispose());

// Memory that stays when the compute thread has ended: the process ends between two seats.
it('a worker whose process leaks is replaced by another, and the run ends with the weights of one without', async () => {
  const flags = ['--rounds', '750', '--replicas', '2', '--global-batch', '64'];
  const former = announced.processes.find(({ name }) => name === 'worker-1')!.pid;
  writeFileSync(join(home.folder, 'leak-once'), '');
  process.kill(former, 'SIGKILL');
  const first = await until('the worker that will leak', async () => {
    const { workers } = await home.json<{ workers: Member[] }>('workers');
    return workers.find(({ pid, status }) => pid !== former && status === 'IDLE');
  });
  const id = (await home.run(['train', '--detach', ...flags])).stdout.trim();
  const over = await until(
    'the run to end',
    async () => {
      const run = await home.json<Ended>('run', id, '--events', '100');
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
    const { workers } = await home.json<{ workers: Member[] }>('workers');
    return workers.find(({ id: other, pid, status }) => other !== first.id && pid !== former && status === 'IDLE');
  });
  expect(second.pid).not.toBe(first.pid);
  const calm = await home.json<Ended>('train', ...flags);
  expect(over.result!.weightsSha256).toBe(calm.result!.weightsSha256);
});
