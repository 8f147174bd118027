/** What the engine's tests share: specs, engines loaded with initial values, made-up batches, bit comparison. */
import { createInitialValues, createLayout, type Layout } from '@paceline/learning';
import { parseRunSpec, type LayerTopology, type ModelDescription, type RowFormat, type RunSpec, type RunSpecInput } from '@paceline/spec';
import { describeModel } from './describe/describe.js';
import { createEngine } from './create-engine.js';
import type { Batch, Engine } from './engine.js';

export interface Loaded {
  readonly spec: RunSpec;
  readonly description: ModelDescription;
  readonly layout: Layout;
  readonly engine: Engine;
  /** The loaded parameters and state. */
  readonly flat: Float32Array;
}

export function specOf(input: RunSpecInput): RunSpec {
  const result = parseRunSpec(input);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.spec;
}

export const sequential = (
  ...layers: readonly (readonly [className: string, config?: Record<string, unknown>])[]
): RunSpecInput['model'] => ({
  topology: {
    class_name: 'Sequential',
    config: { layers: layers.map(([class_name, config = {}]): LayerTopology => ({ class_name, config })) },
  },
});

/** Rows like those of MNIST. */
export const IMAGES: RowFormat = {
  inputs: [{ name: 'image', shape: [28, 28, 1] }],
  targets: [{ name: 'label', kind: 'classes', shape: [], classes: 10 }],
  isWeighted: false,
};

export async function loadedEngine(input: RunSpecInput, tensorflowPackage?: string, format = IMAGES): Promise<Loaded> {
  const spec = specOf(input);
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout, tensorflowPackage });
  const flat = new Float32Array(new SharedArrayBuffer(layout.totalLength * 4));
  createInitialValues(description, spec.seed).fill(0, flat);
  engine.load(flat);
  return { spec, description, layout, engine, flat };
}

/** Deterministic made-up examples in [0, 1), labels 0..9. */
export function batchOf(count: number, seed = 1): Batch {
  let state = seed;
  const next = (): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  for (let i = 0; i < 8; i++) next();
  return {
    inputs: [Float32Array.from({ length: count * 784 }, next)],
    targets: [Float32Array.from({ length: count }, () => Math.floor(next() * 10))],
    count,
  };
}

/** Rows [from, to) of a batch. */
export const rowsOf = ({ inputs, targets }: Batch, from: number, to: number): Batch => ({
  inputs: [inputs[0]!.subarray(from * 784, to * 784)],
  targets: [targets[0]!.subarray(from, to)],
  count: to - from,
});

export const bitsOf = (values: Float32Array): Buffer => Buffer.from(values.buffer, values.byteOffset, values.byteLength);

/** max |a − b| / max(|a|, |b|, floor) over two vectors. */
export function largestDifference(a: Float32Array, b: Float32Array, floor: number): number {
  let largest = 0;
  for (let i = 0; i < a.length; i++)
    largest = Math.max(largest, Math.abs(a[i]! - b[i]!) / Math.max(Math.abs(a[i]!), Math.abs(b[i]!), floor));
  return largest;
}
