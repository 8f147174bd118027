/**
 * bench mirrored: fit and evaluate of a tf.js model by MirroredStrategy on one and two threads and in two stages, beside tf.js alone, in examples per second
 *
 * Each path has a process of its own and calls `model.fit` of tf.js, or `model.evaluate` with `--act evaluate`, with the same model and data; a figure is the median over the repetitions of an
 * epoch each, after epochs that warm up (`--warm-up`, 1000 batches of the strategy): V8 compiles in them what a step runs, in each thread by itself, on the cores that are measured. All paths run in turn within a repetition, so that they meet the same machine. The MLP is 784-128-10 with batches of
 * 128, the small CNN has two convolutions of 8 and 16 filters with batches of 32. `zoo-cnn` is the CNN that runs of the service train, with batches of 128 and
 * a tenth of the batches; `deep` has six equal convolutions, which can be cut into even stages, and as many batches. tf.js alone takes minutes for one of them, so it is not asked.
 * `--pipelines` and `--micro-batches` are for ModelParallelStrategy. Images are made up, four pixels in five are zero as in MNIST. tf.js computes on its wasm
 * backend with one thread, which has no gradient of a convolution: the small CNN of tf.js alone runs on its cpu backend, in JavaScript. `ofStock` is how many times as fast as tf.js alone
 * a path is, `ofOneThread` how many times as fast as one thread.
 *
 * With `--tfjs-node FOLDER` (where @tensorflow/tfjs-node is installed) tf.js on TensorFlow with two threads is one more path, and `ofTfjsNode` is beside it. The bar is not held to it.
 *
 * `finalLoss` is the mean loss of the last of three epochs over `--stock-batches` batches (of the large models a tenth), the same for each path, from the same weights, over `--seeds` of them;
 * `lossOff` is how far a path is from the first one, as the largest relative difference of a seed. Losses take no part in the times; `--seeds 0` leaves them out.
 *
 * Evaluation has no gradient: tf.js computes the CNN on its wasm backend then.
 *
 * With `--check` it exits with 1 when two threads are not 8 times as fast as tf.js alone, or not 1.7 times as fast as one thread.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { prepareForTensorflow } from '@paceline/tensorflow-addon';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    only: { type: 'string', default: 'mlp,cnn,zoo-cnn' },
    act: { type: 'string', default: 'fit' },
    batches: { type: 'string', default: '200' },
    'stock-batches': { type: 'string', default: '10' },
    repetitions: { type: 'string', default: '5' },
    'warm-up': { type: 'string', default: '5' },
    check: { type: 'boolean', default: false },
    pipelines: { type: 'string', default: '1' },
    'micro-batches': { type: 'string' },
    seeds: { type: 'string', default: '3' },
    'tfjs-node': { type: 'string' },
    child: { type: 'string' },
  },
});
const BARS = { ofStock: 8, ofOneThread: 1.7 };

/** @typedef {typeof import('@tensorflow/tfjs-layers')} Layers */
/**
 * @type {Readonly<Record<string, { batch: number, inputShape: number[], layers: (tfl: Layers, inputShape: number[]) => import('@tensorflow/tfjs-layers').layers.Layer[], isLarge?: boolean }>>}
 */
const MODELS = {
  mlp: {
    batch: 128,
    inputShape: [784],
    layers: ({ layers }, inputShape) => [
      layers.dense({ units: 128, activation: 'relu', inputShape }),
      layers.dense({ units: 10, activation: 'softmax' }),
    ],
  },
  cnn: {
    batch: 32,
    inputShape: [28, 28, 1],
    layers: ({ layers }, inputShape) => [
      layers.conv2d({ filters: 8, kernelSize: 3, activation: 'relu', inputShape }),
      layers.maxPooling2d({ poolSize: 2 }),
      layers.conv2d({ filters: 16, kernelSize: 3, activation: 'relu' }),
      layers.maxPooling2d({ poolSize: 2 }),
      layers.flatten(),
      layers.dense({ units: 10, activation: 'softmax' }),
    ],
  },
  'zoo-cnn': {
    batch: 128,
    inputShape: [28, 28, 1],
    layers: ({ layers }, inputShape) => [
      layers.conv2d({ filters: 32, kernelSize: 3, activation: 'relu', inputShape }),
      layers.maxPooling2d({ poolSize: 2 }),
      layers.conv2d({ filters: 64, kernelSize: 3, activation: 'relu' }),
      layers.maxPooling2d({ poolSize: 2 }),
      layers.flatten(),
      layers.dense({ units: 128, activation: 'relu' }),
      layers.dense({ units: 10, activation: 'softmax' }),
    ],
    isLarge: true,
  },
  deep: {
    batch: 128,
    inputShape: [28, 28, 1],
    layers: ({ layers }, inputShape) => [
      layers.conv2d({ filters: 24, kernelSize: 3, padding: 'same', activation: 'relu', inputShape }),
      ...Array.from({ length: 5 }, () => layers.conv2d({ filters: 24, kernelSize: 3, padding: 'same', activation: 'relu' })),
      layers.maxPooling2d({ poolSize: 4 }),
      layers.flatten(),
      layers.dense({ units: 10, activation: 'softmax' }),
    ],
    isLarge: true,
  },
};
/** @type {Readonly<Record<string, { name: string, threads: number, isCut?: boolean }>>} threads of a strategy */
const PATHS = {
  stock: { name: 'tf.js alone', threads: 0 },
  native: { name: 'tf.js on TensorFlow (tfjs-node), 2 threads', threads: 0 },
  one: { name: 'MirroredStrategy, 1 thread', threads: 1 },
  two: { name: 'MirroredStrategy, 2 threads', threads: 2 },
  stages: { name: 'ModelParallelStrategy, 2 stages', threads: 2, isCut: true },
};

