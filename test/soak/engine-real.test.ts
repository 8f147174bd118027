/**
 * TensorFlow for real: downloaded, built, tried, trained with. Needs a network with npm and PyPI, Python, a compiler and 2 GB; without them it says so
 * and is skipped. About three minutes.
 */
import { execFileSync } from 'node:child_process';
import { afterAll, expect, it } from 'vitest';
import { createHome, until, type Home } from '../cli/command-line.js';

const WHEEL = 'tensorflow-cpu';
/** What the installer needs, each with the command that shows it. */
const NEEDED: Readonly<Record<string, readonly string[]>> = {
  'python3 with pip': ['python3', '-m', 'pip', '--version'],
  'g++': ['g++', '--version'],
  'an index of Python packages with TensorFlow': ['python3', '-m', 'pip', 'index', 'versions', WHEEL],
  'npm with its registry': ['npm', 'view', '@tensorflow/tfjs-node', 'version'],
};

/** `pip download` has no dry run, so the index is asked what it has. */
function answers([command, ...args]: readonly string[]): boolean {
  try {
    execFileSync(command!, args, { stdio: 'ignore', timeout: 60_000 });
    return true;
  } catch {
    return false;
  }
}

const missing = Object.keys(NEEDED).filter((what) => !answers(NEEDED[what]!));
const why = missing.length > 0 ? `there is no ${missing.join(', no ')}` : undefined;

let home: Home | undefined;
afterAll(() => home?.dispose());

async function json<T>(...args: string[]): Promise<T> {
  const { exit, stdout, stderr } = await home!.run([...args, '--json']);
  expect(exit, stderr + stdout).toBe(0);
  return JSON.parse(stdout) as T;
}

it.skipIf(why !== undefined)(
  `TensorFlow is installed, and a run trains on it${why ? ` (skipped: ${why})` : ''}`,
  { timeout: 900_000 },
  async () => {
    home = createHome();
    const installed = await json<{ isNew: boolean; trial: { fingerprint: string } }>('engine', 'install', 'tensorflow');
    expect(installed).toMatchObject({
      isNew: true,
      trial: { fingerprint: expect.stringMatching(/^tfjs-tensorflow .*TensorFlow 2\.21\./) as string },
    });
    expect(await json('engine', 'install', 'tensorflow')).toMatchObject({ isNew: false });

    const up = home.start(['up', '--json', '--port', '0', '--workers', '2']);
    await until('up to be ready', () => up.stdout() || (up.child.exitCode === null ? undefined : up.stderr()), 90_000);
    type Result = { status: string; result: { weightsSha256: string; accuracy: number } };
    const train = (engine: string): Promise<Result> => json<Result>('train', '--engine', engine, '--rounds', '40', '--seed', '7');
    const first = await train('tensorflow');
    const second = await train('tensorflow');
    expect(second.result.weightsSha256).toBe(first.result.weightsSha256);
    for (const engine of ['auto', 'mixed', 'wasm']) expect((await train(engine)).status).toBe('SUCCEEDED');
    const { workers } = await json<{ workers: { engines: { name: string; examplesPerSecond: number | null }[] }[] }>('workers');
    const speeds = workers.flatMap(({ engines }) =>
      engines.filter(({ examplesPerSecond }) => (examplesPerSecond ?? 0) > 0).map(({ name }) => name),
    );
    expect(new Set(speeds)).toEqual(new Set(['wasm', 'tensorflow']));
    expect(await json('engine', 'remove', 'tensorflow')).toMatchObject({ removed: [expect.stringContaining('tensorflow-') as string] });

    // Without it a run that wants it fails with what to do, and the worker goes on.
    const { exit, stdout } = await home.run(['train', '--engine', 'tensorflow', '--rounds', '5', '--json']);
    expect(exit).toBe(1);
    expect(stdout).toContain('paceline engine install tensorflow');
    expect((await train('wasm')).status).toBe('SUCCEEDED');
  },
);
