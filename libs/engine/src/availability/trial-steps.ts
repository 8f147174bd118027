/**
 * A few gradient steps of a model, on the run's rows or made-up ones: does the engine work, what is it, how fast is it. In a process of its own, because a
 * library of the wrong build may take its process down, and because two engines in one thread would share their heap and their clock.
 */
import { createInitialValues, createLayout, type Layout } from '@paceline/learning';
import { fieldLength, type BackendName, type RowFormat } from '@paceline/spec';
import { describeModel } from '../describe/describe.js';
import { createEngine } from '../create-engine.js';
import type { Batch, Engine } from '../engine.js';
import { EngineUnavailableError } from '../errors/engine-unavailable.js';
import { trialExamples, type TrialRequest, type TrialResult, type TrialRows } from './trial-request.js';

const MAX_STEPS = 1000;
/** Largest difference, relative to the largest value of a variable's gradient: engines round differently, GPUs also in fewer bits. */
const MOST_APART = 0.01;
/**
 * Relative to the largest value of the whole gradient: what is left of terms that cancel. Of a bias in front of a batch normalisation, and of the key's bias
 * in an attention, the gradient is 0, and what an engine computes is rounding alone: 5e-6 were seen in float32, and GPUs have fewer bits. A wrong
 * gradient is larger, unless all values of its variable are that small.
 */
const ROUNDING = 1e-4;

/** @throws EngineUnavailableError, ModelError */
export async function runTrial(request: TrialRequest): Promise<TrialResult> {
  const { backend, check, measureMs } = request;
  if (check) await agreesWithWasm(request);
  const { engine, step, examples } = await prepare(request);
  step(0);
  const times: number[] = [];
  const until = performance.now() + measureMs;
  while (times.length < 3 || (performance.now() < until && times.length < MAX_STEPS)) {
    const from = performance.now();
    step(times.length + 1);
    times.push(performance.now() - from);
  }
  times.sort((a, b) => a - b);
  const [msPerStep, fastestMs] = [times[times.length >> 1]!, times[0]!];
  const result = { backend, fingerprint: engine.fingerprint, devices: engine.devices, examples, msPerStep, fastestMs };
  engine.dispose();
  return result;
}

/**
 * Computes one gradient with the engine and with wasm: nothing else shows that native code computes something wrong.
 * @throws EngineUnavailableError when they differ by more than rounding
 */
export async function agreesWithWasm(request: Omit<TrialRequest, 'measureMs' | 'check'>): Promise<void> {
  const { backend } = request;
  if (backend === 'wasm' || backend === 'wasm-relaxed') return;
  const gradientOf = async (by: BackendName): Promise<Omit<Prepared, 'engine'> & { gradient: Float32Array }> => {
    const { engine, ...prepared } = await prepare({ ...request, backend: by });
    const gradient = prepared.step(0);
    engine.dispose();
    return { ...prepared, gradient };
  };
  const [{ gradient: got }, { gradient: want, layout }] = [await gradientOf(backend), await gradientOf('wasm')];
  const variables = layout.variables.filter(({ section }) => section === 'trainable');
  const compared = variables.map(({ path, offset, length }) => {
    const [a, b] = [got, want].map((gradient) => gradient.subarray(offset, offset + length)) as [Float32Array, Float32Array];
    const scale = b.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    return { path, scale, apart: a.reduce((largest, value, i) => Math.max(largest, Math.abs(value - b[i]!)), 0) };
  });
  const rounding = ROUNDING * compared.reduce((largest, { scale }) => Math.max(largest, scale), 0);
  for (const { path, scale, apart } of compared)
    if (!(apart <= MOST_APART * scale + rounding))
      throw new EngineUnavailableError(
        `the ${backend} engine computed another gradient of ${path} than wasm: ${apart.toExponential(1)} apart, where the largest value is ${scale.toExponential(1)}`,
      );
}

interface Prepared {
  readonly engine: Engine;
  /** Computes the gradient of a round, which is overwritten by the next one. */
  readonly step: (round: number) => Float32Array;
  readonly examples: number;
  readonly layout: Layout;
}

async function prepare(request: Omit<TrialRequest, 'measureMs' | 'check'>): Promise<Prepared> {
  const { spec, format, backend, tensorflowPackage, webgpuPackage } = request;
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, backend, tensorflowPackage, webgpuPackage, description, format, layout });
  const flat = new Float32Array(layout.totalLength);
  createInitialValues(description, spec.seed).fill(0, flat);
  const batch = request.rows ? batchFrom(request.rows) : madeUp(trialExamples(spec), format);
  const out = new Float32Array(layout.totalLength);
  const step = (round: number): Float32Array => {
    engine.load(flat);
    engine.step({ round, replica: 0, batches: [batch], out });
    if (round === 0 && !out.every(Number.isFinite))
      throw new EngineUnavailableError(`the ${backend} engine computed a gradient that is not finite`);
    return out;
  };
  return { engine, step, examples: batch.count, layout };
}

const batchFrom = ({ inputs, targets, weights, count }: TrialRows): Batch => {
  const floats = (text: string): Float32Array => new Float32Array(Uint8Array.from(Buffer.from(text, 'base64')).buffer);
  return { inputs: inputs.map(floats), targets: targets.map(floats), weights: weights === undefined ? undefined : floats(weights), count };
};

function madeUp(count: number, { inputs, targets, isWeighted }: RowFormat): Batch {
  const values = (length: number): Float32Array => Float32Array.from({ length: count * length }, (_, i) => ((i * 7919) % 1000) / 1000);
  return {
    inputs: inputs.map((field) => values(fieldLength(field))),
    targets: targets.map((field) =>
      field.kind === 'values'
        ? values(fieldLength(field))
        : Float32Array.from({ length: count * fieldLength(field) }, (_, i) => i % field.classes),
    ),
    weights: isWeighted ? new Float32Array(count).fill(1) : undefined,
    count,
  };
}
