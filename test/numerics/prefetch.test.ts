/** Prefetch overlaps with computing: the batches of the next round are there while the thread that computes has not paused for a moment. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const SCRIPT = path.join(import.meta.dirname, 'prefetch.mjs');
/** The loader thread opens the dataset first; a busy machine takes its time. */
const BUSY_MS = 30_000;

it(
  'a thread that never yields finds its next batches prepared, with the bytes that it would gather itself',
  { timeout: 270_000 },
  async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, String(BUSY_MS)], { timeout: 240_000 });
    const all = [0, 1, 2, 3];
    const prepared = { after: all, isSame: true, isReleased: true };
    expect(JSON.parse(stdout)).toEqual([prepared, prepared]);
  },
);
