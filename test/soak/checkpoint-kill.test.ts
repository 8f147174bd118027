/** Fault row 6 with real processes: SIGKILL at every boundary of the write and the sweep of a checkpoint on the real disk. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { Checkpoints, openStore } from '@paceline/storage';
import { checkpointFault, checkpointAt, FIXTURE_RUN_ID, writeCheckpoint } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

const SCRIPT = path.join(import.meta.dirname, 'checkpoint-writer.mjs');
const LANES = 4;

let base: string;
beforeAll(async () => void (base = await mkdtemp(path.join(tmpdir(), 'paceline-kill-'))));
afterAll(() => rm(base, { recursive: true, force: true }));

/** Runs the writer until it says a line, kills it, and returns the line. */
async function killedAt(folder: string, boundary: number): Promise<string> {
  const writer = spawn(process.execPath, [SCRIPT, folder, String(boundary)], { stdio: ['ignore', 'pipe', 'inherit'], timeout: 60_000 });
  const exited = once(writer, 'exit') as Promise<[number | null, string | null]>;
  const [line] = (await Promise.race([once(createInterface(writer.stdout), 'line'), exited.then(() => ['it ended without a word'])])) as [
    string,
  ];
  if (line.startsWith('PAUSED')) {
    writer.kill('SIGKILL');
    expect((await exited)[1]).toBe('SIGKILL');
  } else expect((await exited)[0]).toBe(0);
  return line;
}

test('a writer that is killed at any boundary leaves a whole checkpoint, and the next one cleans up after it', async () => {
  const seed = path.join(base, 'seed');
  await writeCheckpoint(new Checkpoints(openStore(seed)), checkpointAt(1, 10));
  const places = new Set<string>();
  let next = 0;
  let isDone = false;
  const lane = async (): Promise<void> => {
    while (!isDone) {
      const boundary = next++;
      const folder = path.join(base, `at-${boundary}`);
      await cp(seed, folder, { recursive: true });
      const line = await killedAt(folder, boundary);
      if (line.startsWith('DONE')) isDone = true;
      else places.add(line.slice('PAUSED at '.length));
      await expectWhole(folder, line);
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  expect(next).toBeGreaterThan(40);
  expect([...places]).toEqual(
    expect.arrayContaining(['create', 'file.write', 'file.sync', 'file.close', 'rename', 'link', 'remove', 'syncFolder']),
  );
});

async function expectWhole(folder: string, line: string): Promise<void> {
  const checkpoints = new Checkpoints(openStore(folder));
  const found = await checkpoints.list(FIXTURE_RUN_ID);
  expect(found.length, line).toBeGreaterThan(0);
  for (const id of found) expect(await checkpointFault(checkpoints, id), line).toBeUndefined();
  const [{ attempt, round }] = found as [(typeof found)[0]];
  await writeCheckpoint(checkpoints, checkpointAt(2, 20), { lineage: [{ attempt, round }] });
  await checkpoints.sweep(FIXTURE_RUN_ID, { keepLast: 1, keepBest: false });
  await checkpoints.store.removeUnfinished('', 0);
  const left = await readdir(folder, { recursive: true });
  expect(
    left.filter((name) => /partial$|a1-[^/]*\/./.test(name)),
    line,
  ).toEqual([]);
}
