/**
 * A few gradient steps of a model on made-up rows: does the engine work, what is it, how fast is it. In a process of its own, because a
 * library of the wrong build may take its process down, and because two engines in one thread would share their heap and their clock.
 */
import { createInitialValues, createLayout } from '@paceline/learning';
import { type BackendName, type RunSpec } from '@paceline/spec';
import type { EngineDevice } from './backend.js';
import { describeModel } from './describe.js';
import { createEngine, type Batch } from './engine.js';
import { EngineUnavailableError } from './engine-unavailable.js';
import { answerOf } from './program.js';

export interface TrialRequest {
  readonly spec: RunSpec;
  readonly backend: BackendName;
  readonly tensorflowPackage?: string | undefined;
  readonly webgpuPackage?: string | undefined;
  /** Measured for so long, at least three steps; the first one, which packs and compiles, is not counted. */
  readonly measureMs: number;
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

/** @throws EngineUnavailableError, ModelError */
export async function runTrial({ spec, backend, tensorflowPackage, webgpuPackage, measureMs }: TrialRequest): Promise<TrialResult> {
  const description = await describeModel(spec);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, backend, tensorflowPackage, webgpuPackage, description, layout });
  const flat = new Float32Array(layout.totalLength);
  createInitialValues(description, spec.seed).fill(0, flat);
  const examples = Math.max(1, Math.min(MAX_EXAMPLES, Math.ceil(spec.globalBatch / spec.replicas / spec.strategy.accumulate)));
  const size = description.inputShape.reduce((a, b) => a * b, 1);
  const batch: Batch = {
    x: Float32Array.from({ length: examples * size }, (_, i) => ((i * 7919) % 1000) / 1000),
    y: Int32Array.from({ length: examples }, (_, i) => i % description.outputShape[0]!),
    count: examples,
  };
  const out = new Float32Array(layout.totalLength);
  const step = (round: number): number => {
    const from = performance.now();
    engine.load(flat);
    engine.step({ round, replica: 0, batches: [batch], out });
    return performance.now() - from;
  };
  step(0);
  if (!out.every(Number.isFinite)) throw new EngineUnavailableError(`the ${backend} engine computed a gradient that is not finite`);
  const times: number[] = [];
  const until = performance.now() + measureMs;
  while (times.length < 3 || (performance.now() < until && times.length < MAX_STEPS)) times.push(step(times.length + 1));
  times.sort((a, b) => a - b);
  const [msPerStep, fastestMs] = [times[times.length >> 1]!, times[0]!];
  const result = { backend, fingerprint: engine.fingerprint, devices: engine.devices, examples, msPerStep, fastestMs };
  engine.dispose();
  return result;
}

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
