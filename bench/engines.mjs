/**
 * bench engines: one gradient step of each model on one thread, engines side by side, in milliseconds
 *
 * Each path has a process of its own (kernels are registered per process) and does what a compute thread does in a round:
 * takes over the parameters, computes the gradients of one batch and copies them into a flat vector. All paths run in turn within each
 * repetition, so that they meet the same machine; a figure is the median of the repetitions' medians, `ours` the engine's divided by the row's. cpuMs is
 * the processor time of a step, which others on the machine disturb less. The stock wasm backend cannot train the CNN. The tensorflow
 * engine is measured where it is installed (`paceline engine install tensorflow`), webgpu where Dawn finds a GPU. `--engine wasm,webgpu` measures those
 * alone, webgpu also on a driver that computes on the processor. With `--peer-python PYTHON` TensorFlow computes the same
 * step compiled as a graph (engines-tensorflow.py), with `--tfjs-node FOLDER` (where @tensorflow/tfjs-node is installed) stock tf.js runs on
 * its native library. `--only mlp,cnn` picks models, `--batch N` gives all of them batches of N: `cnn-64` and `resnet-64` take images of 64 × 64 × 3,
 * `transformer` 64 ids of 96, and are measured when they are named. Inputs are pseudo-random, none of them zero but one in a hundred; `mlp-mnist` is the MLP on images of
 * MNIST, of which four pixels in five are zero: the wasm engine leaves those out, the others do not care. Python has no MNIST and leaves it out.
 *
 * With `--check` it exits with 1 when wasm misses a bar: of the stock backend, or of tf.js on TensorFlow (needs `--tfjs-node`).
 *
 * `--steady STEPS` instead runs the engine for so many steps of the MLP and looks at tensors and memory.
 */
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { fusesMultiplyAdd } from '@paceline/kernels';
import { webgpuPackage } from '@paceline/runtime';
import { prepareForTensorflow, tensorflowEngines } from '@paceline/tensorflow-addon';
import { ALL, batchOf, DIGITS, MODELS } from './engine-models.mjs';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    only: { type: 'string', default: 'mlp,mlp-mnist,cnn,lstm,gru' },
    engine: { type: 'string' },
    batch: { type: 'string' },
    steps: { type: 'string', default: '20' },
    repetitions: { type: 'string', default: '7' },
    'peer-python': { type: 'string' },
    'tfjs-node': { type: 'string' },
    steady: { type: 'string' },
    check: { type: 'boolean', default: false },
    child: { type: 'string' },
  },
});
const steps = Number(flags.steps);
const repetitions = Number(flags.repetitions);
/** Before the first figure of a model; few when few are asked for. */
const WARM_UP_STEPS = Math.min(10, steps);

/** @typedef {import('./engine-models.mjs').Model} Model */
/** @typedef {'stock' | 'engine' | 'relaxed' | 'native' | 'webgpu' | 'tfjs-node' | 'tensorflow'} Kind what computes */
/** @typedef {{ wallMs: number, cpuMs: number }} Times of a step */
/** @typedef {{ measure(name: Model): Promise<Times>, stop(): void }} Process of a kind */

const models = flags.only.split(',').map((name) => {
  const model = ALL.find((each) => each === name);
  if (!model) throw new Error(`--only takes ${ALL.join(', ')}, not "${name}"`);
  return model;
});
/**
 * Nothing of tf.js alone trains a convolution on wasm, or a GRU that resets after the product anywhere.
 * @type {Readonly<Record<Kind, readonly Model[]>>}
 */
const TRAINED_BY = {
  stock: ['mlp', 'mlp-mnist', 'lstm'],
  engine: ALL,
  relaxed: ALL,
  webgpu: ALL,
  native: ['mlp', 'mlp-mnist', 'cnn', 'lstm'],
  'tfjs-node': ['mlp', 'mlp-mnist', 'cnn', 'lstm'],
  tensorflow: ['mlp', 'cnn', 'lstm', 'gru'],
};
/** @type {Readonly<Record<Kind, string>>} */
const NAMES = {
  stock: 'tf.js wasm, stock',
  engine: 'paceline wasm',
  relaxed: 'paceline wasm-relaxed',
  native: 'paceline tensorflow',
  webgpu: 'paceline webgpu',
  'tfjs-node': 'tf.js on TensorFlow (tfjs-node)',
  tensorflow: 'TensorFlow, graph (Python)',
};
const ALL_KINDS = /** @type {Kind[]} */ (Object.keys(NAMES));

