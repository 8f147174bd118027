/**
 * Workers with several compute threads, as real processes: the weights are those of the independent reference, threads are threads of the process, and what
 * leaves a worker is one sum, however many threads have computed it.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DataPlane, pace, type RunView } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { reference } from './references.js';

const ROUNDS = 12;
const base: RunSpecInput = { model: 'mlp', globalBatch: 60, replicas: 4, length: { rounds: ROUNDS }, seed: 7 };
/** Parameters of the model mlp as float32. */
const VECTOR_BYTES = 235_146 * 4;

const hybrid = (threads: number, fields: object = {}) => ({ kind: 'hybrid', threads, ...fields }) as RunSpecInput['strategy'] & object;

let plane: DataPlane;
beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 1, transport: 'unix' })));
afterAll(() => plane?.stop());

const trained = async (input: RunSpecInput): Promise<{ run: RunView; sha256: string }> => {
  const run = await plane.train(input);
  const { weightsSha256 } = await plane.finished(run);
  return { run, sha256: weightsSha256! };
};

/** Threads of a process, while it trains a run. */
async function threadsWhile(input: RunSpecInput): Promise<number> {
  const run = await plane.train(input);
  await plane.until(run, 'round 3', 30_000, () => (run.state?.round ?? 0) >= 3);
  const slow = pace(() => plane.workers.map(({ child }) => child.pid!), 0.3);
  const threads = readdirSync(`/proc/${plane.workers[0]!.child.pid!}/task`).length;
  slow.end();
  await plane.finished(run);
  return threads;
}

test('1 worker with 2 and 3 threads, 1 and 2 servers: the weights of the reference; dropout and batch normalisation, accumulation', async () => {
  for (const input of [
    { ...base, strategy: hybrid(2) },
    { ...base, model: 'mlp-dropout', replicas: 5, strategy: hybrid(3, { servers: 2 }) },
    ...(process.env['PACELINE_SOAK'] === '1' ? [{ ...base, strategy: hybrid(2, { accumulate: 3 }) }] : []),
  ] satisfies RunSpecInput[])
    expect((await trained(input)).sha256).toBe(await reference(input));
});

test('1 worker with 2 threads whose replicas take local steps: the weights of the reference', async () => {
  const local = { kind: 'local-update', threads: 2, localSteps: 3 } as const;
  for (const input of [
    { ...base, replicas: 3, optimizer: { name: 'adam' }, strategy: { ...local, innerState: 'keep', outerOptimizer: 'nesterov' } },
    ...(process.env['PACELINE_SOAK'] === '1'
      ? ([
          { ...base, model: 'mlp-dropout', strategy: { ...local, servers: 2 } },
          { ...base, replicas: 5, strategy: { ...local, threads: 3, outerOptimizer: 'elastic' } },
        ] as const)
      : []),
  ] satisfies RunSpecInput[])
    expect((await trained(input)).sha256).toBe(await reference(input));
});

test.runIf(process.env['PACELINE_SOAK'] === '1')('a thread more is a compute thread and its loader more', async () => {
  const long = (threads: number): RunSpecInput => ({ ...base, length: { rounds: 120 }, strategy: hybrid(threads) });
  const one = await threadsWhile(long(1));
  expect(await threadsWhile(long(3))).toBe(one + 4);
});

test.runIf(process.env['PACELINE_SOAK'] === '1')(
  '2 workers with 2 threads: as many bytes to the servers as with one thread, which is one vector of each worker in a round',
  async () => {
    await plane.addWorker();
    const bytesOf = async (strategy: RunSpecInput['strategy'] & object): Promise<number> => {
      const input = { ...base, model: 'mlp' as const, strategy };
      const { run, sha256 } = await trained(input);
      expect(sha256).toBe(await reference(input));
      return run.state!.traffic!.toServersBytes;
    };
    const plain = await bytesOf({ kind: 'parameter-server', startWorkers: 2 });
    const threaded = await bytesOf(hybrid(2, { startWorkers: 2 }));
    for (const bytes of [plain, threaded]) {
      expect(bytes / (2 * ROUNDS * VECTOR_BYTES)).toBeGreaterThan(1);
      expect(bytes / (2 * ROUNDS * VECTOR_BYTES)).toBeLessThan(1.03);
    }
  },
);

test.runIf(process.env['PACELINE_SOAK'] === '1')(
  'a compute thread ends: the seat ends and names it, the worker takes a seat again, and the weights are those of the reference',
  async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'paceline-death-'));
    const file = path.join(folder, 'died');
    const planted = await DataPlane.start({
      servers: 1,
      workers: 1,
      workerEnv: { NODE_OPTIONS: `--import=${new URL('thread-dies.mjs', import.meta.url).href}`, PLANTED_DEATH: file },
    });
    try {
      const input: RunSpecInput = { ...base, strategy: hybrid(2) };
      const run = await planted.train(input);
      expect((await planted.finished(run)).weightsSha256).toBe(await reference(input));
      expect(existsSync(file), 'it has died').toBe(true);
      expect(readFileSync(planted.workers[0]!.logFile, 'utf8')).toContain('compute thread 1 of 2 ended with code 7');
      expect(JSON.stringify(run.entries)).toContain('compute thread 1 of 2 ended with code 7');
    } finally {
      await planted.stop();
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

test.runIf(process.env['PACELINE_SOAK'] === '1').each([1, 8, 30])(
  '2 workers with 2 threads, one is SIGKILLed after round %i: the other computes all replicas, to the weights of the reference',
  async (round) => {
    const two = await DataPlane.start({ servers: 2, workers: 2, transport: 'unix' });
    try {
      const input: RunSpecInput = { ...base, length: { rounds: 40 }, strategy: hybrid(2, { servers: 2, startWorkers: 2 }) };
      const run = await two.train(input);
      const slow = pace(() => two.workers.map(({ child }) => child.pid!), 0.1);
      try {
        await two.until(run, `round ${round}`, 60_000, () => (run.state?.round ?? 0) >= round);
        await two.workers[1]!.kill('SIGKILL');
      } finally {
        slow.end();
      }
      expect(run.state!.round, 'it was killed in the middle').toBeLessThan(40);
      expect((await two.finished(run)).weightsSha256).toBe(await reference(input));
    } finally {
      await two.stop();
    }
  },
);
