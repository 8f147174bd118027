/**
 * Recordings of what TensorFlow has done, to be held against (`paceline verify`). Two forms:
 *
 *   updates    one JSON file: weights, gradients, and per optimizer its class, its config and the weights after every step
 *   training   NAME.json: Keras topology, optimizer, batch, and the loss of every step before its update; beside it
 *              NAME.initial.safetensors and NAME.final.safetensors with tensor "i" for the i-th weight of the model
 *
 * Files come from anywhere: everything is checked before it is used, and fields that nobody knows are named.
 */
import { readFile, stat } from 'node:fs/promises';
import { parseSafetensorsHeader, safetensorsHeaderBytes, StorageError } from '@paceline/storage';
import { z } from 'zod';

const MAX_JSON_BYTES = 256 << 20;
const MAX_TENSOR_BYTES = 1 << 30;
const MOST = 100_000;

/** `field` is the path inside of the file; empty for the file as a whole. */
export class RecordingError extends Error {
  override readonly name = 'RecordingError';

  constructor(
    readonly file: string,
    readonly field: string,
    readonly reason: string,
    options?: ErrorOptions,
  ) {
    super(`${file}: ${field === '' ? '' : `${field}: `}${reason}`, options);
  }
}

const numbers = z.array(z.number()).min(1).max(1_000_000);
const optimizerSchema = z.object({ class: z.string().min(1).max(100), config: z.record(z.string(), z.unknown()) });
const updatesSchema = z.object({
  initial: numbers,
  gradients: z.array(numbers).min(1).max(MOST),
  cases: z.record(z.string().max(200), optimizerSchema.extend({ trajectory: z.array(numbers).max(MOST) })),
});
const shapeSchema = z
  .array(
    z
      .int()
      .min(1)
      .max(2 ** 31),
  )
  .max(8);
const trainingSchema = z.object({
  replicas: z.int().min(1).max(1024),
  globalBatch: z.int().min(1).max(65_536),
  steps: z.int().min(1).max(MOST),
  optimizer: optimizerSchema,
  loss: z.string().min(1).max(1000),
  data: z.string().max(2000).optional(),
  dataset: z.string().min(1).max(200).optional(),
  topology: z.record(z.string(), z.unknown()),
  weights: z
    .array(z.object({ index: z.int().min(0), path: z.string().max(500), shape: shapeSchema }))
    .min(1)
    .max(8192),
  losses: numbers,
  tensorflow: z.string().max(100).optional(),
});

export interface RecordedCase {
  readonly name: string;
  readonly class: string;
  readonly config: Readonly<Record<string, unknown>>;
  /** The weights after every step. */
  readonly trajectory: readonly (readonly number[])[];
}

export interface UpdatesRecording {
  readonly kind: 'updates';
  readonly file: string;
  readonly initial: readonly number[];
  readonly gradients: readonly (readonly number[])[];
  readonly cases: readonly RecordedCase[];
  /** Fields of the file that are not known here. */
  readonly unknown: readonly string[];
}

export interface RecordedTensor {
  readonly path: string;
  readonly shape: readonly number[];
  readonly initial: Float32Array;
  readonly final: Float32Array;
}

export interface TrainingRecording extends Omit<z.output<typeof trainingSchema>, 'weights'> {
  readonly kind: 'training';
  readonly file: string;
  /** In the order of the model's weights. */
  readonly tensors: readonly RecordedTensor[];
  readonly unknown: readonly string[];
}

export type Recording = UpdatesRecording | TrainingRecording;

/** @throws RecordingError */
export async function readRecording(file: string): Promise<Recording> {
  const json = await jsonOf(file);
  const has = (...fields: string[]): boolean => fields.every((field) => field in json);
  if (has('gradients') || has('cases')) return updates(file, json);
  if (has('topology') || has('losses')) return training(file, json);
  const fields = Object.keys(json).slice(0, 10).join(', ');
  throw new RecordingError(
    file,
    '',
    `is no recording: it has neither initial, gradients and cases, nor topology, optimizer and losses${fields === '' ? '' : `, but ${fields}`}`,
  );
}

async function jsonOf(file: string): Promise<Record<string, unknown>> {
  const bytes = await bytesOf(file, MAX_JSON_BYTES);
  let json: unknown;
  try {
    json = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new RecordingError(file, '', 'is no JSON', { cause: error });
  }
  if (json === null || typeof json !== 'object' || Array.isArray(json)) throw new RecordingError(file, '', 'is no JSON object');
  return json as Record<string, unknown>;
}

