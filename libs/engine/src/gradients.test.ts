import { ALLOWED_LAYERS, layersOf, type ModelTopology, type RunSpecInput } from '@paceline/spec';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeModel } from './describe.js';
import { input, MODELS, out10, REFUSED, WRONG_ON_CPU } from './gradients.fixture.js';
import { batchOf, largestDifference, loadedEngine, sequential, specOf, type Loaded } from './run.fixture.js';

it('covers every allowed layer', () => {
  const topologies = [...MODELS, ...REFUSED].flatMap(([, model]) =>
    typeof model === 'string' || !model ? [] : [model.topology as ModelTopology],
  );
  const used = new Set(topologies.flatMap((topology) => layersOf(topology).map(({ layer }) => layer.class_name)));
  expect(ALLOWED_LAYERS.filter((name) => !used.has(name))).toEqual([]);
});

it.each(REFUSED)('%s is refused when the run is described', async (_, model, path) => {
  await expect(describeModel(specOf({ model }))).rejects.toMatchObject({ code: 'INVALID_MODEL', path });
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
    await expect(describeModel(specOf({ model, engine: 'cpu' }))).rejects.toMatchObject({ path });
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
    expect(largestDifference(a!.out, b!.out, 0.5)).toBeLessThan(2e-4);
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

it('scores like the definition', async () => {
  const loaded = await loadedEngine(
    run(sequential(['Dense', { units: 10, batch_input_shape: [null, 784] }]), 'wasm', 'sparseCategoricalCrossentropy'),
  );
  expect(specOf({}).metrics).toEqual(['accuracy']);
  loaded.flat.fill(0);
  loaded.flat[7840 + 3] = 2; // the bias of class 3: logits 2 against 0
  loaded.engine.load(loaded.flat);
  const batch = { ...batchOf(2), y: Int32Array.of(3, 4) };
  const [loss, correct] = loaded.engine.evaluate(batch).metricSums;
  expect(loss).toBeCloseTo(2 * Math.log(Math.exp(2) + 9) - 2, 5);
  expect(correct).toBe(1);
  loaded.engine.dispose();
});
