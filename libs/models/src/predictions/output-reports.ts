/** What is counted of each output of a model while batches of known rows pass through it. */
import type { Scorer } from '@paceline/engine';
import { fieldLength, type RowFormat, type TargetField } from '@paceline/spec';
import type { PreparedOutput, Preprocessing } from '../preprocessing.js';
import { ClassCounts } from './class-counts.js';
import { WORST_MAX, WRONG_MAX, type NoReport } from './report.js';
import { Greatest, ValueErrors } from './value-errors.js';

/** Numbers of an example that are told apart; more are taken together. */
const VALUES_APART_MAX = 16;
const FIRST_WRONG_MAX = 50;

export interface WrongLabel {
  /** As the caller counts examples. */
  readonly example: number;
  readonly step: number | null;
  readonly truth: number;
  readonly prediction: number;
  readonly probability: number | null;
}

export interface ErrorOfValue {
  readonly example: number;
  readonly truth: number;
  readonly prediction: number;
}

/** Rows of one output and of its target, in the order of the examples. */
interface OutputRows {
  readonly output: Float32Array;
  readonly targets: Float32Array;
  readonly count: number;
  exampleOf(row: number): number;
}

export class ClassesOutput {
  readonly kind = 'classes';
  readonly counts: ClassCounts;
  /** Those that the model was most sure of. */
  readonly surest = new Greatest<WrongLabel>(WRONG_MAX);
  readonly firstWrong: WrongLabel[] = [];
  /** Each example has a label for each of its steps. */
  readonly hasSteps: boolean;
  private readonly positions: number;

  constructor(
    readonly name: string,
    readonly labels: readonly string[],
    target: TargetField,
    private readonly gives: 'logits' | 'probabilities',
    private readonly half: number,
  ) {
    this.counts = new ClassCounts(labels);
    this.positions = fieldLength(target);
    this.hasSteps = target.shape.length > 0;
  }

  add({ output, targets, count, exampleOf }: OutputRows): void {
    const { positions } = this;
    const width = output.length / (count * positions);
    for (let place = 0; place < count * positions; place++) {
      const truth = targets[place]!;
      if (Number.isNaN(truth)) continue; // a step that pads
      const at = place * width;
      const prediction = width === 1 ? Number(output[at]! > this.half) : largestOf(output, at, width);
      this.counts.add(truth, prediction);
      if (truth === prediction) continue;
      const probability = this.probability(output, at, width, prediction);
      const made = (): WrongLabel => ({
        example: exampleOf(Math.floor(place / positions)),
        step: this.hasSteps ? place % positions : null,
        truth,
        prediction,
        probability,
      });
      if (this.firstWrong.length < FIRST_WRONG_MAX) this.firstWrong.push(made());
      this.surest.offer(probability ?? -1, made);
    }
  }

  private probability(output: Float32Array, at: number, width: number, prediction: number): number | null {
    if (width === 1) {
      const number = output[at]!;
      const second = this.gives === 'logits' && this.half === 0 ? 1 / (1 + Math.exp(-number)) : Math.max(0, Math.min(1, number));
      return finite(prediction === 1 ? second : 1 - second);
    }
    const best = output[at + prediction]!;
    if (this.gives === 'probabilities') return finite(best);
    let sum = 0;
    for (let c = 0; c < width; c++) sum += Math.exp(output[at + c]! - best);
    return finite(1 / sum);
  }
}

export class ValuesOutput {
  readonly kind = 'values';
  /** One for each number of an example, or one for all of them. */
  readonly parts: readonly { readonly name: string; readonly errors: ValueErrors; readonly worst: Greatest<ErrorOfValue> }[];
  private readonly size: number;

  /** @param columns what the numbers are called, where they have names */
  constructor(
    readonly name: string,
    target: TargetField,
    private readonly scale: { readonly subtract: readonly number[]; readonly divide: readonly number[] } | undefined,
    columns: readonly string[] | undefined,
  ) {
    this.size = fieldLength(target);
    const names =
      this.size === 1 || this.size > VALUES_APART_MAX
        ? [name]
        : Array.from({ length: this.size }, (_, k) => `${name}: ${columns?.length === this.size ? columns[k]! : k + 1}`);
    this.parts = names.map((each) => ({ name: each, errors: new ValueErrors(), worst: new Greatest<ErrorOfValue>(WORST_MAX) }));
  }

  add({ output, targets, count, exampleOf }: OutputRows): void {
    const { size, parts } = this;
    for (let row = 0; row < count; row++)
      for (let k = 0; k < size; k++) {
        if (Number.isNaN(targets[row * size + k]!)) continue; // a step that pads
        const { errors, worst } = parts[parts.length === 1 ? 0 : k]!;
        const [truth, prediction] = [this.inUnits(targets[row * size + k]!, k), this.inUnits(output[row * size + k]!, k)];
        errors.add(truth, prediction);
        const error = Math.abs(prediction - truth);
        worst.offer(Number.isFinite(error) ? error : -1, () => ({ example: exampleOf(row), truth, prediction }));
      }
  }

  /** Converts to the units of the data, before the run scaled them. */
  private inUnits(value: number, k: number): number {
    if (!this.scale) return value;
    const { subtract, divide } = this.scale;
    return value * divide[k % divide.length]! + subtract[k % subtract.length]!;
  }
}

export type CountedOutput = ClassesOutput | ValuesOutput | NoReport;

/** For each output of the model, in their order. */
export function countedOutputs(preprocessing: Preprocessing | undefined, scorer: Scorer, format: RowFormat): CountedOutput[] {
  return scorer.targets.map((field, i) => {
    const target = format.targets[field]!;
    const said = preprocessing?.outputs[i];
    const name = said?.name ?? target.name;
    if (target.kind === 'values') {
      const [encoder] = preprocessing?.plan?.targets[field]?.encoders ?? [];
      return new ValuesOutput(name, target, said?.kind === 'values' ? said.scale : undefined, columnsOf(encoder));
    }
    if (said?.kind === 'values')
      return { kind: 'none', name, reason: `The output has ${target.classes} classes, too many to be told apart here.` };
    const labels = said?.labels ?? Array.from({ length: target.classes }, (_, c) => String(c));
    if (labels.length !== target.classes)
      return { kind: 'none', name, reason: `The model has ${labels.length} classes, and the data has ${target.classes}.` };
    return new ClassesOutput(name, labels, target, givenBy(said), scorer.halves[i]!);
  });
}

const columnsOf = (encoder: { readonly kind: string; readonly columns?: readonly string[] } | undefined): readonly string[] | undefined =>
  encoder?.kind === 'numbers' ? encoder.columns : undefined;
const givenBy = (said: Extract<PreparedOutput, { kind: 'classes' }> | undefined): 'logits' | 'probabilities' => said?.gives ?? 'logits';
const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);

/** The first of the largest, as accuracy is counted. */
function largestOf(values: Float32Array, at: number, width: number): number {
  let best = 0;
  for (let c = 1; c < width; c++) if (values[at + c]! > values[at + best]!) best = c;
  return best;
}