/**
 * At most so many times the step of another path.
 * @type {Readonly<Record<string, number>>}
 */
const BARS = {
  'mlp stock': 0.25,
  'mlp-mnist stock': 0.25,
  'mlp tfjs-node': 1,
  'mlp-mnist tfjs-node': 1,
  'cnn tfjs-node': 1.2,
  'lstm tfjs-node': 2,
};

/** @param {Model} name */
const batchSize = (name) => (flags.batch ? Number(flags.batch) : MODELS[name].batch);

/**
 * @param {Model} name
 * @param {Pick<import('@paceline/engine').EngineOptions, 'backend' | 'tensorflowPackage' | 'webgpuPackage'>} [options]
 */
async function engineStep(name, options = {}) {
  const [{ createEngine, describeModel }, { createInitialValues, createLayout }, { parseRunSpec }] = await Promise.all([
    import('@paceline/engine'),
    import('@paceline/learning'),
    import('@paceline/spec'),
  ]);
  const { model, format = DIGITS } = MODELS[name];
  const parsed = parseRunSpec({ model });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { spec } = parsed;
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout, ...options });
  const vector = () => new Float32Array(new SharedArrayBuffer(layout.totalLength * 4));
  const [flat, out] = [vector(), vector()];
  createInitialValues(description, spec.seed).fill(0, flat);
  const batches = [await batchOf(name, batchSize(name))];
  let round = 0;
  const step = () => {
    engine.load(flat);
    engine.step({ round: round++, replica: 0, batches, out });
  };
  return { step, engine };
}

/**
 * The same with tf.js alone: its layers, its loss, its copies.
 * @param {typeof import('@tensorflow/tfjs-core')} tf
 * @param {Pick<typeof import('@tensorflow/tfjs-layers'), 'layers' | 'sequential'>} tfl
 * @param {Model} name
 * @param {Awaited<ReturnType<typeof batchOf>>} batch
 */
function tfjsStep(tf, tfl, name, { inputs: [x], targets: [y], count }) {
  const { layers } = tfl;
  /**
   * @param {number} units
   * @param {'relu'} [activation]
   */
  const dense = (units, activation) => layers.dense(activation ? { units, activation } : { units });
  const kind = name === 'cnn' || name === 'lstm' ? name : 'mlp';
  const inputShape = { mlp: [784], cnn: [28, 28, 1], lstm: [28, 28] }[kind];
  const stacks = {
    mlp: () => [layers.dense({ units: 256, activation: 'relu', inputShape }), dense(128, 'relu'), dense(10)],
    cnn: () => [
      layers.conv2d({ filters: 32, kernelSize: 3, activation: 'relu', inputShape }),
      layers.maxPooling2d({ poolSize: 2 }),
      layers.conv2d({ filters: 64, kernelSize: 3, activation: 'relu' }),
      layers.maxPooling2d({ poolSize: 2 }),
      layers.flatten(),
      dense(128, 'relu'),
      dense(10),
    ],
    lstm: () => [layers.lstm({ units: 128, recurrentActivation: 'sigmoid', recurrentInitializer: 'glorotNormal', inputShape }), dense(10)],
  };
  const net = tfl.sequential({ layers: stacks[kind]() });
  const values = net.getWeights().map((weight) => weight.dataSync());
  const out = new Float32Array(values.reduce((sum, { length }) => sum + length, 0));
  const variables = net.trainableWeights.map((weight) => /** @type {import('@tensorflow/tfjs-core').Variable} */ (weight.read()));
  const labels = tf.oneHot(tf.tensor1d(Int32Array.from(y), 'int32'), 10);
  return () =>
    tf.tidy(() => {
      net.setWeights(net.weights.map((weight, i) => tf.tensor(values[i] ?? [], /** @type {number[]} */ (weight.shape))));
      const input = tf.tensor(x, [count, ...inputShape]);
      const { grads } = tf.variableGrads(() => {
        const logits = /** @type {import('@tensorflow/tfjs-core').Tensor} */ (net.apply(input, { training: true }));
        return tf.losses.softmaxCrossEntropy(labels, logits, 1, 0, tf.Reduction.SUM);
      }, variables);
      let offset = 0;
      for (const variable of variables) {
        const gradient = grads[variable.name];
        if (!gradient) throw new Error(`${variable.name} has no gradient`);
        out.set(gradient.dataSync(), offset);
        offset += variable.size;
      }
    });
}

