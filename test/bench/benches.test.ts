/**
 * Every bench runs, in sizes that measure nothing: it ends well, and prints one line of JSON with the figures that it documents. Two run at a time, as they mostly wait for
 * the processes that they start. What is long of a bench with several tables is left to the soak (`npm test -- cases`).
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '../..');
const DEADLINE_MS = 150_000;
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

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

const LOCAL_UPDATES = '--examples 128 --batch 16 --replicas 2 --epochs 1 --most-epochs 1 --seeds 1 --steps 1,4'.split(' ');

interface Case {
  readonly flags: readonly string[];
  readonly rows: readonly Row[];
  readonly figures: readonly string[];
  /** The soak alone has it. */
  readonly isLong?: true;
}

const BENCHES: Readonly<Record<string, Case[]>> = {
  wire: [
    {
      flags: ['--megabytes', '1', '--rounds', '2', '--repetitions', '1', '--chunk-kib', '256'],
      rows: ['unix', 'tcp'].flatMap((transport) => ['raw', 'frames', 'rounds'].map((path) => ({ transport, path }))),
      figures: ['gigabytesPerSecond', 'serverCpuMs', 'workerCpuMs', 'cpuMsPerGigabyte', 'ofRaw'],
    },
    {
      flags: '--megabytes 1 --rounds 2 --repetitions 1 --chunk-kib 64 --servers 1,2 --streams 1,3 --transports unix'.split(' '),
      rows: [
        ...[1, 2].map((servers) => ({ path: 'rounds', servers, streams: 1 })),
        ...['raw', 'frames'].flatMap((path) => [1, 3].map((streams) => ({ path, servers: 1, streams }))),
      ],
      figures: ['gigabytesPerSecond', 'cpuMsPerGigabyte', 'cpuOfOneServer'],
    },
  ],
  kernels: [
    {
      flags: ['--elements', '4096', '--repetitions', '1'],
      rows: ['copy', 'addFinite', 'checksum', 'adam', 'lamb', 'lars', 'average'].map((kernel) => ({ kernel, elements: 4096, bar: 0.7 })),
      figures: ['bytesPerCall', 'gigabytesPerSecond', 'ofCached', 'ofCopy', 'lowest', 'highest', 'divisions', 'roots'],
    },
    {
      flags: ['--elements', '4096', '--repetitions', '1', '--only', 'codecs'],
      rows: ['toHalf', 'quantize', 'fromSigns', 'topK', 'scatter', 'isQuantized'].map((kernel) => ({ kernel, elements: 4096 })),
      figures: ['bytesPerCall', 'gigabytesPerSecond', 'ofCopy', 'ofReference'],
    },
  ],
  embeddings: [
    {
      flags: '--rows 2000 --dense-rows 1000 --rounds 10 --dense-rounds 5 --batches 8 --examples 200'.split(' '),
      rows: [
        { exchange: 'sparse', batch: 8, rowsTouched: 32 },
        { exchange: 'dense', batch: 8, rowsTouched: 1000 },
      ],
      figures: ['bytesPerRound', 'ofRows', 'cpuMs', 'roundMs'],
    },
  ],
  large: [
    {
      flags: ['--parameters', '20000', '--width', '64', '--rounds', '3', '--optimizers', 'adam'],
      rows: [{ optimizer: 'adam', engine: 'wasm', mode: 'sync', workers: 1, servers: 1 }],
      figures: [
        'parameters',
        'examplesPerSecond',
        'workerPeakMB',
        'workerTableMB',
        'workerRatio',
        'serverPeakMB',
        'serverTableMB',
        'serverRatio',
      ],
    },
  ],
  'large-batch': [
    {
      flags: ['--examples', '128', '--batch', '32', '--large-batch', '128', '--epochs', '2', '--warmup-epochs', '1', '--seeds', '1'],
      rows: [
        { what: 'small batch', batch: 32, epochs: 2, seeds: 1 },
        { what: 'large batch, the same rate', batch: 128 },
        { what: 'large batch, linear scaling', batch: 128 },
        { what: 'large batch, linear scaling and warm-up', batch: 128 },
      ],
      figures: ['errorPercent', 'lowest', 'highest', 'cpuSeconds'],
    },
  ],
  'local-updates': [
    {
      flags: [...LOCAL_UPDATES, '--only', 'rounds'],
      rows: [
        { table: 'rounds', localSteps: 1, rounds: 8, isReached: false },
        { table: 'rounds', localSteps: 4, rounds: 2, isReached: false },
      ],
      figures: ['epochs', 'sentMegabytes', 'receivedMegabytes'],
    },
    {
      flags: [...LOCAL_UPDATES, '--only', 'diloco'],
      isLong: true,
      rows: [
        { what: 'dense, AdamW', points: 0, timesFewerSent: 1 },
        { what: 'DiLoCo, H 50', rounds: 1, timesFewerSent: 8 },
      ],
      figures: ['errorPercent', 'lowest', 'highest', 'points', 'sentMegabytes', 'receivedMegabytes', 'timesFewerReceived', 'timesFewer'],
    },
  ],
  'time-to-accuracy': [
    {
      flags: '--model mlp --target 1 --batch 16 --most-rounds 4 --every 2 --steps 20 --link 20mbit,1ms --only'
        .split(' ')
        .concat('dense;auto;auto, local updates allowed'),
      rows: [
        { what: 'dense', isReached: true, rounds: 2, steps: 2, timesFaster: 1 },
        { what: 'auto', isReached: true, rounds: 2 },
        { what: 'auto, local updates allowed', isReached: true, rounds: 1, steps: 20, picked: 'local-update' },
      ],
      figures: ['seconds', 'millisecondsOfRound', 'megabytes', 'ofBest'],
    },
  ],
  'codec-off': [
    {
      flags: '--workers 1 --rounds 10 --warm-rounds 12 --repetitions 1'.split(' '),
      rows: [{ model: 'mlp', workers: 1 }],
      figures: ['cpuMs'],
    },
  ],
  codecs: [
    {
      flags: [
        '--examples',
        '64',
        '--batch',
        '32',
        '--replicas',
        '2',
        '--epochs',
        '1',
        '--seeds',
        '1',
        '--codecs',
        'none,int8,int4,top-k,dgc',
        '--link',
        '1gbit,1ms',
      ],
      rows: [
        { codec: 'none', model: 'mlp', points: 0, timesFewer: 1 },
        { codec: 'none parameters fp16' },
        { codec: 'none parameters bf16' },
        { codec: 'none parameters int8' },
        { codec: 'int8', timesFewer: 3.96 },
        { codec: 'int8 parameters int8', timesFewer: 3.96 },
        { codec: 'int4 parameters delta-int4', timesFewer: 7.84 },
        { codec: 'int4 parameters delta-int2', timesFewer: 7.84 },
        { codec: 'top-k 0.01 with error feedback' },
      ],
      figures: ['errorPercent', 'lowest', 'highest', 'gradientBytes', 'parameterBytes', 'linkRoundMs'],
    },
  ],
  validation: [
    {
      flags: ['--model', 'mlp', '--every', '5', '--validations', '2', '--repetitions', '1', '--batch', '4'],
      rows: [{ model: 'mlp', workers: 1, batchPerWorker: 4, everyRounds: 5, repetitions: 1 }],
      figures: ['ownMs', 'extraMs', 'extraOfRunsMs', 'trainingMs', 'extraOfOwn', 'barMs'],
    },
  ],
  tracing: [
    {
      flags: '--model mlp --workers 1 --batch 4 --rounds 5 --warm-up 10 --repetitions 1'.split(' '),
      rows: [{ model: 'mlp', workers: 1, batchPerWorker: 4, rounds: 5, repetitions: 1 }],
      figures: ['tracedMs', 'untracedMs', 'ratio', 'lowest', 'highest'],
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
  transformer: [
    {
      flags: ['--batch', '1', '--length', '4', '--vocabulary', '5', '--steps', '1', '--repetitions', '1'],
      rows: [{ what: 'paceline wasm', batch: 1, length: 4, vocabulary: 5, repetitions: 1 }],
      figures: ['examplesPerSecond', 'stepMs', 'cpuMs', 'loss'],
    },
  ],
  allreduce: [
    {
      flags: ['--megabytes', '1', '--repetitions', '1', '--members', '3'],
      rows: ['tcp', 'tcp, no checksum', 'unix', 'shared memory'].map((path) => ({ path, members: 3, megabytes: 1, repetitions: 1 })),
      figures: ['busGigabytesPerSecond', 'lowest', 'highest'],
    },
  ],
  mirrored: [
    {
      flags: ['--only', 'mlp', '--batches', '2', '--stock-batches', '1', '--repetitions', '1', '--seeds', '1'],
      rows: ['tf.js alone', 'MirroredStrategy, 1 thread', 'MirroredStrategy, 2 threads', 'ModelParallelStrategy, 2 stages'].map((what) => ({
        what,
        model: 'mlp',
        batch: 128,
        repetitions: 1,
      })),
      figures: ['examplesPerSecond', 'lowest', 'highest', 'ofStock', 'ofOneThread', 'finalLoss', 'lossOff'],
    },
    {
      isLong: true,
      flags: '--only deep --batches 1 --warm-up 1 --repetitions 1 --seeds 0 --pipelines 2 --micro-batches 1'.split(' '),
      rows: ['MirroredStrategy, 1 thread', 'MirroredStrategy, 2 threads', 'ModelParallelStrategy, 2 stages'].map((what) => ({
        what,
        model: 'deep',
        batch: 128,
        ofStock: null,
      })),
      figures: ['examplesPerSecond', 'lowest', 'highest', 'ofOneThread'],
    },
  ],
  strategies: [
    {
      flags: [...'--rounds 5 --repetitions 1 --batch 4 --steps-per-execution 5'.split(' '), '--only', 'multi-worker-mirrored,hybrid,tpu'],
      rows: [
        { strategy: 'multi-worker-mirrored', model: 'mlp', engine: 'wasm', workers: 2, threads: 1 },
        { strategy: 'hybrid', model: 'mlp', workers: 1, threads: 2 },
        { strategy: 'tpu', model: 'mlp', workers: 1, threads: 2 },
      ],
      figures: ['examplesPerSecond', 'lowest', 'highest', 'cpuMs'],
    },
  ],
  mlp: [
    {
      flags: ['--rounds', '5', '--repetitions', '1', '--batch', '4', '--workers', '1'],
      rows: [{ what: 'paceline parameter-server sync, wasm', model: 'mlp', workers: 1, servers: 1, batchPerWorker: 4 }],
      figures: ['examplesPerSecond', 'lowest', 'highest', 'efficiency'],
    },
    {
      flags: '--stack --paces slow,quick --seconds 1 --repetitions 1 --batch 4 --workers 1'.split(' '),
      isLong: true,
      rows: ['slow', 'quick'].map((pace) => ({ pace, workers: 1, servers: 1, batchPerWorker: 4 })),
      figures: [
        'roundsPerSecond',
        ...['Server', 'WorkerMain', 'WorkerCompute', 'WorkerOthers', 'Api', 'Postgres', 'Redis', 'Gradient', 'Beside'].map(
          (role) => `cpuMs${role}`,
        ),
        ...['api', 'postgres', 'redis'].map((role) => `${role}MsPerSecond`),
      ],
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
  data: [
    {
      flags: ['--rows', '64', '--images', '4', '--batch', '8', '--repetitions', '1'],
      rows: ['dense, one array column of 784', 'dense, 64 number columns', 'JPEG 224 × 224', 'rows from S3, warm beside cold'].map(
        (what) => ({ what }),
      ),
      figures: ['ours', 'beside', 'share', 'bar', 'firstSeconds'],
    },
  ],
  ingest: [
    {
      flags: ['--megabytes', '1', '--repetitions', '1'],
      rows: [{ format: 'csv', megabytes: 1, bar: 1.5 }],
      figures: ['rows', 'librarySeconds', 'importSeconds', 'ofLibrary', 'ofLibraryCpu', 'peakMB'],
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

const cases = Object.entries(BENCHES).flatMap(([name, runs]) =>
  runs.filter(({ isLong }) => IS_SOAK || !isLong).map((each) => ({ name, ...each })),
);

it.concurrent.each(cases)(
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

it(
  'the all-reduce by threads ends with what a thread fails with',
  async () => {
    const preload =
      "import { isMainThread } from 'node:worker_threads'; if (!isMainThread) Atomics.wait = () => { throw new Error('broken on purpose') };";
    const child = spawn(process.execPath, [join(root, 'tools/bench.mjs'), 'allreduce', '--megabytes', '1', '--repetitions', '1'], {
      cwd: root,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(preload)}` },
    });
    const timer = setTimeout(() => child.kill(), DEADLINE_MS - 5_000);
    let errors = '';
    child.stderr.on('data', (piece: Buffer) => (errors += piece.toString()));
    const [status] = (await once(child, 'close')) as [number | null];
    clearTimeout(timer);
    expect(status).toBe(1);
    expect(errors).toContain('a thread failed: Error: broken on purpose');
  },
  DEADLINE_MS,
);
