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
 * Evaluation has no gradient: tf.js computes the CNN on its wasm backend then.
 *
 * With `--check` it exits with 1 when two threads are not 8 times as fast as tf.js alone, or not 1.7 times as fast as one thread.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
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
/** @type {Readonly<Record<string, { name: string, threads: number, isCut?: boolean }>>} */
const PATHS = {
  stock: { name: 'tf.js alone', threads: 0 },
  one: { name: 'MirroredStrategy, 1 thread', threads: 1 },
  two: { name: 'MirroredStrategy, 2 threads', threads: 2 },
  stages: { name: 'ModelParallelStrategy, 2 stages', threads: 2, isCut: true },
};

/**
 * In the child: trains one epoch whenever it is told to, and answers with the examples per second.
 * @param {string} model
 * @param {string} kind
 */
async function serve(model, kind) {
  const [tf, tfl, { setThreadsCount }, { MirroredStrategy, ModelParallelStrategy }] = await Promise.all([
    import('@tensorflow/tfjs-core'),
    import('@tensorflow/tfjs-layers'),
    import('@tensorflow/tfjs-backend-wasm'),
    import('@paceline/strategies'),
    import('@tensorflow/tfjs-backend-cpu'),
  ]);
  const { threads, isCut } = PATHS[kind] ?? PATHS.stock;
  setThreadsCount(1);
  tf.enableProdMode();
  await tf.setBackend(threads === 0 && model === 'cnn' && flags.act === 'fit' ? 'cpu' : 'wasm');
  const { batch, inputShape, layers, isLarge } = MODELS[model] ?? MODELS.mlp;
  const batches = Number(threads === 0 ? flags['stock-batches'] : flags.batches);
  const examples = batch * Math.ceil(isLarge ? batches / 10 : batches);
  const pixels = Float32Array.from({ length: examples * 784 }, (_, i) => ((i * 7919) % 5 === 0 ? ((i * 37) % 101) / 101 : 0));
  const xs = tf.tensor(pixels, [examples, ...inputShape]);
  const ys = tf.cast(tf.oneHot(tf.tensor1d(Int32Array.from({ length: examples }, (_, i) => i % 10)), 10), 'float32');
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
  for (let i = 0; i < (threads === 0 ? 1 : Number(flags['warm-up'])); i++) await epoch();
  process.on('message', async () => process.send?.(await epoch()));
  process.send?.('ready');
}

/**
 * @param {string} model
 * @param {string} kind
 */
async function start(model, kind) {
  const passed = /** @type {const} */ (['act', 'batches', 'stock-batches', 'warm-up', 'pipelines']).flatMap((name) => [
    `--${name}`,
    flags[name],
  ]);
  const cut = flags['micro-batches'] ? ['--micro-batches', flags['micro-batches']] : [];
  const child = fork(new URL(import.meta.url), ['--child', `${model} ${kind}`, ...passed, ...cut]);
  const gone = new AbortController();
  child.once('exit', () => gone.abort(new Error(`the process of ${kind} ended; what it said is above`)));
  const answer = async () => (await once(child, 'message', { signal: AbortSignal.any([gone.signal, AbortSignal.timeout(600_000)]) }))[0];
  await answer();
  return {
    measure: () => {
      const waiting = answer();
      child.send('epoch');
      return waiting;
    },
    stop: () => child.kill(),
  };
}

/** @param {string} model */
async function measured(model) {
  const kinds = Object.keys(PATHS).filter((kind) => kind !== 'stock' || !MODELS[model]?.isLarge);
  const processes = [];
  for (const kind of kinds) processes.push(await start(model, kind));
  /** @type {number[][]} */
  const figures = kinds.map(() => []);
  for (let i = 0; i < Number(flags.repetitions); i++) for (const [k, child] of processes.entries()) figures[k]?.push(await child.measure());
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
