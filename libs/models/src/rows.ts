/** From rows that somebody has to what goes into a model, and from what comes out to labels with probabilities. */
import { decodeImage, Preprocessor, type RawRow } from '@paceline/data';
import { fieldLength, type Encoder, type FeaturePlan } from '@paceline/spec';
import type { PredictorField } from '@paceline/engine';
import { ExportError } from './export-error.js';
import type { PreparedOutput, Preprocessing } from './preprocessing.js';

/** Numbers in row-major order (nested or not), or an object with an array of them for each input by name. */
export type InputRow = readonly unknown[] | Readonly<Record<string, unknown>>;

export interface EncodedRows {
  /** As many as rows; fewer with windows, which are cut from the rows in their order. */
  readonly examples: number;
  /** One array for each input of the model. */
  readonly inputs: readonly Float32Array[];
}

export interface RowEncoder {
  /** Rows that an example spans: more than one with windows. */
  readonly span: number;
  /**
   * @param firstRow number of the first of the rows, for messages
   * @throws ExportError ROW_INVALID; DatasetError with the place of the fault
   */
  encode(rows: readonly InputRow[], firstRow?: number): Promise<EncodedRows>;
}

/** The features of a run are applied as its workers have done it. Pixels of a built-in dataset are divided as they were in training; without preprocessing numbers go in as they are. */
export function encoderFor(preprocessing: Preprocessing | undefined, inputs: readonly PredictorField[]): RowEncoder {
  if (preprocessing?.plan) return plannedEncoder(preprocessing.plan, preprocessing.inputOrder);
  return {
    span: 1,
    encode: async (rows, firstRow = 1) => ({
      examples: rows.length,
      inputs: await Promise.all(inputs.map((_, i) => numbersOfInput(preprocessing, inputs, i, rows, firstRow))),
    }),
  };
}

function plannedEncoder(plan: FeaturePlan, inputOrder: readonly number[] | undefined): RowEncoder {
  const preprocessor = new Preprocessor(plan, decodeImage);
  const columns = inputColumns(plan);
  return {
    span: preprocessor.inputSpan,
    async encode(rows, firstRow = 1) {
      const { examples, buffers } = await preprocessor.inputs(rows.map((row, i) => namedRow(row, columns, firstRow + i)));
      return { examples, inputs: (inputOrder ?? buffers.inputs.map((_, i) => i)).map((field) => buffers.inputs[field]!) };
    },
  };
}

/** Columns that the inputs are made of, in the order of the plan. */
export function inputColumns(plan: FeaturePlan): string[] {
  return [...new Set(plan.inputs.flatMap(({ encoders }) => encoders.flatMap(columnsOfEncoder)))];
}

const columnsOfEncoder = (encoder: Encoder): readonly string[] => {
  if (encoder.kind === 'numbers') return encoder.columns;
  return encoder.kind === 'same' ? [] : [encoder.column];
};

export type PlannedColumn = 'number' | 'category' | 'text' | 'array' | 'sequence' | 'image';

/** Columns of the plan with their types: those of the inputs, and those that a target or a weight needs beside them. */
export function plannedColumns(plan: FeaturePlan): { inputs: Record<string, PlannedColumn>; targets: Record<string, PlannedColumn> } {
  const typed = (encoders: readonly Encoder[]): [string, PlannedColumn][] =>
    encoders.flatMap((encoder) => columnsOfEncoder(encoder).map((column): [string, PlannedColumn] => [column, TYPES[encoder.kind]]));
  const [inputs, targets] = [plan.inputs, plan.targets].map((fields) =>
    Object.fromEntries(typed(fields.flatMap((field) => field.encoders))),
  );
  const { column } = plan.weight;
  return { inputs: inputs!, targets: column === undefined ? targets! : Object.assign({}, targets, { [column]: 'number' as const }) };
}

