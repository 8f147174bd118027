/**
 * bench data: rows of prepared datasets: gathers beside a plain copy, JPEG beside sharp alone, rows from S3 cold and warm
 *
 * dense: batches of random rows of float32, from one array column and from number columns stored one by one, beside Float32Array.set of the same
 * number of bytes at once, and (`ofSameRows`) beside a loop that does nothing but set the same random rows out of one array; a row costs about 60 ns
 * whatever its size, so the bar is for rows of 3 KB. Times are of the processor, for the rows from S3 of the clock. jpeg: batches of 224 × 224 images to [224, 224, 3], beside sharp alone with the same steps on the same files, as many in flight. s3: all rows from the S3 server
 * of the tests, with an empty disk cache and with a full one. With `--check` it exits with 1 when a share is below its bar.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cachedShardSource, MemoryBudget, openPreparedRows, resolveFeatures, storeShardSource } from '@paceline/data';
import { featuresSchema, fieldLength } from '@paceline/spec';
import { openStore } from '@paceline/storage';
import { S3_TEST_CREDENTIALS, S3TestServer } from '@paceline/testkit';
import sharp from 'sharp';
import { bytesOf, floats, prepared, statistics, TEAM } from './data-tables.mjs';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    rows: { type: 'string', default: '20000' },
    images: { type: 'string', default: '64' },
    batch: { type: 'string', default: '256' },
    repetitions: { type: 'string', default: '7' },
    check: { type: 'boolean', default: false },
  },
});
const rows = Number(flags.rows);
const batch = Number(flags.batch);
const repetitions = Number(flags.repetitions);
const DENSE_BAR = 0.5;
const JPEG_BAR = 0.8;
const SHARDS = 4;

/** @typedef {import('@paceline/spec').DatasetManifest} Manifest */

/**
 * @param {Manifest} manifest
 * @param {unknown} features
 * @param {import('@paceline/data').ShardSource} source
 */
function open(manifest, features, source) {
  const resolved = resolveFeatures(manifest, featuresSchema.parse(features));
  if (!resolved.ok) throw new Error(JSON.stringify(resolved.issues));
  const { plan } = resolved;
  const opened = openPreparedRows(manifest, plan, source, { memory: new MemoryBudget(2 ** 31) });
  /** @param {number} examples */
  const buffers = (examples) => ({
    inputs: plan.rowFormat.inputs.map((field) => new Float32Array(examples * fieldLength(field))),
    targets: plan.rowFormat.targets.map((field) => new Float32Array(examples * fieldLength(field))),
    weights: undefined,
  });
  return { opened, buffers };
}

/** @param {() => unknown} work @returns {Promise<number>} seconds */
async function timed(work) {
  const from = performance.now();
  await work();
  return (performance.now() - from) / 1000;
}

/**
 * Processor time of all threads together: what others do on the machine changes it less.
 * @param {() => unknown} work @returns {Promise<number>} seconds
 */
async function timedCpu(work) {
  const from = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(from);
  return (user + system) / 1e6;
}

/**
 * In turn, each the same number of times; shares are medians over the turns.
 * @param {() => unknown} work @param {() => unknown} beside @param {() => unknown} [floor]
 */
async function inTurn(work, beside, floor) {
  /** @type {number[]} */
  const ours = [];
  /** @type {number[]} */
  const others = [];
  /** @type {number[]} */
  const floors = [];
  for (let i = 0; i < repetitions; i++) {
    ours.push(await timedCpu(work));
    others.push(await timedCpu(beside));
    if (floor) floors.push(await timedCpu(floor));
  }
  const shareOf = (/** @type {number[]} */ times) => median(ours.map((seconds, i) => (times[i] ?? 0) / seconds));
  return { share: shareOf(others), ofSameRows: floor && shareOf(floors), ours: median(ours), beside: median(others) };
}

/** @param {number} count @param {number} seed */
const order = (count, seed) => Int32Array.from(floats(count, seed), (value) => Math.floor(value * count));

