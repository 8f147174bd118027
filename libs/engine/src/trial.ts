/**
 * A few gradient steps of a model, on the run's rows or made-up ones: does the engine work, what is it, how fast is it. In a process of its own, because a
 * library of the wrong build may take its process down, and because two engines in one thread would share their heap and their clock.
 */
import { createInitialValues, createLayout, type Layout } from '@paceline/learning';
import type { BackendName, ModelDescription, RunSpec } from '@paceline/spec';
import type { EngineDevice } from './backend.js';
import { describeModel } from './describe.js';
import { createEngine, type Batch, type Engine } from './engine.js';
import { EngineUnavailableError } from './engine-unavailable.js';
import { answerOf } from './program.js';

export interface TrialRequest {
  readonly spec: RunSpec;
  readonly backend: BackendName;
  readonly tensorflowPackage?: string | undefined;
  readonly webgpuPackage?: string | undefined;
  /** Rows of the run's dataset, whose zeros some engines leave out; made-up ones, all dense, when there are none. */
  readonly rows?: TrialRows | undefined;
  /** Whether its gradient is compared with wasm's before. */
  readonly check?: boolean;
  /** Measured for so long, at least three steps; the first one, which packs and compiles, is not counted. */
  readonly measureMs: number;
}

/** Rows as JSON can carry them. */
export interface TrialRows {
  /** Float32, little-endian, in base64. */
  readonly x: string;
  readonly y: readonly number[];
}

export interface TrialResult {
  readonly backend: BackendName;
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  /** Examples of one step, and its milliseconds: the median, and the fastest, which other work on the machine disturbs least. */
  readonly examples: number;
  readonly msPerStep: number;
  readonly fastestMs: number;
}

/** A step is small enough to be repeated and large enough to be like the run's. */
const MAX_EXAMPLES = 256;
const MAX_STEPS = 1000;
/** Of the largest value of a variable's gradient: engines round differently, GPUs also in fewer bits. */
const MOST_APART = 0.01;

/** Examples of a trial's step: those of a micro-batch of the run, up to a bound. */
export const trialExamples = ({ globalBatch, replicas, strategy }: RunSpec): number =>
  Math.max(1, Math.min(MAX_EXAMPLES, Math.ceil(globalBatch / replicas / strategy.accumulate)));

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
 * Computes one gradient with the engine and with wasm: native code that computes something else says so nowhere.
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
  for (const { path, section, offset, length } of layout.variables) {
    if (section !== 'trainable') break;
    const [a, b] = [got, want].map((gradient) => gradient.subarray(offset, offset + length)) as [Float32Array, Float32Array];
    const scale = b.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    const apart = a.reduce((largest, value, i) => Math.max(largest, Math.abs(value - b[i]!)), 0);
    if (!(apart <= MOST_APART * scale))
      throw new EngineUnavailableError(
        `the ${backend} engine computed another gradient of ${path} than wasm: ${apart.toExponential(1)} apart, where the largest value is ${scale.toExponential(1)}`,
      );
  }
}

interface Prepared {
  readonly engine: Engine;
  /** Computes the gradient of a round, which is overwritten by the next one. */
  readonly step: (round: number) => Float32Array;
  readonly examples: number;
  readonly layout: Layout;
}

async function prepare(request: Omit<TrialRequest, 'measureMs' | 'check'>): Promise<Prepared> {
  const { spec, backend, tensorflowPackage, webgpuPackage } = request;
  const description = await describeModel(spec);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, backend, tensorflowPackage, webgpuPackage, description, layout });
  const flat = new Float32Array(layout.totalLength);
  createInitialValues(description, spec.seed).fill(0, flat);
  const batch = request.rows ? batchFrom(request.rows) : madeUp(trialExamples(spec), description);
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

const batchFrom = ({ x, y }: TrialRows): Batch => {
  const bytes = Uint8Array.from(Buffer.from(x, 'base64'));
  return { x: new Float32Array(bytes.buffer), y: Int32Array.from(y), count: y.length };
};

function madeUp(count: number, { inputShape, outputShape }: ModelDescription): Batch {
  const size = inputShape.reduce((a, b) => a * b, 1);
  return {
    x: Float32Array.from({ length: count * size }, (_, i) => ((i * 7919) % 1000) / 1000),
    y: Int32Array.from({ length: count }, (_, i) => i % outputShape[0]!),
    count,
  };
}

/** For `rows` of a request. */
export const trialRows = ({ x, y, count }: Batch): TrialRows => {
  const floats = x.subarray(0, (x.length / y.length) * count);
  return { x: Buffer.from(floats.buffer, floats.byteOffset, floats.byteLength).toString('base64'), y: [...y.subarray(0, count)] };
};

/** @throws EngineUnavailableError with what the process said last */
export function runTrialInProcess(request: TrialRequest, env: NodeJS.ProcessEnv, deadlineMs: number): Promise<TrialResult> {
  return answerOf<TrialResult>(
    new URL('./trial-process.js', import.meta.url),
    request,
    `a trial of the ${request.backend} engine`,
    env,
    deadlineMs,
  );
}
