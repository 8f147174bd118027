/**
 * `fit`, `evaluate` and `predict` of a distributed model take typed arrays and nested arrays of numbers where tf.js takes tensors. What an array has to hold
 * follows from the model: rows of the shape of the input, or of the targets of the output. Tensors pass as they are.
 */
import * as tfc from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { ArgumentError, UnsupportedError } from '../errors.js';
import { hasClassTargets } from './compiled.js';
import { GivenWeights } from './row-weights.js';
import type { PredictArgs, TfModel } from './tf-model.js';

type NumberArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array;

/** Numbers of all rows, one row after the other; or nested as the rows are. */
export type Numbers = NumberArray | NestedNumbers;
export type NestedNumbers = readonly (number | NumberArray | NestedNumbers)[];

/** Rows of one input or output; of several, one for each in order, or by name. */
export type ModelData = tfc.Tensor | Numbers | readonly (tfc.Tensor | Numbers)[] | Readonly<Record<string, tfc.Tensor | Numbers>>;

/** Options of `fit` that tf.js has for tensors alone, or not at all. */
export interface DistributedFitArgs extends Omit<tfl.ModelFitArgs, 'sampleWeight' | 'validationData'> {
  /** One for each row. */
  sampleWeight?: tfc.Tensor | Numbers;
  /** Inputs, targets, and perhaps the weights of their rows. */
  validationData?: readonly [ModelData, ModelData] | readonly [ModelData, ModelData, tfc.Tensor | Numbers];
}

export interface DistributedEvaluateArgs extends Omit<tfl.ModelEvaluateArgs, 'sampleWeight'> {
  /** One for each row. */
  sampleWeight?: tfc.Tensor | Numbers;
}

/** What the calls of a distributed model take beside what those of tf.js take. */
export interface TakesArrays {
  fit(x: ModelData, y: ModelData, args?: DistributedFitArgs): Promise<tfl.History>;
  evaluate(x: ModelData, y: ModelData, args?: DistributedEvaluateArgs): tfc.Scalar | tfc.Scalar[];
  predict(x: ModelData, args?: PredictArgs): tfc.Tensor | tfc.Tensor[];
  predictOnBatch(x: ModelData): tfc.Tensor | tfc.Tensor[];
  trainOnBatch(x: ModelData, y: ModelData): Promise<number | number[]>;
}

/** One input or output, as errors name it. */
interface Field {
  readonly name: string;
  readonly what: string;
  /** Of one row. */
  readonly shape: readonly number[];
}

const sized = (shape: readonly (number | null)[]): number[] => shape.slice(1).map((size) => size ?? 1);

const inputsOf = ({ inputs, inputNames }: TfModel): Field[] =>
  inputs.map(({ shape }, i) => ({ name: inputNames[i]!, what: `input ${inputNames[i]!}`, shape: sized(shape) }));

const targetsOf = (model: TfModel): Field[] =>
  model.outputs.map(({ shape }, i) => {
    const name = model.outputNames[i]!;
    return { name, what: `target of output ${name}`, shape: hasClassTargets(model, i) ? [...sized(shape).slice(0, -1), 1] : sized(shape) };
  });

const isNumberArray = (value: unknown): value is NumberArray =>
  ArrayBuffer.isView(value) && !(value instanceof DataView) && !(value instanceof BigInt64Array) && !(value instanceof BigUint64Array);
const isTensor = (value: unknown): value is tfc.Tensor => value instanceof tfc.Tensor;
const isFlat = (value: unknown): value is readonly number[] => Array.isArray(value) && value.every((each) => typeof each === 'number');

/** Of a nested array, by its first elements. */
function sidesOf(data: unknown): number[] {
  const sides: number[] = [];
  for (let part = data; Array.isArray(part) || isNumberArray(part); part = part[0] as unknown) sides.push(part.length);
  return sides;
}

/** @throws ArgumentError where parts of a nested array are unlike each other, or are no numbers */
function fill(part: unknown, [side, ...inner]: readonly number[], into: number[], what: string): void {
  if (side === undefined) {
    if (typeof part !== 'number') throw new ArgumentError(`${what}: holds ${typeof part} in a nested array, and the model takes numbers`);
    into.push(part);
    return;
  }
  const length = Array.isArray(part) || isNumberArray(part) ? part.length : 1;
  if (length !== side || typeof part === 'number')
    throw new ArgumentError(`${what}: an array of ${length} stands in a nested array where others have ${side}: give rows of one shape`);
  for (const each of part as readonly unknown[]) fill(each, inner, into, what);
}

/** Tensors in place of arrays, which are disposed together. */
export class GivenArrays {
  private readonly made: tfc.Tensor[] = [];
  private rows: { readonly count: number; readonly what: string } | undefined;

  constructor(private readonly model: TfModel) {}

  inputs(data: unknown): unknown {
    this.rows = undefined; // of another set of rows
    return this.all(data, inputsOf(this.model), 'input');
  }

  /** `predict` of tf.js takes no names. */
  listed(data: unknown): unknown {
    const given = this.inputs(data);
    if (typeof given !== 'object' || given === null || Array.isArray(given) || isTensor(given)) return given;
    return this.model.inputNames.flatMap((name) => (given as Readonly<Record<string, unknown>>)[name] ?? []);
  }

  targets(data: unknown): unknown {
    return this.all(data, targetsOf(this.model), 'output');
  }

