/** The models of the examples of TensorFlow.js and Keras train, or are refused, as docs/your-models.md says. */
import { readFileSync } from 'node:fs';
import { LOSSES, modelSchema, type LossName, type RowFormat, type RunSpec, type TargetField } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { buildModel } from '../model/build-model.js';
import { planModel } from '../topology/plan-model.js';
import type { Batch } from '../engine.js';
import { endsOfModel } from '../model/ends.js';
import type { ExampleModel } from './build.fixture.js';
import { OF_KERAS } from './keras.fixture.js';
import { OF_TFJS } from './tfjs.fixture.js';
import { loadedEngine } from '../run.fixture.js';

const DOCS = readFileSync(new URL('../../../../docs/your-models.md', import.meta.url), 'utf8');
const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
const isSupported = (loss: string): loss is LossName => (LOSSES as readonly string[]).includes(loss);
const COUNT = 3;
const EXAMPLE_MODELS = [...OF_TFJS, ...OF_KERAS];

function formatOf(model: RunSpec['model'], { loss, losses }: ExampleModel): RowFormat {
  const { plan, root } = planModel({ model }, undefined);
  const { inputs, outputs } = endsOfModel(buildModel(plan, root, false).model, plan);
  const targets = outputs.map(({ name, shape }): TargetField => {
    const isClasses = (losses?.[name] ?? loss) === 'sparseCategoricalCrossentropy';
    return isClasses
      ? { name, kind: 'classes', shape: shape.slice(0, -1), classes: shape.at(-1)! }
      : { name, kind: 'values', shape: [...shape] };
  });
  return { inputs: inputs.map(({ name, shape }) => ({ name, shape: [...shape] })), targets, isWeighted: false };
}

/** Made up: whole numbers for embeddings; classes, or shares that sum to one. */
function batchOf({ inputs, targets }: RowFormat, integers: number | undefined): Batch {
  const number = (i: number): number => (Math.sin(i * 12.9898) + 1) / 2;
  const target = (field: TargetField): Float32Array => {
    const length = COUNT * size(field.shape);
    if (field.kind === 'classes') return Float32Array.from({ length }, (_, i) => i % field.classes);
    const width = field.shape.at(-1) ?? 1;
    return Float32Array.from({ length }, (_, i) => (width > 1 ? (i % width === 0 ? 1 : 0) : number(i) > 0.5 ? 1 : 0));
  };
  return {
    inputs: inputs.map(({ shape }) =>
      Float32Array.from({ length: COUNT * size(shape) }, (_, i) => (integers ? Math.floor(number(i) * integers) : number(i))),
    ),
    targets: targets.map(target),
    count: COUNT,
  };
}

const rowOf = ({ name, source }: ExampleModel): string =>
  DOCS.split('\n').find((line) => line.startsWith(`| ${name} | \`${source}\` |`)) ?? '';

describe.each(EXAMPLE_MODELS)('$name', (example) => {
  it.runIf(example.refused === undefined && isSupported(example.loss))('trains as written', async () => {
    const model = modelSchema.parse({ topology: example.topology });
    const format = formatOf(model, example);
    const loss = example.loss as LossName;
    const { engine, layout, flat } = await loadedEngine(
      { model, engine: 'wasm', loss, losses: example.losses as RunSpec['losses'], metrics: ['meanAbsoluteError'] },
      undefined,
      format,
    );
    const out = new Float32Array(layout.totalLength);
    const batch = batchOf(format, example.integers);
    const before = engine.step({ round: 0, replica: 0, batches: [batch], out }).metricSums[0]!;
    expect(Number.isFinite(before)).toBe(true);
    const gradient = out.subarray(0, layout.trainableLength);
    const norm = Math.sqrt(gradient.reduce((sum, g) => sum + g * g, 0));
    expect(norm).toBeGreaterThan(0);
    // The same step again, a little down the slope: the noise of dropout is that of the round.
    engine.load(flat.map((value, i) => (i < layout.trainableLength ? value - (1e-3 * out[i]!) / norm : value)));
    expect(engine.step({ round: 0, replica: 0, batches: [batch], out }).metricSums[0]!).toBeLessThan(before);
    engine.dispose();
    expect(rowOf(example)).toContain('| trains |');
  });

  it.runIf(example.refused !== undefined)('is refused with the layer', () => {
    const parsed = modelSchema.safeParse({ topology: example.topology });
    const said = parsed.success
      ? messageOf(() => planModel({ model: parsed.data }, undefined))
      : parsed.error.issues.map(({ message }) => message).join();
    expect(said).toContain(example.refused);
    expect(rowOf(example)).toContain('| refused: ');
  });

  it.runIf(!isSupported(example.loss))('has a loss that is not there', () => expect(rowOf(example)).toContain(example.loss));
});

function messageOf(work: () => unknown): string {
  try {
    work();
    return '';
  } catch (error) {
    return (error as Error).message;
  }
}

it('takes as many examples as it says', () => {
  const trained = EXAMPLE_MODELS.filter(({ refused, loss }) => refused === undefined && isSupported(loss));
  expect(trained.length).toBeGreaterThanOrEqual(45);
  expect(new Set(EXAMPLE_MODELS.map(({ name }) => name)).size).toBe(EXAMPLE_MODELS.length);
});
