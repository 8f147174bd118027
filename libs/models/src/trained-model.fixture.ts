/** Models with made-up weights, for tests: every variable holds other numbers. */
import { describeModel } from '@paceline/engine';
import { createLayout } from '@paceline/learning';
import { parseRunSpec, type LayerTopology, type ModelDescription, type ModelTopology, type RowFormat, type RunSpec } from '@paceline/spec';
import type { TrainedModel } from './export-model.js';

export const layer = (class_name: string, config: Record<string, unknown> = {}): LayerTopology => ({ class_name, config });

export function sequential(layers: readonly LayerTopology[], rest: object = {}): ModelTopology {
  return Object.assign({ class_name: 'Sequential', config: { layers } }, rest) as ModelTopology;
}

export interface MadeModel extends TrainedModel {
  readonly flat: Float32Array;
  valuesOf(path: string): Float32Array | undefined;
}

/** @param inputShape of one example; the model ends in [classes] */
export async function trained(
  model: RunSpec['model'],
  inputShape: readonly number[] = [28, 28, 1],
  classes = 10,
  describe?: () => Promise<ModelDescription>,
): Promise<MadeModel> {
  const parsed = parseRunSpec({ model, name: 'made up' });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const format: RowFormat = {
    inputs: [{ name: 'x', shape: [...inputShape] }],
    targets: [{ name: 'y', kind: 'classes', shape: [], classes }],
    isWeighted: false,
  };
  const description = await (describe?.() ?? describeModel({ model, loss: 'sparseCategoricalCrossentropy', engine: 'wasm' }, format));
  const layout = createLayout(description);
  // Variances of batch normalisation are positive.
  const flat = Float32Array.from({ length: layout.totalLength }, (_, i) =>
    i < layout.trainableLength ? Math.sin(i * 0.7) / 3 : 0.6 + (i % 5) / 10,
  );
  const places = new Map(layout.variables.map((variable) => [variable.path, variable]));
  async function* weights(): AsyncGenerator<Uint8Array, void, void> {
    const bytes = new Uint8Array(flat.buffer);
    for (let at = 0; at < bytes.length; at += 10_007) yield await Promise.resolve(bytes.subarray(at, at + 10_007));
  }
  return {
    spec: parsed.spec,
    format,
    description,
    flat,
    valuesOf: (path) => {
      const place = places.get(path);
      return place && flat.subarray(place.offset, place.offset + place.length);
    },
    preprocessing: { format: 'paceline.preprocessing', version: 1, outputs: [] },
    weights,
    facts: {
      name: 'made up',
      run: { id: '0190b2c0-0000-7000-8000-000000000000', status: 'SUCCEEDED', createdAt: '2026-01-01T00:00:00Z', finishedAt: null },
      round: 7,
      totalRounds: 7,
      trainedExamples: 700,
      dataset: { name: 'mnist', version: null, license: 'CC BY-SA 3.0', source: null },
      evaluation: { examples: 100, loss: 0.5, accuracy: 0.9 },
      trainingLoss: null,
      parameterCount: description.parameterCount,
      stateCount: description.stateCount,
      engine: 'wasm',
      paceline: '0.1.0',
      spec: parsed.spec,
    },
  };
}