const NATIVE_THREADS = '2';
const LOSS_EPOCHS = 3;

/**
 * The tf.js of a path, on its backend.
 * @param {string} model
 * @param {string} kind
 * @returns {Promise<{ tf: typeof import('@tensorflow/tfjs-core'), tfl: Layers }>}
 */
async function tfjsOf(model, kind) {
  if (kind === 'native') {
    const native = createRequire(path.resolve(flags['tfjs-node'] ?? '.', 'package.json'))('@tensorflow/tfjs-node');
    return { tf: native, tfl: native };
  }
  const [tf, tfl, { setThreadsCount }] = await Promise.all([
    import('@tensorflow/tfjs-core'),
    import('@tensorflow/tfjs-layers'),
    import('@tensorflow/tfjs-backend-wasm'),
    import('@tensorflow/tfjs-backend-cpu'),
  ]);
  setThreadsCount(1);
  await tf.setBackend(kind === 'stock' && model === 'cnn' && flags.act === 'fit' ? 'cpu' : 'wasm');
  return { tf, tfl };
}

/**
 * Glorot's uniform initial values of a variable, from a seed: the same for each path.
 * @param {readonly number[]} shape
 * @param {number} seed
 */
function initialValues(shape, seed) {
  const size = shape.reduce((product, side) => product * side, 1);
  if (shape.length < 2) return new Float32Array(size);
  const outputs = shape.at(-1) ?? 1;
  const bound = Math.sqrt(6 / (size / outputs + (outputs * size) / outputs / (shape.at(-2) ?? 1)));
  let state = seed;
  return Float32Array.from({ length: size }, () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return bound * (((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 31 - 1);
  });
}

/**
 * In the child: trains one epoch whenever it is told to, and answers with the examples per second.
 * @param {string} model
 * @param {string} kind
 */
async function serve(model, kind) {
  const [{ tf, tfl }, { MirroredStrategy, ModelParallelStrategy }] = await Promise.all([
    tfjsOf(model, kind),
    import('@paceline/strategies'),
  ]);
  const { threads, isCut } = PATHS[kind] ?? PATHS.stock;
  tf.enableProdMode();
  const { batch, inputShape, layers, isLarge } = MODELS[model] ?? MODELS.mlp;
  const rowsOf = (/** @type {string} */ batches) => batch * Math.ceil(Number(batches) / (isLarge ? 10 : 1));
  const examples = rowsOf(flags[kind === 'stock' ? 'stock-batches' : 'batches']);
  const dataOf = (/** @type {number} */ count) => {
    const pixels = Float32Array.from({ length: count * 784 }, (_, i) => ((i * 7919) % 5 === 0 ? ((i * 37) % 101) / 101 : 0));
    const classes = tf.tensor1d(Int32Array.from({ length: count }, (_, i) => i % 10));
    return { xs: tf.tensor(pixels, [count, ...inputShape]), ys: tf.cast(tf.oneHot(tf.cast(classes, 'int32'), 10), 'float32') };
  };
  const { xs, ys } = dataOf(examples);
  const build = () => {
    const net = tfl.sequential({ layers: layers(tfl, inputShape) });
    net.compile({ optimizer: 'adam', loss: 'categoricalCrossentropy', metrics: ['accuracy'] });
    return net;
  };
  const strategy =
    threads > 0 &&
    (isCut
      ? new ModelParallelStrategy({
          stages: threads,
          pipelines: Number(flags.pipelines),
          ...(flags['micro-batches'] ? { microBatches: Number(flags['micro-batches']) } : {}),
        })
      : new MirroredStrategy({ threads }));
  const net = strategy ? strategy.scope(build) : build();
  const epoch = async () => {
    const startMs = performance.now();
    if (flags.act === 'fit') await net.fit(xs, ys, { epochs: 1, batchSize: batch, verbose: 0, shuffle: false });
    else tf.dispose(net.evaluate(xs, ys, { batchSize: batch }));
    return examples / ((performance.now() - startMs) / 1000);
  };
  const losses = async () => {
    const few = dataOf(rowsOf(flags['stock-batches']));
    const found = [];
    for (let seed = 0; seed < Number(flags.seeds); seed++) {
      const fresh = strategy ? strategy.scope(build) : build();
      fresh.setWeights(fresh.getWeights().map(({ shape }, i) => tf.tensor(initialValues(shape, 1_000 * seed + i), shape)));
      const { history } = await fresh.fit(few.xs, few.ys, { epochs: LOSS_EPOCHS, batchSize: batch, verbose: 0, shuffle: false });
      found.push(Number(history['loss']?.at(-1)));
      fresh.dispose();
    }
    return found;
  };
  for (let i = 0; i < (kind === 'stock' ? 1 : Number(flags['warm-up'])); i++) await epoch();
  process.on('message', async (what) => process.send?.(what === 'losses' ? await losses() : await epoch()));
  process.send?.('ready');
}

/**
 * @param {string} model
 * @param {string} kind
 */
async function start(model, kind) {
  const passed = /** @type {const} */ ([
    'act',
    'batches',
    'stock-batches',
    'warm-up',
    'pipelines',
    'micro-batches',
    'seeds',
    'tfjs-node',
  ]).flatMap((name) => (flags[name] ? [`--${name}`, flags[name]] : []));
  const threads = { TF_NUM_INTRAOP_THREADS: NATIVE_THREADS, OMP_NUM_THREADS: NATIVE_THREADS };
  const env = kind === 'native' ? prepareForTensorflow(Object.assign({}, process.env, threads)) : process.env;
  const child = fork(new URL(import.meta.url), ['--child', `${model} ${kind}`, ...passed], { env });
  const gone = new AbortController();
  child.once('exit', () => gone.abort(new Error(`the process of ${kind} ended; what it said is above`)));
  const answer = async () => (await once(child, 'message', { signal: AbortSignal.any([gone.signal, AbortSignal.timeout(600_000)]) }))[0];
  await answer();
  /** @param {'epoch' | 'losses'} what */
  const ask = (what) => {
    const waiting = answer();
    child.send(what);
    return waiting;
  };
  return {
    measure: () => ask('epoch'),
    /** @returns {Promise<number[]>} */
    losses: () => ask('losses'),
    stop: () => child.kill(),
  };
}

/**
 * @param {readonly number[]} losses by seed
 * @param {readonly number[]} first those of the first path
 */
function lossOf(losses, first) {
  if (losses.length === 0) return {};
  const off = losses.map((loss, seed) => Math.abs(loss / (first[seed] ?? Number.NaN) - 1));
  return {
    finalLoss: Number((losses.reduce((sum, loss) => sum + loss, 0) / losses.length).toFixed(6)),
    lossOff: Number(Math.max(...off).toPrecision(2)),
  };
}

/** @param {string} model */
async function measured(model) {
  const kinds = Object.keys(PATHS).filter((kind) =>
    kind === 'native' ? flags['tfjs-node'] !== undefined : kind !== 'stock' || !MODELS[model]?.isLarge,
  );
  const processes = [];
  for (const kind of kinds) processes.push(await start(model, kind));
  /** @type {number[][]} */
  const figures = kinds.map(() => []);
  for (let i = 0; i < Number(flags.repetitions); i++) for (const [k, child] of processes.entries()) figures[k]?.push(await child.measure());
  /** @type {number[][]} */
  const losses = [];
  if (flags.act === 'fit' && Number(flags.seeds) > 0) for (const child of processes) losses.push(await child.losses());
  for (const child of processes) child.stop();
  const medians = figures.map(median);
  return kinds.map((kind, k) => {
    const values = figures[k] ?? [];
    const speed = medians[k] ?? 0;
    /** @param {string} other */
    const timesOf = (other) => (kinds.includes(other) ? Number((speed / (medians[kinds.indexOf(other)] ?? 1)).toFixed(2)) : null);
    const [ofStock, ofOneThread] = [timesOf('stock'), timesOf('one')];
    const isTwo = kind === 'two' && flags.act === 'fit';
    return {
      what: PATHS[kind]?.name,
      act: flags.act,
      model,
      batch: MODELS[model]?.batch,
      repetitions: values.length,
      ...(PATHS[kind]?.isCut ? { pipelines: Number(flags.pipelines) } : {}),
      examplesPerSecond: Math.round(speed),
      lowest: Math.round(Math.min(...values)),
      highest: Math.round(Math.max(...values)),
      ofStock,
      ofOneThread,
      ...(kinds.includes('native') ? { ofTfjsNode: timesOf('native') } : {}),
      ...lossOf(losses[k] ?? [], losses[0] ?? []),
      ...(isTwo ? { holds: (ofStock ?? Infinity) >= BARS.ofStock && (ofOneThread ?? 0) >= BARS.ofOneThread } : {}),
    };
  });
}

if (flags.child !== undefined) {
  const [model = '', kind = ''] = flags.child.split(' ');
  await serve(model, kind);
} else {
  const rows = [];
  for (const model of flags.only.split(',')) {
    if (!(model in MODELS)) throw new Error(`--only takes ${Object.keys(MODELS).join(', ')}, not "${model}"`);
    rows.push(...(await measured(model)));
  }
  if (flags.json) console.log(JSON.stringify({ bench: 'mirrored', rows }));
  else console.table(rows);
  process.exit(flags.check && rows.some(({ holds }) => holds === false) ? 1 : 0);
}
