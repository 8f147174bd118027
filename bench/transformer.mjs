/**
 * bench transformer: one gradient step of the transformer on one thread, beside PyTorch, in examples per second
 *
 * The model `transformer` of the zoo (docs/models.md) as a language model: `--batch` sequences of `--length` ids below `--vocabulary` and the id that
 * follows each. Every engine of `--engine` has a process of its own and does what a compute thread does in a round: takes over the parameters,
 * computes the gradients of a batch and copies them into a flat vector. With `--peer-python PYTHON` (one that has torch and numpy) PyTorch computes
 * the same step of the same model on one thread (transformer-torch.py): loss, gradients, and the gradients as numpy arrays. All take turns within each
 * repetition, so that they meet the same machine. `examplesPerSecond` is of the median step, `ofTorch` the row's divided by PyTorch's, `cpuMs` the
 * processor time of a step, which others on the machine disturb less.
 */
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    engine: { type: 'string', default: 'wasm' },
    batch: { type: 'string', default: '16' },
    length: { type: 'string', default: '64' },
    vocabulary: { type: 'string', default: '96' },
    steps: { type: 'string', default: '10' },
    repetitions: { type: 'string', default: '5' },
    'peer-python': { type: 'string' },
    child: { type: 'string' },
  },
});
const [batch, length, vocabulary, steps] = [flags.batch, flags.length, flags.vocabulary, flags.steps].map(Number);
/** Before the first figure; few when few are asked for. */
const WARM_UP_STEPS = Math.min(5, steps ?? 0);

/** @typedef {{ wallMs: number, cpuMs: number, loss: number }} Figures of a step; the loss is that of an example */
/** @typedef {{ measure(): Promise<Figures>, stop(): void }} Path */

/** @param {string} backend */
async function stepper(backend) {
  const [{ createEngine, describeModel }, { createInitialValues, createLayout }, { parseRunSpec }, { webgpuPackage }] = await Promise.all([
    import('@paceline/engine'),
    import('@paceline/learning'),
    import('@paceline/spec'),
    import('@paceline/runtime'),
  ]);
  const parsed = parseRunSpec({ model: 'transformer', engine: /** @type {'wasm'} */ (backend) });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  /** @type {import('@paceline/spec').RowFormat} */
  const format = {
    inputs: [{ name: 'text', shape: [length], ids: vocabulary }],
    targets: [{ name: 'next', kind: 'classes', shape: [length], classes: vocabulary }],
    isWeighted: false,
  };
  const description = await describeModel(parsed.spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec: parsed.spec, description, format, layout, webgpuPackage: webgpuPackage() });
  const flat = new Float32Array(layout.totalLength);
  createInitialValues(description, 1).fill(0, flat);
  const ids = Float32Array.from({ length: batch * length }, (_, i) => (i * 37) % vocabulary);
  const next = ids.map((id) => (id + 37) % vocabulary);
  const out = new Float32Array(layout.totalLength);
  return () => {
    engine.load(flat);
    return (
      (engine.step({ round: 0, replica: 0, batches: [{ inputs: [ids], targets: [next], count: batch }], out }).metricSums[0] ?? NaN) / batch
    );
  };
}

/** @param {string} backend */
async function serve(backend) {
  const step = await stepper(backend);
  let loss = NaN;
  for (let i = 0; i < WARM_UP_STEPS; i++) loss = step();
  process.on('message', () => {
    const cpuBefore = process.cpuUsage();
    const times = Array.from({ length: steps }, () => {
      const startMs = performance.now();
      loss = step();
      return performance.now() - startMs;
    });
    const { user, system } = process.cpuUsage(cpuBefore);
    process.send?.({ wallMs: median(times), cpuMs: (user + system) / 1000 / steps, loss });
  });
  process.send?.('ready');
}

/**
 * @param {string} backend
 * @returns {Promise<Path>}
 */
async function startOurs(backend) {
  const sizes = ['batch', 'length', 'vocabulary', 'steps'].flatMap((name) => [`--${name}`, flags[/** @type {'batch'} */ (name)]]);
  const child = fork(new URL(import.meta.url), ['--child', backend, ...sizes]);
  const gone = new AbortController();
  child.once('exit', () => gone.abort(new Error(`the process of engine ${backend} ended; what it said is above`)));
  const answer = async () => (await once(child, 'message', { signal: AbortSignal.any([gone.signal, AbortSignal.timeout(180_000)]) }))[0];
  await answer();
  return {
    measure: () => {
      const waiting = answer();
      child.send('go');
      return waiting;
    },
    stop: () => child.kill(),
  };
}

/**
 * @param {string} python
 * @returns {Promise<Path>}
 */
async function startTorch(python) {
  const script = fileURLToPath(new URL('transformer-torch.py', import.meta.url));
  const child = spawn(path.resolve(python), [script, ...[batch, length, vocabulary, steps].map(String)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`${python} ended without an answer: does it have torch and numpy?`);
    return value;
  };
  await answer();
  return {
    measure: async () => {
      child.stdin.write('go\n');
      const [wallMs = NaN, cpuMs = NaN, loss = NaN] = (await answer()).split(' ').map(Number);
      return { wallMs, cpuMs, loss };
    },
    stop: () => child.kill(),
  };
}

const TORCH = 'PyTorch';

async function compare() {
  /** @type {Map<string, Path>} */
  const paths = new Map();
  /** @type {Map<string, Figures[]>} */
  const figures = new Map();
  try {
    for (const backend of flags.engine.split(',')) paths.set(`paceline ${backend}`, await startOurs(backend));
    if (flags['peer-python']) paths.set(TORCH, await startTorch(flags['peer-python']));
    for (let i = 0; i < Number(flags.repetitions); i++)
      for (const [what, path] of paths) figures.set(what, [...(figures.get(what) ?? []), await path.measure()]);
  } finally {
    for (const { stop } of paths.values()) stop();
  }
  /** @param {string} what */
  const perSecond = (what) => (batch * 1000) / median((figures.get(what) ?? []).map(({ wallMs }) => wallMs));
  return [...figures].map(([what, values]) => ({
    what,
    batch,
    length,
    vocabulary,
    repetitions: values.length,
    examplesPerSecond: round(perSecond(what)),
    stepMs: round(median(values.map(({ wallMs }) => wallMs))),
    cpuMs: round(median(values.map(({ cpuMs }) => cpuMs))),
    loss: round(values.at(-1)?.loss ?? NaN),
    ...(figures.has(TORCH) ? { ofTorch: round(perSecond(what) / perSecond(TORCH)) } : {}),
  }));
}

/** @param {number} value */
const round = (value) => Number(value.toFixed(2));

if (flags.child) await serve(flags.child);
else {
  const rows = await compare();
  if (flags.json) console.log(JSON.stringify({ bench: 'transformer', rows }));
  else console.table(rows);
}