/**
 * @param {Kind} kind
 * @param {Model} name
 * @returns {Promise<() => void>}
 */
async function stepper(kind, name) {
  if (kind === 'engine') return (await engineStep(name)).step;
  if (kind === 'relaxed') return (await engineStep(name, { backend: 'wasm-relaxed' })).step;
  if (kind === 'webgpu') return (await engineStep(name, { backend: 'webgpu', webgpuPackage: webgpuPackage() })).step;
  if (kind === 'native')
    return (await engineStep(name, { backend: 'tensorflow', tensorflowPackage: tensorflowEngines()[0]?.packageDir })).step;
  if (kind === 'tfjs-node') {
    const native = createRequire(path.resolve(flags['tfjs-node'] ?? '.', 'package.json'))('@tensorflow/tfjs-node');
    return tfjsStep(native, native, name, await batchOf(name, batchSize(name)));
  }
  const [tf, tfl, { setThreadsCount }] = await Promise.all([
    import('@tensorflow/tfjs-core'),
    import('@tensorflow/tfjs-layers'),
    import('@tensorflow/tfjs-backend-wasm'),
  ]);
  setThreadsCount(1);
  await tf.setBackend('wasm');
  return tfjsStep(tf, tfl, name, await batchOf(name, batchSize(name)));
}

/**
 * In the child: a name comes in, the median step in milliseconds and the processor time of a step go out.
 * @param {Kind} kind
 */
async function serve(kind) {
  /** @type {Map<Model, () => void>} */
  const steppers = new Map();
  /** @param {Model} name */
  const warmedUp = async (name) => {
    const step = await stepper(kind, name);
    for (let i = 0; i < WARM_UP_STEPS; i++) step();
    steppers.set(name, step);
    return step;
  };
  process.on('message', async (/** @type {Model} */ name) => {
    const step = steppers.get(name) ?? (await warmedUp(name));
    const cpuBefore = process.cpuUsage();
    const times = Array.from({ length: steps }, () => {
      const startMs = performance.now();
      step();
      return performance.now() - startMs;
    });
    const { user, system } = process.cpuUsage(cpuBefore);
    process.send?.({ wallMs: median(times), cpuMs: (user + system) / 1000 / steps });
  });
  process.send?.('ready');
}

/**
 * One path as a function from the name of a model to its times.
 * @param {Kind} kind
 * @returns {Promise<Process>}
 */
async function startJavaScript(kind) {
  const passed = /** @type {const} */ (['steps', 'batch', 'tfjs-node']).flatMap((name) => (flags[name] ? [`--${name}`, flags[name]] : []));
  const args = ['--child', kind, ...passed];
  const child = fork(new URL(import.meta.url), args, { env: prepareForTensorflow({ ...process.env, OMP_NUM_THREADS: '1' }) });
  const gone = new AbortController();
  child.once('exit', () => gone.abort(new Error(`the process for "${NAMES[kind]}" ended; what it said is above`)));
  const answer = async () => (await once(child, 'message', { signal: AbortSignal.any([gone.signal, AbortSignal.timeout(180_000)]) }))[0];
  await answer();
  return {
    measure: (name) => {
      const waiting = answer();
      child.send(name);
      return waiting;
    },
    stop: () => child.kill(),
  };
}

/**
 * @param {string} python
 * @returns {Promise<Process>}
 */
