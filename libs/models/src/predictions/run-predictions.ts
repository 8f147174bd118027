/**
 * What the trained model of a run says of its evaluation split, as one document of bounded size: the same weights and the same version of the
 * dataset make the same document.
 */
import { rowBuffers, shownNumber, type RowBuffers, type RowSplit, type RunTable, type ShownCell } from '@paceline/data';
import { fieldLength, type Encoder, type FeaturePlan, type RowFormat } from '@paceline/spec';
import { lossOf } from '../evaluate.js';
import { ExportError } from '../export-error.js';
import type { ModelFolder } from '../model-folder.js';
import type { Preprocessing } from '../preprocessing.js';
import { shortLabel } from './class-counts.js';
import { countedOutputs, type ClassesOutput, type CountedOutput, type ValuesOutput } from './output-reports.js';
import { observedRunOf, type PictureSize } from './picture.js';
import type { OutputReport, PredictionsReport, ShownExample } from './report.js';

/** How much is looked at, by numbers alone: a slow machine makes no other document. */
const EXAMPLES_MAX = 20_000;
const EXAMPLES_MIN = 256;
const NUMBERS_MAX = 1 << 29;
const BATCH_MAX = 256;
const BATCH_NUMBERS_MAX = 1 << 20;
const COLUMNS_MAX = 8;
const PICTURE_SIDE_MIN = 8;
const OUTPUTS_MAX = 32;
/** Bound for all pictures of a document together, as text. */
const PICTURES_CHARACTERS_MAX = 2 << 20;

export interface EvaluatedRows {
  readonly format: RowFormat;
  readonly evaluation: RowSplit;
  readonly split: string;
  /** Where the cells of rows are; undefined where the rows are nothing but images. */
  readonly table: RunTable | undefined;
}

/** @throws ExportError ROW_INVALID for a split without examples; DatasetError; ModelError when the rows do not fit the model */
export async function runPredictions(
  model: ModelFolder,
  rows: EvaluatedRows,
  afterBatch = (): void => undefined,
): Promise<PredictionsReport> {
  const { format, evaluation, split } = rows;
  const { count } = evaluation;
  if (count === 0) throw new ExportError('ROW_INVALID', 'the evaluation split has no examples');
  const size = format.inputs.reduce((sum, field) => sum + fieldLength(field), 0);
  const measured = Math.min(count, EXAMPLES_MAX, Math.max(EXAMPLES_MIN, Math.floor(NUMBERS_MAX / size)));
  const examples = Int32Array.from({ length: measured }, (_, i) => Math.floor((i * count) / measured));
  const scorer = model.predictor.scorer(lossOf(model, format), format);
  const outputs = countedOutputs(model.preprocessing, scorer, format);
  const batch = Math.max(1, Math.min(BATCH_MAX, Math.floor(BATCH_NUMBERS_MAX / size)));
  for (let from = 0; from < measured; from += batch) {
    const to = Math.min(measured, from + batch);
    const buffers = await gathered(evaluation, format, examples, from, to);
    const scored = scorer.score({ inputs: buffers.inputs, targets: buffers.targets, weights: buffers.weights, count: to - from });
    for (const [i, output] of outputs.entries())
      if (output.kind !== 'none')
        output.add({
          output: scored.outputs[i]!,
          targets: buffers.targets[scorer.targets[i]!]!,
          count: to - from,
          exampleOf: (row) => examples[from + row]!,
        });
    afterBatch();
  }
  const shown = await shownExamples(rows, model.preprocessing, outputs);
  return {
    format: 'paceline.predictions',
    version: 1,
    examples: count,
    measured,
    split,
    outputs: outputs.flatMap((output) => reportsOf(output, shown)).slice(0, OUTPUTS_MAX),
  };
}

async function gathered(split: RowSplit, format: RowFormat, examples: Int32Array, from: number, to: number): Promise<RowBuffers> {
  const buffers = rowBuffers(format, to - from);
  await split.gather(examples, from, to, buffers);
  return buffers;
}

/** An output with several numbers has a report for each. */
function reportsOf(output: CountedOutput, shown: Shown): OutputReport[] {
  if (output.kind === 'none') return [output];
  return output.kind === 'classes' ? [classesReport(output, shown)] : output.parts.map((part) => valuesReport(part, shown));
}

interface Shown {
  readonly columns: readonly string[];
  readonly of: ReadonlyMap<number, ShownExample>;
}

function classesReport({ name, labels, counts, surest }: ClassesOutput, shown: Shown): OutputReport {
  const matrix = counts.matrix();
  return {
    kind: 'classes',
    name,
    count: counts.count,
    accuracy: counts.accuracy,
    classes: labels.length,
    labels: matrix ? labels.map(shortLabel) : [],
    matrix: matrix ?? null,
    confusions: counts.confusions(),
    scores: counts.scores(),
    wrongCount: counts.wrongCount,
    columns: shown.columns,
    wrong: surest.items().map(({ example, step, truth, prediction, probability }) =>
      Object.assign({}, shown.of.get(example)!, {
        step,
        truth: counts.label(truth),
        prediction: counts.label(prediction),
        probability: probability === null ? null : Number(probability.toPrecision(6)),
      }),
    ),
  };
}