const label = () => ({ name: 'y', kind: /** @type {const} */ ('number'), statistics: statistics(rows) });
const y = (/** @type {number} */ count) => ({ name: 'y', dtype: 'F32', shape: [count], bytes: bytesOf(new Float32Array(count)) });

/**
 * @param {import('@paceline/storage').ObjectStore} store
 * @param {string} what
 * @param {number} width
 * @param {boolean} isArray
 */
async function dense(store, what, width, isArray) {
  const each = Math.ceil(rows / SHARDS);
  const names = Array.from({ length: width }, (_, i) => `c${i}`);
  const parts = Array.from({ length: SHARDS }, (_, shard) => {
    const values = floats(each * width, shard + 1);
    const tensors = isArray
      ? [{ name: 'a', dtype: 'F32', shape: [each, width], bytes: bytesOf(values) }]
      : names.map((name, i) => ({ name, dtype: 'F32', shape: [each], bytes: bytesOf(values.slice(i * each, (i + 1) * each)) }));
    return { rows: each, tensors: [...tensors, y(each)] };
  });
  /** @type {import('@paceline/spec').Column[]} */
  const columns = isArray
    ? [{ name: 'a', kind: 'array', dtype: 'F32', shape: [width], statistics: statistics(rows) }]
    : names.map((name) => ({ name, kind: 'number', statistics: statistics(rows) }));
  const manifest = await prepared(store, [...columns, label()], parts, 'y');
  const { opened, buffers } = open(manifest, {}, storeShardSource(store, TEAM));
  const indices = order(each * SHARDS, 5);
  const into = buffers(batch);
  const loadSeconds = await timed(async () => {
    for (let from = 0; from < indices.length; from += batch)
      await opened.train.gather(indices, from, Math.min(from + batch, indices.length), into);
  });
  const source = floats(batch * width, 9);
  const batches = Math.floor(indices.length / batch);
  const everything = new Float32Array(batches * batch * width);
  for (let i = 0; i < batches; i++) everything.set(source, i * batch * width);
  const flat = floats(each * SHARDS * width, 7);
  const { share, ofSameRows, ours, beside } = await inTurn(
    () => {
      for (let at = 0; at < batches; at++) void opened.train.gather(indices, at * batch, (at + 1) * batch, into);
    },
    () => {
      for (let at = 0; at < batches; at++) into.inputs[0]?.set(everything.subarray(at * batch * width, (at + 1) * batch * width));
    },
    () => {
      for (let i = 0; i < batches * batch; i++) {
        const from = (indices[i] ?? 0) * width;
        into.inputs[0]?.set(flat.subarray(from, from + width), (i % batch) * width);
      }
    },
  );
  await opened.close();
  const gigabytes = (batches * batch * width * 4) / 1e9;
  return row(what, share, width >= 784 ? DENSE_BAR : 0, gigabytes / ours, gigabytes / beside, loadSeconds, 'GB/s', ofSameRows);
}

/** @param {import('@paceline/storage').ObjectStore} store */
async function jpeg(store) {
  const count = Number(flags.images);
  const size = 224;
  const files = await Promise.all(
    Array.from({ length: count }, (_, i) => {
      const noise = floats(size * size * 3, i + 1);
      const pixels = Uint8Array.from(noise, (value, at) => ((at / 3) % size) * 0.6 + (at / 3 / size) * 0.3 + value * 40);
      return sharp(pixels, { raw: { width: size, height: size, channels: 3 } })
        .jpeg({ quality: 85 })
        .toBuffer();
    }),
  );
  const offsets = new BigInt64Array(count + 1);
  for (const [i, { length }] of files.entries()) offsets[i + 1] = (offsets[i] ?? 0n) + BigInt(length);
  const tensors = [
    { name: 'photo', dtype: 'U8', shape: [Number(offsets[count])], bytes: Buffer.concat(files) },
    { name: 'photo:offsets', dtype: 'I64', shape: [count + 1], bytes: bytesOf(offsets) },
    y(count),
  ];
  const sizes = { count, missing: 0, minimum: size, maximum: size, mean: size };
  const photo = { name: 'photo', kind: /** @type {const} */ ('image'), heights: sizes, widths: sizes, channels: [3] };
  const manifest = await prepared(store, [photo, label()], [{ rows: count, tensors }], 'y');
  // Left out, the features would make them 128 × 128.
  const features = { inputs: { x: [{ kind: 'image', column: 'photo', height: size, width: size }] } };
  const { opened, buffers } = open(manifest, features, storeShardSource(store, TEAM));
  const into = buffers(count);
  const indices = order(count, 3);
  const loadSeconds = await timed(() => opened.train.gather(indices, 0, count, into));
  const { share, ours, beside } = await inTurn(
    () => opened.train.gather(indices, 0, count, into),
    () => inFlight(Array.from(indices, (index) => files[index] ?? Buffer.alloc(0))),
  );
  await opened.close();
  return row('JPEG 224 × 224', share, JPEG_BAR, count / ours, count / beside, loadSeconds, 'images/s');
}