const TYPES: Readonly<Record<Encoder['kind'], PlannedColumn>> = {
  numbers: 'number',
  'one-hot': 'category',
  index: 'category',
  hash: 'category',
  class: 'category',
  array: 'array',
  image: 'image',
  sequence: 'sequence',
  text: 'text',
  same: 'number',
};

/** A list has the values of the columns in their order. @throws ExportError ROW_INVALID */
function namedRow(row: InputRow, columns: readonly string[], index: number): RawRow {
  if (!Array.isArray(row)) return row as RawRow;
  if (row.length === columns.length) return Object.fromEntries(columns.map((name, i) => [name, row[i] as unknown]));
  const list = columns.slice(0, 10).join(', ');
  throw new ExportError('ROW_INVALID', `row ${index} has ${row.length} values; the columns are ${columns.length}: ${list}`);
}

async function numbersOfInput(
  preprocessing: Preprocessing | undefined,
  inputs: readonly PredictorField[],
  index: number,
  rows: readonly InputRow[],
  firstRow: number,
): Promise<Float32Array> {
  const input = inputs[index]!;
  const prepared = preprocessing?.inputs?.[index];
  const size = prepared ? fieldLength(prepared) : sizeOf(input);
  const divideBy = prepared?.image.divideBy ?? 1;
  const out = new Float32Array(rows.length * (size ?? 0));
  const open: number[] = [];
  for (const [row, given] of rows.entries()) {
    const file = imageIn(given);
    if (file && !prepared) throw new ExportError('ROW_INVALID', `row ${firstRow + row} is an image, and the model takes numbers`);
    const numbers = file
      ? await decodeImage(file, Object.assign({ fit: 'stretch' as const }, prepared!.image))
      : numbersOf(given, inputs.length === 1 ? [input.name, 'pixels', prepared?.name] : [input.name], firstRow + row);
    if (size === undefined) for (const number of numbers) open.push(number);
    else if (numbers.length !== size)
      throw new ExportError('ROW_INVALID', `row ${firstRow + row} has ${numbers.length} numbers for the input ${input.name}, not ${size}`);
    else for (let k = 0; k < size; k++) out[row * size + k] = numbers[k]! / divideBy;
  }
  return size === undefined ? Float32Array.from(open) : out;
}

/** The bytes of an image file, which stand in a column of their own. */
function imageIn(row: InputRow): Uint8Array | undefined {
  const values = Array.isArray(row) ? [] : Object.values(row);
  return values.find((value): value is Uint8Array => value instanceof Uint8Array);
}

const sizeOf = ({ shape }: PredictorField): number | undefined =>
  shape.some((size) => size === null) ? undefined : (shape as number[]).reduce((product, n) => product * n, 1);

function numbersOf(row: InputRow, names: readonly (string | undefined)[], index: number): number[] {
  const values = Array.isArray(row)
    ? row
    : names.map((name) => name !== undefined && (row as Record<string, unknown>)[name]).find(Array.isArray);
  if (!values) throw new ExportError('ROW_INVALID', `row ${index} is no list of numbers, and has none as ${JSON.stringify(names[0])}`);
  return (values as unknown[]).flat(Infinity).map((value) => {
    const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
    if (typeof number === 'number' && Number.isFinite(number)) return number;
    throw new ExportError('ROW_INVALID', `row ${index} holds ${JSON.stringify(value)?.slice(0, 40) ?? 'nothing'}, which is no number`);
  });
}

export interface Prediction {
  /** The most probable label, for the first output with one label per example. */
  readonly label?: string;
  readonly probabilities?: Readonly<Record<string, number>>;
  /** Labels, one for each step, of the other outputs with classes, by name. */
  readonly labels?: Readonly<Record<string, readonly string[]>>;
  /** Values of outputs without classes, by name, in the units of the data. */
  readonly values?: Readonly<Record<string, readonly number[]>>;
}