function valuesReport({ name, errors, worst }: ValuesOutput['parts'][number], shown: Shown): OutputReport {
  return {
    kind: 'values',
    name,
    count: errors.count,
    meanAbsoluteError: errors.meanAbsoluteError,
    rootMeanSquaredError: errors.rootMeanSquaredError,
    rSquared: errors.rSquared,
    points: errors.points().map(([truth, prediction]) => [shownNumber(truth)!, shownNumber(prediction)!] as const),
    columns: shown.columns,
    worst: worst
      .items()
      .filter(({ truth, prediction }) => Number.isFinite(truth) && Number.isFinite(prediction))
      .map(({ example, truth, prediction }) =>
        Object.assign({}, shown.of.get(example)!, { truth: shownNumber(truth)!, prediction: shownNumber(prediction)! }),
      ),
  };
}

/** The rows that are shown are read once more, now that it is known which they are. */
async function shownExamples(
  rows: EvaluatedRows,
  preprocessing: Preprocessing | undefined,
  outputs: readonly CountedOutput[],
): Promise<Shown> {
  const named = outputs.flatMap((output) => {
    if (output.kind === 'none') return [];
    return output.kind === 'classes' ? output.surest.items() : output.parts.flatMap(({ worst }) => worst.items());
  });
  const examples = [...new Set(named.map(({ example }) => example))];
  const picture = observedIn(rows.format, preprocessing);
  const { columns, cells } = await cellsOf(rows.table, preprocessing?.plan, examples);
  const of = new Map<number, ShownExample>();
  let left = PICTURES_CHARACTERS_MAX;
  for (const [i, example] of examples.entries()) {
    const image = picture && left > 0 ? await imageOf(rows, example, picture) : null;
    left -= image?.length ?? 0;
    of.set(example, { example, image, cells: cells[i] ?? [] });
  }
  return { columns, of };
}

interface PictureInput extends PictureSize {
  /** Number of the input in the format. */
  readonly field: number;
  readonly subtract: number;
  readonly divide: number;
}

/** The first input that is an image as a whole, or else an array of bytes in the shape of one. */
function observedIn(format: RowFormat, preprocessing: Preprocessing | undefined): PictureInput | undefined {
  const builtIn = preprocessing?.inputs?.[0];
  if (builtIn) {
    const { height, width, channels, divideBy } = builtIn.image;
    return { field: 0, height, width, channels, subtract: 0, divide: divideBy };
  }
  const found = (preprocessing?.plan?.inputs ?? []).map(({ rows, encoders }) =>
    rows.count === 1 && encoders.length === 1 ? pictureOfEncoder(encoders[0]!) : undefined,
  );
  const field = found.findIndex((each) => each !== undefined);
  return field < 0 ? undefined : Object.assign({ field }, found[field]!);
}

function pictureOfEncoder(encoder: Encoder): Omit<PictureInput, 'field'> | undefined {
  if (encoder.kind === 'image') {
    const { height, width, channels, subtract, divide } = encoder;
    return { height, width, channels, subtract, divide };
  }
  // Bytes alone are divided by 255.
  if (encoder.kind !== 'array' || encoder.divide !== 255 || encoder.subtract !== 0) return undefined;
  const [height = 0, width = 0, channels = 1, ...more] = encoder.shape;
  const isPicture = height >= PICTURE_SIDE_MIN && width >= PICTURE_SIDE_MIN && more.length === 0;
  if (!isPicture || (channels !== 1 && channels !== 3)) return undefined;
  return { height, width, channels, subtract: 0, divide: 255 };
}

async function imageOf({ evaluation, format }: EvaluatedRows, example: number, picture: PictureInput): Promise<string> {
  const { inputs } = await gathered(evaluation, format, Int32Array.of(example), 0, 1);
  // Scaled by the statistics of its pixels or not, it is shown as it was.
  const pixels = inputs[picture.field]!.map((value) => value * picture.divide + picture.subtract);
  return observedRunOf(pixels, picture);
}

async function cellsOf(
  table: RunTable | undefined,
  plan: FeaturePlan | undefined,
  examples: readonly number[],
): Promise<{ columns: readonly string[]; cells: ShownCell[][] }> {
  if (!table || !plan || examples.length === 0) return { columns: [], cells: [] };
  const columns = shownColumns(plan);
  // With windows the last row that the model has seen.
  const last = Math.max(...plan.inputs.map(({ rows }) => rows.first + (rows.count - 1) * rows.step));
  const begins = table.examples(plan.evaluateOn, plan.span);
  const cells = await table.cells(
    plan.evaluateOn,
    examples.map((example) => begins.rowOf(example) + last),
    columns,
  );
  return { columns, cells };
}

function shownColumns(plan: FeaturePlan): string[] {
  const names = plan.inputs.flatMap(({ encoders }) =>
    encoders.flatMap((encoder): readonly string[] => {
      if (encoder.kind === 'numbers') return encoder.columns;
      return encoder.kind === 'same' || pictureOfEncoder(encoder) ? [] : [encoder.column];
    }),
  );
  return [...new Set(names)].slice(0, COLUMNS_MAX);
}