/** Eight at a time, as the loader does. @param {readonly Buffer[]} files */
async function inFlight(files) {
  let next = 0;
  const worker = async () => {
    for (let file = files[next++]; file; file = files[next++])
      await sharp(file).autoOrient().resize({ width: 224, height: 224, fit: 'fill' }).toColourspace('srgb').raw().toBuffer();
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

/** @param {string} folder */
async function fromS3(folder) {
  Object.assign(process.env, S3_TEST_CREDENTIALS);
  const server = await S3TestServer.start();
  try {
    const store = openStore(server.url());
    const each = Math.ceil(rows / SHARDS);
    const width = 64;
    const parts = Array.from({ length: SHARDS }, (_, shard) => ({
      rows: each,
      tensors: [{ name: 'a', dtype: 'F32', shape: [each, width], bytes: bytesOf(floats(each * width, shard + 1)) }, y(each)],
    }));
    const array = {
      name: 'a',
      kind: /** @type {const} */ ('array'),
      dtype: /** @type {const} */ ('F32'),
      shape: [width],
      statistics: statistics(rows),
    };
    const manifest = await prepared(store, [array, label()], parts, 'y');
    const gigabytes = manifest.splits.train.shards.reduce((sum, { bytes }) => sum + bytes, 0) / 1e9;
    const indices = order(each * SHARDS, 5);
    const all = async () => {
      const source = cachedShardSource(storeShardSource(store, TEAM), { folder });
      const { opened, buffers } = open(manifest, {}, source);
      await opened.train.gather(indices, 0, indices.length, buffers(indices.length));
      await opened.close();
    };
    const cold = await timed(all);
    const warm = await timed(all);
    return row('rows from S3, warm beside cold', cold / warm, 0, gigabytes / warm, gigabytes / cold, cold, 'GB/s');
  } finally {
    await server.stop();
  }
}

/**
 * @param {string} what
 * @param {number} share
 * @param {number} bar
 * @param {number} ours
 * @param {number} beside
 * @param {number} firstSeconds
 * @param {string} unit
 * @param {number} [ofSameRows]
 */
function row(what, share, bar, ours, beside, firstSeconds, unit, ofSameRows) {
  const rounded = (/** @type {number} */ value) => Number(value.toPrecision(4));
  return {
    what,
    unit,
    ours: rounded(ours),
    beside: rounded(beside),
    share: rounded(share),
    ofSameRows: ofSameRows === undefined ? null : rounded(ofSameRows),
    bar,
    firstSeconds: rounded(firstSeconds),
    holds: share >= bar,
  };
}

const folder = await mkdtemp(join(tmpdir(), 'paceline-bench-data-'));
try {
  const store = openStore(join(folder, 'store'));
  const table = [
    await dense(store, 'dense, one array column of 784', 784, true),
    await dense(store, 'dense, 784 number columns', 784, false),
    await dense(store, 'dense, 64 number columns', 64, false),
    await jpeg(store),
    await fromS3(join(folder, 'cache')),
  ];
  if (flags.json) console.log(JSON.stringify({ bench: 'data', rows: table }));
  else console.table(table);
  process.exitCode = flags.check && table.some(({ holds }) => !holds) ? 1 : 0;
} finally {
  await rm(folder, { recursive: true });
}
