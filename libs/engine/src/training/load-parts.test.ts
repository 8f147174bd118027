import { afterEach, expect, it } from 'vitest';
import { batchOf, bitsOf, type Loaded, loadedEngine, rowsOf, sequential } from '../run.fixture.js';
import { installedPackage } from '../backends/tensorflow/installed.fixture.js';

const packageDir = installedPackage();
const open: Loaded[] = [];
afterEach(() => {
  for (const { engine } of open.splice(0)) engine.dispose();
});
/** XNNPACK packs the operands of some of these layers, and has to be told of new ones. */
const packed = sequential(
  ['InputLayer', { batch_input_shape: [null, 784] }],
  ['Reshape', { target_shape: [28, 28, 1] }],
  ['Conv2D', { filters: 4, kernel_size: 3, strides: 2 }],
  ['DepthwiseConv2D', { kernel_size: 3 }],
  ['Conv2D', { filters: 4, kernel_size: 3, dilation_rate: 2 }],
  ['Flatten'],
  ['Dense', { units: 10 }],
);
const MODELS = { mlp: 'mlp', 'mlp-dropout': 'mlp-dropout', cnn: 'cnn', packed } as const;

async function loaded(model: keyof typeof MODELS, engine: 'wasm' | 'cpu' | 'tensorflow'): Promise<Loaded> {
  const one = await loadedEngine({ model: MODELS[model], engine }, packageDir);
  open.push(one);
  return one;
}

/** What a step and an evaluation give. */
function computed({ engine, layout }: Loaded, round: number) {
  const out = new Float32Array(layout.totalLength).fill(Number.NaN);
  const batch = batchOf(6, round + 1);
  const sums = engine.step({ round, replica: 0, batches: [batch], out });
  return { bits: bitsOf(out), sums, evaluated: engine.evaluate(rowsOf(batch, 0, 4)) };
}

/** Ranges that together are the vector, of unlike lengths, the last ones first. */
function rangesOf(length: number, pieces: number): [number, number][] {
  const ends = Array.from({ length: pieces + 1 }, (_, i) => Math.floor(length * (i / pieces) ** 2));
  return ends
    .slice(1)
    .map((to, i): [number, number] => [ends[i]!, to])
    .reverse();
}

it.each([
  ['mlp', 'wasm'],
  ['mlp-dropout', 'wasm'],
  ['cnn', 'wasm'],
  ['packed', 'wasm'],
  ['mlp-dropout', 'cpu'],
  ...(packageDir ? ([['mlp-dropout', 'tensorflow']] as const) : []),
] as const)('parameters of %s that are loaded part by part are those that are loaded whole (%s)', async (model, name) => {
  const [parts, whole] = [await loaded(model, name), await loaded(model, name)];
  for (let round = 0; round < (name === 'wasm' ? 6 : 2); round++) {
    const values = whole.flat.map((value, i) => value + Math.abs(Math.sin(round * 7 + i)) * 0.01);
    for (const [from, to] of rangesOf(values.length, 9)) parts.engine.loadPart!(from, values.subarray(from, to));
    whole.engine.load(values);
    const [a, b] = [computed(parts, round), computed(whole, round)];
    expect(a.sums).toEqual(b.sums);
    expect(a.evaluated).toEqual(b.evaluated);
    expect(a.bits.equals(b.bits), `round ${round}`).toBe(true);
  }
});

it('a part leaves the other parameters as they are', async () => {
  const [parts, whole] = [await loaded('mlp-dropout', 'wasm'), await loaded('mlp-dropout', 'wasm')];
  const values = whole.flat.slice();
  const middle = Math.floor(values.length / 2);
  for (let i = middle; i < values.length; i++) values[i] = Math.abs(values[i]!) + 0.01;
  parts.engine.loadPart!(middle, values.subarray(middle));
  whole.engine.load(values);
  expect(computed(parts, 1).bits.equals(computed(whole, 1).bits)).toBe(true);
  expect(() => parts.engine.loadPart!(values.length - 1, values.subarray(0, 2))).toThrow(RangeError);
  expect(() => parts.engine.loadPart!(-1, values.subarray(0, 2))).toThrow(RangeError);
});
