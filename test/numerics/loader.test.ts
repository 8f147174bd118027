/** What a compute thread hears of a loader thread that cannot deliver: which rows, why, and within its deadline. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, expect, it } from 'vitest';

interface Failure {
  readonly code: string;
  readonly message: string;
}
interface Heard extends Record<'unknown' | 'asked' | 'prepared' | 'late' | 'stopping', Failure> {
  readonly next: number;
  readonly step: readonly number[];
  readonly waitedMs: number;
}

let heard: Heard;
beforeAll(async () => {
  const script = path.join(import.meta.dirname, 'loader.mjs');
  const { stdout } = await promisify(execFile)(process.execPath, [script], { timeout: 120_000 });
  heard = JSON.parse(stdout) as Heard;
});

it('data that cannot be opened is refused with the code of its error', () => {
  expect(heard.unknown).toMatchObject({ code: 'DATASET_UNKNOWN', message: expect.stringContaining('nowhere') as string });
});

it('rows that cannot be read fail with the reason, prepared or not, and other rows are read afterwards', () => {
  const reason = 'the evaluation examples 9990 to 10010 cannot be read: example 10000 of 10000';
  expect([heard.asked.message, heard.prepared.message]).toEqual([reason, reason]);
  expect([heard.next, heard.step]).toEqual([10, [32, 32 * 784, 32]]);
});

it('a loader that does not answer is waited for until the deadline, and not when nothing is wanted any more', () => {
  expect(heard.late).toEqual({
    code: 'DATASET_AWAY',
    message: expect.stringContaining('the rows of round 2, replica 0 were not read within 1500 ms') as string,
  });
  expect(heard.waitedMs).toBeGreaterThan(1_400);
  expect(heard.stopping.message).toBe('the worker stops');
});
