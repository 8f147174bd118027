/** Request and result of a trial, and running one in a process of its own, so that the caller loads no engine. */
import { fieldLength, type BackendName, type RowFormat, type RunSpec } from '@paceline/spec';
import type { Batch, EngineDevice } from '../engine.js';
import { answerOf } from './one-shot-process.js';

export interface TrialRequest {
  readonly spec: RunSpec;
  readonly format: RowFormat;
  readonly backend: BackendName;
  readonly tensorflowPackage?: string | undefined;
  readonly webgpuPackage?: string | undefined;
  /** Rows of the run's dataset, whose zeros some engines leave out; made-up ones, all dense, when there are none. */
  readonly rows?: TrialRows | undefined;
  /** Compare the gradient with that of wasm first. */
  readonly check?: boolean;
  /** How long is measured, at least three steps; the first one, which packs and compiles, is not counted. */
  readonly measureMs: number;
}

/** Rows as JSON can carry them: buffers of float32, little-endian, in base64. */
export interface TrialRows {
  readonly inputs: readonly string[];
  readonly targets: readonly string[];
  readonly weights?: string | undefined;
  readonly count: number;
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

/** Examples of a trial's step: those of a micro-batch of the run, up to a bound. */
export const trialExamples = ({ globalBatch, replicas, strategy }: RunSpec): number =>
  Math.max(1, Math.min(MAX_EXAMPLES, Math.ceil(globalBatch / replicas / strategy.accumulate)));

/** For `rows` of a request. */
export function trialRows({ inputs, targets, weights, count }: Batch, format: RowFormat): TrialRows {
  const text = (buffer: Float32Array, length: number): string =>
    Buffer.from(buffer.buffer, buffer.byteOffset, count * length * 4).toString('base64');
  return {
    inputs: format.inputs.map((field, i) => text(inputs[i]!, fieldLength(field))),
    targets: format.targets.map((field, i) => text(targets[i]!, fieldLength(field))),
    ...(weights ? { weights: text(weights, 1) } : {}),
    count,
  };
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
