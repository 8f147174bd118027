/** Every bench runs, in sizes that measure nothing: it ends well, and prints one line of JSON with the figures that it documents. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '../..');
const DEADLINE_MS = 150_000;

type Row = Readonly<Record<string, unknown>>;

async function run(name: string, flags: readonly string[]): Promise<{ readonly bench: string; readonly rows: readonly Row[] }> {
  const child = spawn(process.execPath, [join(root, 'tools/bench.mjs'), name, ...flags, '--json'], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const timer = setTimeout(() => child.kill(), DEADLINE_MS - 5_000);
  const texts = { stdout: '', stderr: '' };
  child.stdout.on('data', (piece: Buffer) => (texts.stdout += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => (texts.stderr += piece.toString()));
  const [status] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  expect(status, texts.stderr.slice(-2_000)).toBe(0);
  return JSON.parse(texts.stdout) as { bench: string; rows: Row[] };
}

const BENCHES: Readonly<
  Record<string, { readonly flags: readonly string[]; readonly rows: readonly Row[]; readonly figures: readonly string[] }[]>
> = {
  wire: [
    {
      flags: ['--megabytes', '1', '--rounds', '2', '--repetitions', '1', '--chunk-kib', '256'],
      rows: ['unix', 'tcp'].flatMap((transport) => ['raw', 'frames', 'rounds'].map((path) => ({ transport, path }))),
      figures: ['gigabytesPerSecond', 'serverCpuMs', 'workerCpuMs', 'ofRaw'],
    },
  ],
  engines: [
    {
      flags: ['--only', 'mlp', '--steps', '1', '--repetitions', '1'],
      rows: ['tf.js wasm, stock', 'paceline wasm'].map((engine) => ({ model: 'mlp', engine, repetitions: 1 })),
      figures: ['stepMs', 'lowest', 'highest', 'cpuMs', 'ours', 'oursCpu'],
    },
    { flags: ['--steady', '10'], rows: [{ model: 'mlp', steps: 10 }], figures: ['tensors', 'tensorsAfter', 'rssGrowthMB'] },
  ],
  mlp: [
    {
      flags: ['--rounds', '5', '--repetitions', '1', '--batch', '4', '--workers', '1'],
      rows: [{ what: 'paceline parameter-server sync, wasm', model: 'mlp', workers: 1, servers: 1, batchPerWorker: 4 }],
      figures: ['examplesPerSecond', 'lowest', 'highest'],
    },
  ],
  checkpoints: [
    {
      flags: ['--rounds', '10', '--every', '5', '--repetitions', '1', '--batch', '4', '--workers', '1'],
      rows: [{ what: 'a checkpoint every 5 rounds', optimizer: 'adam', repetitions: 1 }],
      figures: [
        'checkpointsPerRun',
        'bytesPerCheckpoint',
        'examplesPerSecondWithout',
        'examplesPerSecondWith',
        'costPercent',
        'barPercent',
      ],
    },
  ],
  recovery: [
    {
      flags: ['--kinds', 'worker', '--kills', '1', '--batch', '4'],
      rows: [{ killed: 'a worker', kills: 1 }],
      figures: ['medianMs', 'barMs', 'lowestMs', 'highestMs', 'roundMs'],
    },
  ],
};

it('none is left out', () => {
  const folder = join(root, 'bench');
  const titles = readdirSync(folder).flatMap(
    (file) => /^ \* bench ([a-z-]+): /mu.exec(readFileSync(join(folder, file), 'utf8'))?.[1] ?? [],
  );
  expect(Object.keys(BENCHES).sort()).toEqual(titles.sort());
});

const cases = Object.entries(BENCHES).flatMap(([name, runs]) => runs.map((each) => ({ name, ...each })));

it.each(cases)(
  '$name $flags',
  async ({ name, flags, rows: expected, figures }) => {
    const { bench, rows } = await run(name, flags);
    expect(bench).toBe(name);
    for (const row of expected) expect(rows).toContainEqual(expect.objectContaining(row));
    for (const row of rows) {
      for (const figure of figures) expect(row[figure], figure).toSatisfy(Number.isFinite);
    }
  },
  DEADLINE_MS,
);