async function startPython(python) {
  const script = fileURLToPath(new URL('engines-tensorflow.py', import.meta.url));
  const child = spawn(path.resolve(python), [script, flags.steps], { stdio: ['pipe', 'pipe', 'ignore'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`${python} ended without an answer: does it have tensorflow and numpy?`);
    return value;
  };
  await answer();
  return {
    measure: async (name) => {
      child.stdin.write(`${name}\n`);
      const [wallMs = NaN, cpuMs = NaN] = (await answer()).split(' ').map(Number);
      return { wallMs, cpuMs };
    },
    stop: () => child.kill(),
  };
}

/** Why there is nothing that --check could hold the engine to. */
function uncheckable() {
  if (flags.steady) return '--check compares times, and --steady measures none';
  if (!flags['tfjs-node']) return '--check holds the engine to tf.js on TensorFlow, too: name a --tfjs-node';
  const barred = new Set(Object.keys(BARS).map((key) => key.split(' ')[0]));
  if (!models.some((name) => barred.has(name))) return `--check has no bar for ${flags.only}: name one of ${[...barred]} with --only`;
  return undefined;
}

/** @returns {Promise<Kind[]>} */
async function kindsHere() {
  if (flags.engine)
    return flags.engine.split(',').map((engine) => {
      const kind = ALL_KINDS.find((each) => NAMES[each] === `paceline ${engine}`);
      if (!kind) throw new Error(`--engine takes wasm, wasm-relaxed, tensorflow and webgpu, not "${engine}"`);
      return kind;
    });
  /** @type {Kind[]} */
  const kinds = ['stock', 'engine'];
  if (fusesMultiplyAdd()) kinds.push('relaxed');
  if (tensorflowEngines().length > 0) kinds.push('native');
  if (await hasGpu()) kinds.push('webgpu');
  if (flags['tfjs-node']) kinds.push('tfjs-node');
  return kinds;
}

async function hasGpu() {
  const folder = webgpuPackage();
  if (folder === undefined) return false;
  const { findAdapterInProcess } = await import('@paceline/engine/planning');
  return findAdapterInProcess({ webgpuPackage: folder }, process.env, 5_000).then(
    ({ type }) => type === 'GPU',
    () => false,
  );
}

async function compare() {
  const python = flags['peer-python'];
  const kinds = await kindsHere();
  const started = kinds.map(async (kind) => ({ kind, process: await startJavaScript(kind) }));
  if (python) started.push(startPython(python).then((process) => ({ kind: 'tensorflow', process })));
  const paths = await Promise.all(started);
  /** @type {Map<string, Times[]>} */
  const medians = new Map();
  try {
    for (let repetition = 0; repetition < repetitions; repetition++) {
      for (const name of models) {
        for (const { kind, process: path } of paths) {
          if (!TRAINED_BY[kind].includes(name)) continue;
          const key = `${name} ${kind}`;
          medians.set(key, [...(medians.get(key) ?? []), await path.measure(name)]);
        }
      }
    }
  } finally {
    for (const { process: path } of paths) path.stop();
  }
  return models.flatMap((name) => {
    const wasm = medians.get(`${name} engine`);
    const ours = wasm && figures(wasm);
    return paths.flatMap(({ kind }) => {
      const values = medians.get(`${name} ${kind}`);
      if (!values) return [];
      const { stepMs, cpuMs } = figures(values);
      const wall = values.map(({ wallMs }) => wallMs);
      const bar = BARS[`${name} ${kind}`];
      const row = {
        model: name,
        batch: batchSize(name),
        engine: NAMES[kind],
        repetitions: values.length,
        stepMs,
        lowest: round(Math.min(...wall)),
        highest: round(Math.max(...wall)),
        cpuMs,
        examplesPerSecond: Math.round((batchSize(name) * 1000) / stepMs),
        ...(ours ? { ours: round(ours.stepMs / stepMs), oursCpu: round(ours.cpuMs / cpuMs) } : {}),
      };
      return [bar === undefined || !ours ? row : { ...row, bar, holds: ours.stepMs <= bar * stepMs }];
    });
  });
}

/** @param {number} value */
const round = (value) => Number(value.toFixed(2));
/** @param {readonly Times[]} values */
const figures = (values) => ({
  stepMs: round(median(values.map(({ wallMs }) => wallMs))),
  cpuMs: round(median(values.map(({ cpuMs }) => cpuMs))),
});

/**
 * Tensors and memory over many steps; the first tenth is for V8 to settle.
 * @param {number} count
 */
async function steady(count) {
  const { step, engine } = await engineStep('mlp');
  const settled = Math.ceil(count / 10);
  for (let i = 0; i < settled; i++) step();
  const [tensors, rss] = [engine.memory().tensors, process.memoryUsage.rss()];
  for (let i = settled; i < count; i++) step();
  const after = engine.memory().tensors;
  return [
    { model: 'mlp', steps: count, tensors, tensorsAfter: after, rssGrowthMB: Number(((process.memoryUsage.rss() - rss) / 1e6).toFixed(1)) },
  ];
}

if (flags.child) await serve(/** @type {Kind} */ (flags.child));
else if (flags.check && uncheckable()) {
  console.error(uncheckable());
  process.exit(1);
} else {
  const table = flags.steady ? await steady(Number(flags.steady)) : await compare();
  if (flags.json) console.log(JSON.stringify({ bench: 'engines', rows: table }));
  else console.table(table);
  process.exit(flags.check && table.some((row) => 'holds' in row && !row.holds) ? 1 : 0);
}