  /** One number for each of the rows that were given last. @throws ArgumentError */
  weights(data: unknown): tfc.Tensor1D {
    const tensor = this.one(this.ofAllOutputs(data), { name: 'sampleWeight', what: 'sampleWeight', shape: [] });
    if (!isTensor(tensor) || (tensor.rank !== 1 && tensor.size !== tensor.shape[0]))
      throw new ArgumentError(
        `sampleWeight: give one number for each row, as a tensor of one dimension or an array${isTensor(tensor) ? `, not a tensor of the shape [${tensor.shape.join(', ')}]` : ''}`,
      );
    const { rows } = this;
    if (rows && tensor.size !== rows.count)
      throw new ArgumentError(`sampleWeight has ${tensor.size} values, and ${rows.what} has ${rows.count} rows: give one for each row`);
    // Not the tensor itself: tf.js disposes what it gets as weights.
    return this.keep(tfc.tidy(() => tfc.cast(tfc.reshape(tensor, [tensor.size]), 'float32'))) as tfc.Tensor1D;
  }

  /** Arguments of `fit`, after its rows were given. */
  fitArgs(args: tfl.ModelFitArgs): tfl.ModelFitArgs {
    const { sampleWeight, validationData, ...others } = args as DistributedFitArgs;
    const training = sampleWeight == null ? undefined : this.weights(sampleWeight);
    const fitted: { -readonly [Name in keyof tfl.ModelFitArgs]: unknown } = { ...others };
    let validation: tfc.Tensor1D | undefined;
    if (Array.isArray(validationData)) {
      const [x, y, ...weights] = validationData as readonly unknown[];
      const [inputs, targets] = [this.inputs(x), this.targets(y)];
      if (weights.length === 1) validation = this.weights(weights[0]);
      fitted.validationData = [inputs, targets, ...(weights.length > 1 ? weights : [])];
    } else if (validationData !== undefined) fitted.validationData = validationData;
    if (training ?? validation) fitted.sampleWeight = new GivenWeights(training, validation);
    return fitted as tfl.ModelFitArgs;
  }

  /** tf.js would have weights for each output, in a list or by name. */
  private ofAllOutputs(data: unknown): unknown {
    if (typeof data !== 'object' || data === null || isTensor(data) || isNumberArray(data) || isFlat(data)) return data;
    const each = Object.values(data);
    if (this.model.outputs.length === 1 && each.length === 1) return each[0];
    throw new UnsupportedError(
      'sampleWeight',
      'is one number for each row, which counts at every output: weights of single outputs are not supported',
    );
  }

  /** What was made for the call that has ended. */
  dispose(): void {
    tfc.dispose(this.made);
  }

  private all(data: unknown, fields: readonly Field[], kind: string): unknown {
    const [only] = fields;
    if (isTensor(data)) return this.counted(data, only!);
    if (isNumberArray(data)) {
      if (fields.length > 1)
        throw new ArgumentError(
          `the model has ${fields.length} ${kind}s (${fields.map(({ name }) => name).join(', ')}), and one array was given: give an array for each, in a list or by name`,
        );
      return this.one(data, only!);
    }
    if (Array.isArray(data)) {
      // A list of one array holds what that array alone would hold.
      const isList = fields.length > 1 || data.every(isTensor) || (data.length === 1 && isNumberArray(data[0]));
      if (data.length > 0 && isList) return data.map((each: unknown, i) => (fields[i] ? this.one(each, fields[i]) : each));
      return data.length === 0 ? data : this.one(data, only!);
    }
    if (typeof data !== 'object' || data === null) return data; // which tf.js refuses
    const byName = data as Readonly<Record<string, unknown>>;
    return Object.fromEntries(
      Object.entries(byName).map(([name, value]) => {
        const field = fields.find((each) => each.name === name);
        return [name, field ? this.one(value, field) : value];
      }),
    );
  }

  /** @throws ArgumentError */
  private one(data: unknown, field: Field): unknown {
    if (isTensor(data)) return this.counted(data, field);
    if (isNumberArray(data) || isFlat(data)) return this.counted(this.flat(data, field), field);
    if (!Array.isArray(data)) return data;
    const shape = sidesOf(data);
    const values: number[] = [];
    fill(data, shape, values, field.what);
    return this.counted(this.keep(tfc.tensor(Float32Array.from(values), shape, 'float32')), field);
  }

  private flat(data: ArrayLike<number>, { what, shape }: Field): tfc.Tensor {
    const size = shape.reduce((product, side) => product * side, 1);
    const rows = data.length / size;
    if (!Number.isInteger(rows))
      throw new ArgumentError(
        `${what}: an array of ${data.length} numbers holds no whole number of rows of ${size}, which is the shape [${shape.join(', ')}]`,
      );
    const values = data instanceof Float32Array ? data : Float32Array.from(data);
    return this.keep(tfc.tensor(values, [rows, ...shape], 'float32'));
  }

  private keep(tensor: tfc.Tensor): tfc.Tensor {
    this.made.push(tensor);
    return tensor;
  }

  /** Rows of arrays and tensors that go together are as many. Where all are tensors, tf.js says so itself. @throws ArgumentError */
  private counted(tensor: tfc.Tensor, { what }: Field): tfc.Tensor {
    const count = tensor.shape[0] ?? 0;
    const { rows } = this;
    if (rows && rows.count !== count && this.made.length > 0 && what !== 'sampleWeight')
      throw new ArgumentError(`${what} has ${count} rows, and ${rows.what} has ${rows.count}: give all the same number of rows`);
    this.rows ??= { count, what };
    return tensor;
  }
}
