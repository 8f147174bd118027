/**
 * bench engine: one gradient step of a model, the stock tf.js wasm backend beside the engine, in milliseconds
 *
 * Each path has a process of its own (kernels are registered per process) and does what a compute thread does in a round:
 * takes over the parameters, computes the gradients of one batch and copies them into a flat vector. The stock path uses
 * tf.losses and dataSync. Both run in turn within each repetition, so that they meet the same machine; the figure is the
 * median of the repetitions' medians. The stock backend cannot train the CNN.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { parseArgs } from 'node:util';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    batch: { type: 'string', default: '64' },
    steps: { type: 'string', default: '40' },
    repetitions: { type: 'string', default: '7' },
    child: { type: 'string' },
  },
});
const batch = Number(flags.batch);
const steps = Number(flags.steps);
const PATHS = ['stock mlp', 'engine mlp', 'stock mlp-dropout', 'engine mlp-dropout', 'engine cnn'];

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const x = Float32Array.from({ length: batch * 784 }, (_, i) => ((i * 37) % 101) / 101);
const y = Int32Array.from({ length: batch }, (_, i) => i % 10);

async function engineStep(model) {
  const [{ createEngine, describeModel }, { createInitialValues, createLayout }, { parseRunSpec }] = await Promise.all([
    import('@paceline/engine'),
    import('@paceline/learning'),
    import('@paceline/spec'),
  ]);
  const { spec } = parseRunSpec({ model });
  const description = await describeModel(spec);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, layout });
  const [flat, out] = [0, 1].map(() => new Float32Array(new SharedArrayBuffer(layout.totalLength * 4)));
  createInitialValues(description, spec.seed).fill(0, flat);
  let round = 0;
  return () => {
    engine.load(flat);
    engine.step({ round: round++, replica: 0, batches: [{ x, y, count: batch }], out });
  };
}

async function stockStep(model) {
  const [tf, tfl, { setThreadsCount }] = await Promise.all([
    import('@tensorflow/tfjs-core'),
    import('@tensorflow/tfjs-layers'),
    import('@tensorflow/tfjs-backend-wasm'),
  ]);
  setThreadsCount(1);
  await tf.setBackend('wasm');
  const { layers } = tfl;
  const net = tfl.sequential();
  if (model === 'mlp') net.add(layers.dense({ units: 256, activation: 'relu', inputShape: [784] }));
  else {
    net.add(layers.dense({ units: 256, inputShape: [784] }));
    for (const layer of [layers.batchNormalization(), layers.activation({ activation: 'relu' }), layers.dropout({ rate: 0.5 })])
      net.add(layer);
  }
  net.add(layers.dense({ units: 128, activation: 'relu' }));
  if (model === 'mlp-dropout') net.add(layers.dropout({ rate: 0.5 }));
  net.add(layers.dense({ units: 10 }));
  const values = net.getWeights().map((weight) => weight.dataSync());
  const out = new Float32Array(values.reduce((sum, { length }) => sum + length, 0));
  const variables = net.trainableWeights.map((weight) => weight.read());
  const labels = tf.oneHot(tf.tensor1d(y, 'int32'), 10);
  return () =>
    tf.tidy(() => {
      net.setWeights(net.weights.map((weight, i) => tf.tensor(values[i], weight.shape)));
      const input = tf.tensor2d(x, [batch, 784]);
      const { grads } = tf.variableGrads(
        () => tf.losses.softmaxCrossEntropy(labels, net.apply(input, { training: true }), 1, 0, tf.Reduction.SUM),
        variables,
      );
      let offset = 0;
      for (const { name, size } of variables) {
        out.set(grads[name].dataSync(), offset);
        offset += size;
      }
    });
}

async function measure(path) {
  const [kind, model] = path.split(' ');
  const step = kind === 'stock' ? await stockStep(model) : await engineStep(model);
  for (let i = 0; i < 10; i++) step();
  process.on('message', () => {
    const times = Array.from({ length: steps }, () => {
      const startMs = performance.now();
      step();
      return performance.now() - startMs;
    });
    process.send(median(times));
  });
  process.send('ready');
}

async function compare() {
  const children = PATHS.map((path) => fork(new URL(import.meta.url), ['--child', path, '--batch', flags.batch, '--steps', flags.steps]));
  const answerOf = async (child) => (await once(child, 'message', { signal: AbortSignal.timeout(120_000) }))[0];
  try {
    await Promise.all(children.map(answerOf));
    const medians = PATHS.map(() => []);
    for (let repetition = 0; repetition < Number(flags.repetitions); repetition++) {
      for (const [i, child] of children.entries()) {
        const answer = answerOf(child);
        child.send('measure');
        medians[i].push(await answer);
      }
    }
    return PATHS.map((path, i) => ({ path, batch, stepMs: Number(median(medians[i]).toFixed(2)) }));
  } finally {
    for (const child of children) child.kill();
  }
}

if (flags.child) await measure(flags.child);
else {
  const results = await compare();
  if (flags.json) console.log(JSON.stringify(results));
  else
    for (const { path, stepMs } of results)
      console.log(`${path.padEnd(20)} batch ${batch}  ${String(stepMs).padStart(7)} ms  ${Math.round((batch / stepMs) * 1000)} examples/s`);
}