/** @param outputs one array for each output of the model */
export function predictionsOf(
  outputs: readonly Float32Array[],
  count: number,
  preprocessing: Preprocessing | undefined,
  names: readonly string[],
): Prediction[] {
  return Array.from({ length: count }, (_, row) => {
    let first: Pick<Prediction, 'label' | 'probabilities'> = {};
    const values: Record<string, number[]> = {};
    const labels: Record<string, string[]> = {};
    for (const [i, output] of outputs.entries()) {
      const size = output.length / count;
      const numbers = output.subarray(row * size, (row + 1) * size);
      const said: PreparedOutput | undefined = preprocessing?.outputs[i];
      const positions = said?.kind === 'classes' ? fieldLength({ shape: said.shape ?? [] }) : 0;
      const width = size / positions;
      if (said?.kind !== 'classes' || !(width === said.labels.length || (width === 1 && said.labels.length === 2))) {
        values[said?.name ?? names[i] ?? `output_${i}`] = unscaled(numbers, said);
        continue;
      }
      const found = Array.from({ length: positions }, (__, at) => shares([...numbers.subarray(at * width, (at + 1) * width)], said.gives));
      const best = found.map((each) => said.labels[each.indexOf(largestOf(each))]!);
      if (positions === 1 && first.label === undefined)
        first = { label: best[0]!, probabilities: Object.fromEntries(said.labels.map((label, k) => [label, found[0]![k]!])) };
      else labels[said.name] = best;
    }
    return Object.assign({}, first, Object.keys(labels).length > 0 && { labels }, Object.keys(values).length > 0 && { values });
  });
}

/** Probabilities of all classes. A single number speaks for the second of two. */
export function shares(numbers: readonly number[], gives: 'logits' | 'probabilities'): number[] {
  if (numbers.length > 1) return gives === 'logits' ? softmax(numbers) : [...numbers];
  const second = gives === 'logits' ? 1 / (1 + Math.exp(-numbers[0]!)) : numbers[0]!;
  return [1 - second, second];
}

function unscaled(numbers: Float32Array, said: PreparedOutput | undefined): number[] {
  const scale = said?.kind === 'values' ? said.scale : undefined;
  if (!scale) return [...numbers];
  const { subtract, divide } = scale;
  return Array.from(numbers, (value, k) => value * divide[k % divide.length]! + subtract[k % subtract.length]!);
}

/** The largest of any number of values; NaN where one is. A call with each as an argument is limited. */
export function largestOf(values: Iterable<number>): number {
  let largest = -Infinity;
  for (const value of values) largest = Math.max(largest, value);
  return largest;
}

export function softmax(logits: readonly number[]): number[] {
  const largest = largestOf(logits);
  const powers = logits.map((value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

/** As a spreadsheet must not compute what stands in a cell: https://owasp.org/www-community/attacks/CSV_Injection */
export function csvCell(value: string | number): string {
  if (typeof value === 'number') return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) && !Number.isFinite(Number(value)) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** One line for each prediction: label and the probability of each class, or the values. */
export function predictionsCsv(predictions: readonly Prediction[]): string {
  const [first] = predictions;
  if (!first) return '';
  const classes = Object.keys(first.probabilities ?? {});
  const values = Object.entries(first.values ?? {}).flatMap(([name, list]) =>
    list.map((_, i) => (list.length === 1 ? name : `${name}_${i}`)),
  );
  const steps = Object.entries(first.labels ?? {}).flatMap(([name, list]) =>
    list.map((_, i) => (list.length === 1 ? name : `${name}_${i}`)),
  );
  const head = [...(first.label === undefined ? [] : ['label']), ...classes, ...steps, ...values].map(csvCell);
  const lines = predictions.map((one) =>
    [
      ...(one.label === undefined ? [] : [one.label]),
      ...classes.map((name) => one.probabilities![name]!),
      ...Object.values(one.labels ?? {}).flat(),
      ...Object.values(one.values ?? {}).flat(),
    ].map(csvCell),
  );
  return `${[head, ...lines].map((cells) => cells.join(',')).join('\n')}\n`;
}
