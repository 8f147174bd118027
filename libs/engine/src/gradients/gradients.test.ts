import { ALLOWED_LAYERS, layersOf, type ModelTopology, type RunSpecInput } from '@paceline/spec';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeModel } from '../describe/describe.js';
import { input, out10 } from './build.fixture.js';
import { MODELS, REFUSED, WRONG_ON_CPU } from './models.fixture.js';
import { batchOf, IMAGES, largestDifference, type Loaded, loadedEngine, sequential, specOf } from '../run.fixture.js';

it('covers every allowed layer', () => {
  const topologies = [...MODELS, ...REFUSED].flatMap(([, model]) =>
    typeof model === 'string' || !model ? [] : [model.topology as ModelTopology],
  );
  const used = new Set(topologies.flatMap((topology) => layersOf(topology).map(({ layer }) => layer.class_name)));
  expect(ALLOWED_LAYERS.filter((name) => !used.has(name))).toEqual([]);
});

it.each(REFUSED)('%s is refused when the run is described', async (_, model, path) => {
  await expect(describeModel(specOf({ model }), IMAGES)).rejects.toMatchObject({ code: 'INVALID_MODEL', path });
});

/** The gradient is the slope of the training loss along its own direction. */
function expectSlope(loaded: Loaded): void {
  const batch = batchOf(6, 3);
  const { engine, layout, flat: start } = loaded;
  const gradient = new Float32Array(layout.totalLength);
  engine.step({ round: 0, replica: 0, batches: [batch], out: gradient });
  const norm = Math.sqrt(gradient.subarray(0, layout.trainableLength).reduce((sum, g) => sum + g * g, 0));
  expect(norm).toBeGreaterThan(1e-3);
  const scratch = new Float32Array(layout.totalLength);
  const lossAt = (distance: number): number => {
    engine.load(start.map((value, i) => (i < layout.trainableLength ? value + (distance * gradient[i]!) / norm : value)));
    // The training loss: batch normalisation must see the batch.
    return engine.step({ round: 0, replica: 0, batches: [batch], out: scratch }).metricSums[0]!;
  };
  const h = 4e-3;
  const slope = (8 * (lossAt(h) - lossAt(-h)) - (lossAt(2 * h) - lossAt(-2 * h))) / (12 * h);
  engine.load(start);
  expect(Math.abs(slope - norm) / norm).toBeLessThan(5e-3);
}

describe.each(WRONG_ON_CPU)('%s', (_, model, path) => {
  it('is refused on the engine that gets its gradient wrong', async () => {
    await expect(describeModel(specOf({ model, engine: 'cpu' }), IMAGES)).rejects.toMatchObject({ path });
  });

  it('has the gradient of its slope on wasm', async () => {
    const loaded = await loadedEngine(run(model, 'wasm', 'sparseCategoricalCrossentropy'));
    expectSlope(loaded);
    loaded.engine.dispose();
  });
});

const run = (model: RunSpecInput['model'], engine: 'wasm' | 'cpu', loss: RunSpecInput['loss']): RunSpecInput => ({ model, engine, loss });

describe.each(MODELS)('the gradient of %s', (_, model) => {
  let wasm: Loaded;
  let cpu: Loaded;
  beforeAll(async () => {
    wasm = await loadedEngine(run(model, 'wasm', 'sparseCategoricalCrossentropy'));
    cpu = await loadedEngine(run(model, 'cpu', 'sparseCategoricalCrossentropy'));
  });
  afterAll(() => {
    wasm.engine.dispose();
    cpu.engine.dispose();
  });

  it('is the same on wasm and on the JavaScript backend', () => {
    const batch = batchOf(7);
    const [a, b] = [wasm, cpu].map(({ engine, layout }) => {
      const out = new Float32Array(layout.totalLength);
      return { out, sums: engine.step({ round: 0, replica: 0, batches: [batch], out }) };
    });
    expect(a!.sums.metricSums[0]).toBeCloseTo(b!.sums.metricSums[0]!, 3);
    expect(a!.sums.metricSums[1]).toBe(b!.sums.metricSums[1]);
    expect(largestDifference(a!.out, b!.out, 0.5)).toBeLessThan(1e-4);
  });

  it('is the slope of the loss along its own direction', () => expectSlope(wasm));
});

it.each(['meanSquaredError', 'categoricalCrossentropy'] as const)('%s has the gradient of its own slope', async (loss) => {
  const { engine, layout, flat } = await loadedEngine(run(sequential(input, out10), 'wasm', loss));
  const batch = batchOf(5);
  const gradient = new Float32Array(layout.totalLength);
  engine.step({ round: 0, replica: 0, batches: [batch], out: gradient });
  const norm = Math.sqrt(gradient.reduce((sum, g) => sum + g * g, 0));
  const lossAt = (distance: number): number => {
    engine.load(flat.map((value, i) => value + (distance * gradient[i]!) / norm));
    return engine.evaluate(batch).metricSums[0]!;
  };
  expect((lossAt(1e-2) - lossAt(-1e-2)) / 2e-2).toBeCloseTo(norm, 2);
  engine.dispose();
});

it('trains 3-D convolutions and images in time along the same trajectory on wasm and on the JavaScript backend', async () => {
  const trajectory = async (engineName: 'wasm' | 'cpu'): Promise<{ losses: number[]; weights: Float32Array }> => {
    const model = sequential(
      ['InputLayer', { batch_input_shape: [null, 28, 28] }],
      ['Reshape', { target_shape: [4, 14, 14, 1] }],
      ['Conv3D', { filters: 3, kernel_size: [2, 3, 3], activation: 'tanh' }],
      ['MaxPooling3D', { pool_size: [1, 2, 2] }],
      ['ConvLSTM2D', { filters: 3, kernel_size: 3, dropout: 0.2 }],
      ['Flatten'],
      out10,
    );
    const { engine, layout, flat } = await loadedEngine(run(model, engineName, 'sparseCategoricalCrossentropy'));
    const losses: number[] = [];
    const gradient = new Float32Array(layout.totalLength);
    for (let round = 0; round < 12; round++) {
      losses.push(engine.step({ round, replica: 0, batches: [batchOf(8)], out: gradient }).metricSums[0]!);
      engine.load(flat.map((value, i) => (flat[i] = value - (0.5 / 8) * gradient[i]!)));
    }
    engine.dispose();
    return { losses, weights: flat };
  };
  const [wasm, cpu] = [await trajectory('wasm'), await trajectory('cpu')];
  expect(wasm.losses.at(-1)!).toBeLessThan(wasm.losses[0]! * 0.8);
  wasm.losses.forEach((loss, round) => expect(loss).toBeCloseTo(cpu.losses[round]!, 3));
  expect(largestDifference(wasm.weights, cpu.weights, 0.1)).toBeLessThan(1e-3);
});

it('scores like the definition', async () => {
  const loaded = await loadedEngine(
    run(sequential(['Dense', { units: 10, batch_input_shape: [null, 784] }]), 'wasm', 'sparseCategoricalCrossentropy'),
  );
  loaded.flat.fill(0);
  loaded.flat[7840 + 3] = 2; // the bias of class 3: logits 2 against 0
  loaded.engine.load(loaded.flat);
  const batch = { ...batchOf(2), targets: [Float32Array.of(3, 4)] };
  const [loss, correct] = loaded.engine.evaluate(batch).metricSums;
  expect(loss).toBeCloseTo(2 * Math.log(Math.exp(2) + 9) - 2, 5);
  expect(correct).toBe(1);
  loaded.engine.dispose();
});
