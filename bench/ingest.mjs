/**
 * bench ingest: a CSV file becomes a prepared dataset, beside the time that the CSV library takes for reading it alone
 *
 * The table is generated: eight numbers, a category and a label per row. The library is given the same bytes and throws the rows away; the import
 * infers types, divides, counts statistics, and hashes shards that nobody keeps. Both run in turn; figures are medians of the repetitions. With
 * `--check` it exits with 1 when the import takes more than the bar, as a multiple of the library.
 */
import { createReadStream } from 'node:fs';
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import { importDataset } from '../libs/ingest/dist/index.js';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    megabytes: { type: 'string', default: '1000' },
    repetitions: { type: 'string', default: '3' },
    check: { type: 'boolean', default: false },
  },
});
/** Seconds of the import, as a multiple of those of the library alone. */
const BAR = 1.5;
const NUMBERS_PER_ROW = 8;

/**
 * @param {string} file
 * @param {number} bytes
 */
async function generate(file, bytes) {
  const out = await open(file, 'w');
  let state = 1;
  const random = () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  let text = 'a,b,c,d,e,f,g,h,city,label\n';
  for (let written = 0; written < bytes; text = '') {
    for (let row = 0; row < 5000; row++) {
      for (let i = 0; i < NUMBERS_PER_ROW; i++) text += `${(random() * 100).toFixed(4)},`;
      text += `city${state % 50},${state % 3}\n`;
    }
    await out.appendFile(text);
    written += text.length;
  }
  await out.close();
}

/** @param {string} file */
async function libraryAlone(file) {
  const { parse } = await import(createRequire(import.meta.resolve('../libs/ingest/package.json')).resolve('csv-parse'));
  let rows = 0;
  const parser = parse({ bom: true, on_record: () => (rows++, null) });
  parser.resume();
  for await (const piece of createReadStream(file, { highWaterMark: 64 << 10 }))
    await new Promise((resolve) => parser.write(piece, () => resolve(undefined)));
  await new Promise((resolve) => parser.end(() => resolve(undefined)));
  return rows;
}

/**
 * @param {string} file
 * @param {string} workFolder
 */
async function imported(file, workFolder) {
  const sink = { has: () => Promise.resolve(false), put: () => Promise.resolve() };
  const { manifest } = await importDataset({ sources: [file], label: 'label', split: { train: 0.9, test: 0.1 } }, sink, { workFolder });
  return manifest.splits.train.rows + (manifest.splits.test?.rows ?? 0);
}

/** @param {() => Promise<number>} work */
async function timed(work) {
  const startedAt = performance.now();
  const cpu = process.cpuUsage();
  const rows = await work();
  const { user, system } = process.cpuUsage(cpu);
  return { rows, seconds: (performance.now() - startedAt) / 1000, cpuSeconds: (user + system) / 1e6 };
}

const folder = await mkdtemp(path.join(tmpdir(), 'paceline-bench-'));
try {
  const file = path.join(folder, 'table.csv');
  const bytes = Number(flags.megabytes) * 1e6;
  await generate(file, bytes);
  /** @typedef {Awaited<ReturnType<typeof timed>>} Timed */
  /** @type {Timed[]} */
  const library = [];
  /** @type {Timed[]} */
  const ours = [];
  for (let i = 0; i < Number(flags.repetitions); i++) {
    library.push(await timed(() => libraryAlone(file)));
    ours.push(await timed(() => imported(file, folder)));
  }
  /** @param {{ seconds: number }[]} runs */
  const seconds = (runs) => median(runs.map((run) => run.seconds));
  const ratio = median(ours.map((run, i) => run.cpuSeconds / library[i].cpuSeconds));
  const row = {
    format: 'csv',
    megabytes: Number(flags.megabytes),
    rows: ours[0].rows,
    librarySeconds: Number(seconds(library).toFixed(3)),
    importSeconds: Number(seconds(ours).toFixed(3)),
    ofLibrary: Number((seconds(ours) / seconds(library)).toFixed(2)),
    ofLibraryCpu: Number(ratio.toFixed(2)),
    peakMB: Math.round(process.resourceUsage().maxRSS / 1024),
    bar: BAR,
  };
  if (flags.json) process.stdout.write(`${JSON.stringify({ bench: 'ingest', rows: [row] })}\n`);
  else
    process.stdout.write(
      `${Object.entries(row)
        .map(([name, value]) => `${name} ${value}`)
        .join('\n')}\n`,
    );
  if (flags.check && row.ofLibrary > BAR) process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}
