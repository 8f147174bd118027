/** Memory of the api stays within the formula of docs/ARCHITECTURE.md, however many runs, reports and subscriptions have gone through it. */
import { readFileSync } from 'node:fs';
import { Stack } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ScriptedFleet, type Coordinator } from '../api/scripted-fleet.js';
import { until } from '../api/services.js';

const MIB = 1 << 20;
/** What the formula calls its base: code, Prisma, buffers, and the heap that it is given here. */
const BASE_BYTES = 384 * MIB;
const SUBSCRIPTION_BYTES = 2 * MIB;
const BATCH_BYTES = 200 * 64 * 1024;
/** Growth over two thirds of the work is a leak when it is more than this. */
const SLACK_BYTES = 48 * MIB;

const RUNS_AT_ONCE = 6;
const WAVES = 6;
const ROUNDS = 1_175;
const ROUNDS_PER_REPORT = 47;
/** Tight, so that what is not given back shows: left alone, a garbage collector lets the heap of a machine with room grow first. */
const HEAP_MIB = 160;

let stack: Stack;
let fleet: ScriptedFleet;
beforeAll(async () => {
  stack = await Stack.start({ servers: 0, workers: 0, apiEnv: { NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}` } });
  fleet = await new ScriptedFleet(stack.redis.url).ready();
  fleet.beat('server', 'the-server');
  fleet.beat('worker', 'the-worker');
});
afterAll(async () => {
  await fleet?.stop();
  await stack?.stop();
});

const residentBytes = (): number =>
  Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${stack.api.child.pid}/status`, 'utf8'))![1]) * 1024;

async function begin(): Promise<Coordinator> {
  const { id } = await stack.client.createRun({});
  const coordinator = await fleet.claim(id, ['the-server']);
  const { payload } = await until('the seat of this run', async () => {
    const task = await fleet.takeStepTask();
    await task.complete('taken');
    return task.payload.runId === id && task;
  });
  await coordinator.train('the-worker', payload);
  return coordinator;
}

/** @returns how much its subscriptions were told */
async function trainToTheEnd(coordinator: Coordinator): Promise<number> {
  let told = 0;
  const follow = async (rows: AsyncIterable<unknown>): Promise<void> => {
    for await (const _ of rows) told++;
  };
  const followed = [follow(stack.client.runEvents(coordinator.runId)), follow(stack.client.runMetrics(coordinator.runId))];
  for (let round = 0; round < ROUNDS; round += ROUNDS_PER_REPORT) {
    await coordinator.publish(coordinator.rounds(round, round + ROUNDS_PER_REPORT - 1), { round: round + ROUNDS_PER_REPORT });
    await coordinator.acknowledged();
  }
  await coordinator.finish();
  await Promise.all(followed);
  return told;
}

test('many runs with their reports and subscriptions leave nothing behind in the api', async () => {
  const seen: number[] = [];
  for (let wave = 0; wave < WAVES; wave++) {
    const coordinators: Coordinator[] = [];
    for (let i = 0; i < RUNS_AT_ONCE; i++) coordinators.push(await begin());
    const told = await Promise.all(coordinators.map(trainToTheEnd));
    expect(Math.min(...told)).toBeGreaterThan(10);
    seen.push(residentBytes());
    console.log(`the api after ${(wave + 1) * RUNS_AT_ONCE} runs: ${Math.round(seen.at(-1)! / MIB)} MiB`);
  }
  const [early, late] = [seen[1]!, seen.at(-1)!];
  expect(late - early, `growth from ${early}`).toBeLessThan(SLACK_BYTES);
  expect(late).toBeLessThan(BASE_BYTES + 2 * RUNS_AT_ONCE * SUBSCRIPTION_BYTES + BATCH_BYTES);
}, 600_000);
