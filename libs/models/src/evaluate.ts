/** How well a model does on rows whose targets are known: the loss and the metrics of its run, and which classes it takes for which. */
import { openBuiltIn, rowBuffers, type RowBuffers, type RowSplit } from '@paceline/data';
import type { LossPart } from '@paceline/engine';
import { measuredOf, type MeasuredName, type RowFormat, type RunSpec } from '@paceline/spec';
import { ExportError } from './export-error.js';
import type { ModelFolder } from './model-folder.js';
import { countedOutputs, type CountedOutput } from './predictions/output-reports.js';
import type { ClassesReport, ValuesReport } from './predictions/report.js';
import type { ValueErrors } from './predictions/value-errors.js';

/** Absolute and squared errors are in the units of the data, over several values the mean of theirs. A metric that is unknown is null. */
export interface Evaluation extends Readonly<Partial<Record<MeasuredName, number | null>>> {
  readonly examples: number;
  /** Mean over the examples, as the run computes it; null where it is not finite. */
  readonly loss: number | null;
  /** For the first output with one label per example. */
  readonly labels?: readonly string[];
  /** confusion[t][p]: examples of class t that were taken for class p. Left out with more than 1000 classes. */
  readonly confusion?: readonly (readonly number[])[];
  /** The first so many that were taken for another class. */
  readonly wrong?: readonly {
    readonly example: number;
    readonly label: string;
    readonly prediction: string;
    readonly probability: number;
  }[];
  /** One for each output of the model, and for each value of an output that has several. */
  readonly outputs: readonly OutputMeasures[];
}

export type OutputMeasures =
  | Pick<ClassesReport, 'kind' | 'name' | 'accuracy' | 'scores' | 'confusions'>
  | Pick<ValuesReport, 'kind' | 'name' | 'meanAbsoluteError' | 'rootMeanSquaredError' | 'rSquared'>;

export interface ExampleBatch {
  readonly count: number;
  readonly rows: RowBuffers;
}

const BATCH = 256;
const CONFUSION_CLASSES_MAX = 1000;

/** The loss of the run; without one, the loss that fits the targets. */
export function lossOf({ card }: ModelFolder, format: RowFormat): LossPart & Partial<Pick<RunSpec, 'freeze'>> {
  const spec = card?.spec;
  const isValues = format.targets.some(({ kind }) => kind === 'values');
  const loss: LossPart = spec ?? { loss: isValues ? 'meanSquaredError' : 'sparseCategoricalCrossentropy' };
  const own = measuredOf({ metrics: spec?.metrics }, format);
  const metrics: MeasuredName[] = isValues ? [...new Set<MeasuredName>([...own, 'meanAbsoluteError', 'meanSquaredError'])] : own;
  const { lossOptions, losses, lossWeights, lossFromLogits } = loss;
  const measured = { metrics, metricOptions: spec?.metricOptions };
  return Object.assign({ loss: loss.loss, lossOptions, losses, lossWeights, lossFromLogits, freeze: spec?.freeze }, measured);
}

/** @throws ExportError NO_ROWS, ModelError when the rows do not fit the model */
export async function evaluateBatches(model: ModelFolder, format: RowFormat, batches: AsyncIterable<ExampleBatch>): Promise<Evaluation> {
  const scorer = model.predictor.scorer(lossOf(model, format), format);
  const totals = scorer.metricNames.map(() => 0);
  const counted = countedOutputs(model.preprocessing, scorer, format);
  let examples = 0;
  for await (const { count, rows } of batches) {
    const { sums, outputs } = scorer.score({ inputs: rows.inputs, targets: rows.targets, weights: rows.weights, count });
    for (const [i, sum] of sums.entries()) totals[i]! += sum;
    for (const [i, output] of counted.entries())
      if (output.kind !== 'none')
        output.add({ output: outputs[i]!, targets: rows.targets[scorer.targets[i]!]!, count, exampleOf: (row) => examples + row });
    examples += count;
  }
  if (examples === 0) throw new ExportError('ROW_INVALID', 'there are no examples to measure on');
  const values = scorer.finish(totals, examples) as { loss: number | null };
  return Object.assign({ examples }, values, errorsOf(counted), classesOf(counted), { outputs: counted.flatMap(measuresOf) });
}

/** In the units of the data: over several values the mean of theirs. */
function errorsOf(outputs: readonly CountedOutput[]): Pick<Evaluation, 'meanAbsoluteError' | 'meanSquaredError'> {
  const parts = outputs.flatMap((output) => (output.kind === 'values' ? output.parts : []));
  if (parts.length === 0) return {};
  const count = parts.reduce((sum, { errors }) => sum + errors.count, 0);
  const mean = (of: (errors: ValueErrors) => number | null): number =>
    parts.reduce((sum, { errors }) => sum + (of(errors) ?? Number.NaN) * errors.count, 0) / count;
  return { meanAbsoluteError: mean((errors) => errors.meanAbsoluteError), meanSquaredError: mean((errors) => errors.meanSquaredError) };
}

/** For the first output with one label per example. */
function classesOf(outputs: readonly CountedOutput[]): Pick<Evaluation, 'labels' | 'confusion' | 'wrong'> {
  const first = outputs.find((output) => output.kind === 'classes' && !output.hasSteps);
  if (first?.kind !== 'classes') return {};
  const confusion = first.counts.matrix(CONFUSION_CLASSES_MAX);
  if (!confusion) return {};
  const wrong = first.firstWrong.map(({ example, truth, prediction, probability }) => ({
    example,
    label: first.labels[truth]!,
    prediction: first.labels[prediction]!,
    probability: probability ?? 0,
  }));
  return { labels: first.labels, confusion, wrong };
}

function measuresOf(output: CountedOutput): OutputMeasures[] {
  if (output.kind === 'none') return [];
  const { name } = output;
  if (output.kind === 'classes') {
    const { counts } = output;
    return [{ kind: 'classes', name, accuracy: counts.accuracy, scores: counts.scores(), confusions: counts.confusions() }];
  }
  return output.parts.map(({ name: part, errors }) => {
    const { meanAbsoluteError, rootMeanSquaredError, rSquared } = errors;
    return { kind: 'values', name: part, meanAbsoluteError, rootMeanSquaredError, rSquared };
  });
}

/** The examples of a split in their order. */
export async function* batchesOf(split: RowSplit, format: RowFormat): AsyncGenerator<ExampleBatch, void, void> {
  const indices = Int32Array.from({ length: split.count }, (_, i) => i);
  for (let from = 0; from < split.count; from += BATCH) {
    const count = Math.min(BATCH, split.count - from);
    const rows = rowBuffers(format, count);
    await split.gather(indices, from, from + count, rows);
    yield { count, rows };
  }
}

/** On the evaluation split of images of the release, or of a table with its default features. @throws ExportError, DatasetError */
export async function evaluateOnBuiltIn(model: ModelFolder, name: string): Promise<Evaluation> {
  const { format, evaluation, close } = await openBuiltIn({ dataset: name, features: undefined });
  try {
    return await evaluateBatches(model, format, batchesOf(evaluation, format));
  } finally {
    await close();
  }
}
