/** Memory of a parameter server and a worker stays within the formulas of docs/ARCHITECTURE.md, however long a run is. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DataPlane, type TestProcess } from '@paceline/testkit';

const MIB = 1 << 20;
/** Beside what the formulas count: code, engine, sockets, and what the garbage collector has not taken back. */
const SLACK_BYTES = 48 * MIB;

const residentBytes = ({ child }: TestProcess): number => {
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)![1]) * 1024;
};

let plane: DataPlane;
beforeAll(async () => void (plane = await DataPlane.start({ servers: 1, workers: 1 })));
afterAll(() => plane?.stop());

test('hundreds of rounds with a checkpoint every ten grow neither server nor worker', async () => {
  const run = await plane.train({
    model: 'mlp',
    globalBatch: 32,
    replicas: 4,
    length: { rounds: 600 },
    optimizer: { name: 'adam' },
    checkpoint: { everyRounds: 10, keepLast: 2 },
  });
  const processes = { server: plane.servers[0]!, worker: plane.workers[0]! };
  await plane.until(run, 'the first 150 rounds', 60_000, () => (run.state?.round ?? 0) >= 150);
  const early = { server: residentBytes(processes.server), worker: residentBytes(processes.worker) };
  await plane.until(run, '580 rounds', 120_000, () => (run.state?.round ?? 0) >= 580);
  const late = { server: residentBytes(processes.server), worker: residentBytes(processes.worker) };
  await plane.finished(run);
  // P + S of the model in bytes; Adam has two slots.
  const model = (run.model.parameterCount + run.model.stateCount) * 4;
  const server = 2 * model + 2 * model + 3 * model + (model + 2 * model);
  expect(late.server - early.server, 'growth of the server').toBeLessThan(SLACK_BYTES / 2);
  expect(late.worker - early.worker, 'growth of the worker').toBeLessThan(SLACK_BYTES);
  expect(late.server, 'the server').toBeLessThan(server + 160 * MIB + SLACK_BYTES);
});
