/** Programs whose replicas are processes of devices: no process is left, however the program ends. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { MODEL_PROGRAM, Programs, type Running } from '../programs.fixture.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
let programs: Programs;
beforeAll(() => {
  programs = new Programs();
});
afterAll(() => programs.dispose());

const PROGRAM = `
import { MirroredStrategy } from 'paceline';
${MODEL_PROGRAM}
const strategy = new MirroredStrategy({ devices: ['cpu:0', 'cpu:1'] });
const model = strategy.scope(() => built(seeded, tf.train.adam(0.01)));
`;
const folders = (): string[] => readdirSync(tmpdir()).filter((name) => name.startsWith('paceline-device-'));
const isThere = (pid: number): boolean => existsSync(`/proc/${pid}`);

async function saidPids({ ended, said, child }: Running): Promise<number[]> {
  let output = '';
  child.stdout!.on('data', (piece: Buffer) => (output += piece.toString()));
  await Promise.race([said('{"pids"'), ended]);
  const line = output.split('\n').find((each) => each.startsWith('{"pids"'));
  if (line === undefined) throw new Error(`it said no pids: ${(await ended).errors}`);
  return (JSON.parse(line) as { pids: number[] }).pids;
}
const gone = (pids: readonly number[]) => expect.poll(() => pids.filter(isThere)).toEqual([]);

const page = readFileSync(join(import.meta.dirname, '../../../../docs/library.md'), 'utf8');

it('the example of the page trains, as it is pasted, and ends by itself without dispose, and its processes with it', async () => {
  const [, source] = /```js\n([^`]*devices: \['cpu:0', 'cpu:1'\][\s\S]*?)```/.exec(page)!;
  expect(source!.split('\n').length).toBeLessThanOrEqual(31);
  const longPath = join(tmpdir(), 'x'.repeat(90)); // no socket has room there
  mkdirSync(longPath, { recursive: true });
  const running = programs.start(source!.replace('await strategy.dispose();', ''), { TMPDIR: longPath });
  const { status, errors, output } = await running.ended;
  expect(status, errors).toBe(0);
  const losses = /loss ([\d. ]+)/.exec(output)![1]!.trim().split(' ').map(Number);
  expect(losses.length).toBe(5);
  expect(losses[4]!).toBeLessThan(losses[0]! / 2);
  const pids = [...output.matchAll(/^cpu:\d wasm (\d+)$/gm)].map(([, pid]) => Number(pid));
  expect(pids.length).toBe(2);
  await gone(pids);
  rmdirSync(longPath);
});

it.runIf(IS_SOAK)('one that never trains ends as well', async () => {
  const running = programs.start(`${PROGRAM}
say({ pids: strategy.devices.map(({ pid }) => pid) });
`);
  const pids = await saidPids(running);
  expect((await running.ended).status).toBe(0);
  await gone(pids);
});

const TRAINS_ON = `${PROGRAM}
await fit(model);
say({ pids: strategy.devices.map(({ pid }) => pid) });
for (;;) await fit(model);
`;

const SIGNALS = IS_SOAK ? (['SIGKILL', 'SIGINT'] as const) : (['SIGKILL'] as const);
it.each(SIGNALS)('of one that is ended by %s in the middle of a step, nothing is left', async (signal) => {
  const running = programs.start(TRAINS_ON);
  const pids = await saidPids(running);
  expect(pids.filter(isThere)).toEqual(pids);
  // Ctrl-C reaches every process of the terminal: the program decides what comes of it.
  if (signal === 'SIGINT') for (const pid of pids) process.kill(pid, signal);
  running.child.kill(signal);
  await running.ended;
  expect(running.child.signalCode).toBe(signal);
  await gone(pids);
  await expect.poll(folders).toEqual([]);
});

it.runIf(IS_SOAK)('processes are not ended by the signal of Ctrl-C, which the program may handle', async () => {
  const running = programs.start(`${PROGRAM}
await fit(model);
for (const { pid } of strategy.devices) process.kill(pid, 'SIGINT');
await fit(model);
say({ pids: strategy.devices.map(({ pid }) => pid), steps: model.optimizer.iterations });
await strategy.dispose();
`);
  const pids = await saidPids(running);
  const { status, errors, output } = await running.ended;
  expect(status, errors).toBe(0);
  expect(output).toContain('"steps":16');
  await gone(pids);
});