async function bytesOf(file: string, most: number): Promise<Buffer> {
  try {
    const { size } = await stat(file);
    if (size > most) throw new RecordingError(file, '', `has ${size} bytes; at most ${most} are read`);
    return await readFile(file);
  } catch (error) {
    if (error instanceof RecordingError) throw error;
    throw new RecordingError(file, '', `cannot be read (${(error as NodeJS.ErrnoException).code ?? 'no reason'})`, { cause: error });
  }
}

function parsed<T extends z.ZodObject>(schema: T, file: string, json: Record<string, unknown>): { value: z.output<T>; unknown: string[] } {
  const result = schema.safeParse(json);
  if (!result.success) {
    const [first] = result.error.issues;
    throw new RecordingError(file, first!.path.map(String).join('.'), first!.message, { cause: result.error });
  }
  return { value: result.data, unknown: Object.keys(json).filter((field) => !(field in schema.shape)) };
}

function updates(file: string, json: Record<string, unknown>): UpdatesRecording {
  const { value, unknown } = parsed(updatesSchema, file, json);
  const { initial, gradients, cases } = value;
  const refuse = (field: string, reason: string): never => {
    throw new RecordingError(file, field, reason);
  };
  const held = (field: string, rows: readonly (readonly number[])[]): void => {
    const at = rows.findIndex((row) => row.length !== initial.length);
    if (at >= 0) refuse(`${field}.${at}`, `has ${rows[at]!.length} numbers, initial has ${initial.length}`);
  };
  held('gradients', gradients);
  if (Object.keys(cases).length === 0) refuse('cases', 'has no row');
  for (const [name, { trajectory }] of Object.entries(cases)) {
    if (trajectory.length !== gradients.length)
      refuse(`cases.${name}.trajectory`, `has ${trajectory.length} steps, there are ${gradients.length} gradients`);
    held(`cases.${name}.trajectory`, trajectory);
  }
  return { kind: 'updates', file, initial, gradients, cases: Object.entries(cases).map(([name, row]) => ({ name, ...row })), unknown };
}

async function training(file: string, json: Record<string, unknown>): Promise<TrainingRecording> {
  const { value, unknown } = parsed(trainingSchema, file, json);
  const { weights, losses, steps } = value;
  if (losses.length !== steps) throw new RecordingError(file, 'losses', `has ${losses.length} numbers, steps says ${steps}`);
  const stem = file.replace(/\.json$/, '');
  // One after the other: of two files that are missing the first is named.
  const initial = await tensorsOf(`${stem}.initial.safetensors`, weights);
  const final = await tensorsOf(`${stem}.final.safetensors`, weights);
  const { weights: _inTensors, ...rest } = value;
  const tensors = weights.map(({ path, shape }, i) => ({ path, shape, initial: initial[i]!, final: final[i]! }));
  return { kind: 'training', file, ...rest, tensors, unknown };
}

type Listed = z.output<typeof trainingSchema>['weights'];

async function tensorsOf(file: string, weights: Listed): Promise<Float32Array[]> {
  const bytes = await bytesOf(file, MAX_TENSOR_BYTES);
  try {
    const headerBytes = safetensorsHeaderBytes(bytes.subarray(0, 8), bytes.length);
    const ranges = parseSafetensorsHeader(bytes.subarray(8, 8 + headerBytes), bytes.length);
    if (ranges.size !== weights.length)
      throw new RecordingError(file, '', `holds ${ranges.size} tensors, the recording lists ${weights.length} weights`);
    return weights.map(({ index, path, shape }, i) => {
      const range = index === i ? ranges.get(String(i)) : undefined;
      if (!range) throw new RecordingError(file, String(index), `tensor "${i}" (${path.slice(0, 100)}) is not there`);
      if (range.dtype !== 'F32') throw new RecordingError(file, String(i), `is ${range.dtype}; weights are F32`);
      if (range.shape.join() !== shape.join())
        throw new RecordingError(file, String(i), `is [${range.shape.join(', ')}], the recording says [${shape.join(', ')}]`);
      return new Float32Array(Uint8Array.from(bytes.subarray(range.from, range.to)).buffer);
    });
  } catch (error) {
    if (!(error instanceof StorageError)) throw error;
    throw new RecordingError(file, '', `is no safetensors file: ${error.message}`, { cause: error });
  }
}
