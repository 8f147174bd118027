/** An engine's gradient steps leave nothing behind: not a tensor, and no memory beside what V8 has not taken back yet. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const ROOT = path.join(import.meta.dirname, '../..');
const STEPS = 10_000;
const GROWTH_MB = 20;

interface Steady {
  readonly rows: readonly {
    readonly steps: number;
    readonly tensors: number;
    readonly tensorsAfter: number;
    readonly rssGrowthMB: number;
  }[];
}

test('ten thousand steps keep the count of tensors and less than 20 MB', async () => {
  const args = ['bench/engines.mjs', '--steady', String(STEPS), '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT, timeout: 280_000 });
  const [row] = (JSON.parse(stdout) as Steady).rows;
  expect(row).toMatchObject({ steps: STEPS, tensorsAfter: row!.tensors });
  expect(row!.rssGrowthMB).toBeLessThan(GROWTH_MB);
}, 300_000);
