/** What goes in and comes out of a model that was trained: from the features of its run, its layers, and the names of the classes. */
import type { DatasetInfo } from '@paceline/data';
import { outputActivations, planModel } from '@paceline/engine/planning';
import {
  fieldsOfEnds,
  type Encoder,
  type FeaturePlan,
  type ModelDescription,
  type RowFormat,
  type RunSpec,
  type TargetField,
} from '@paceline/spec';
import { LABELS_MAX, type PreparedOutput, type Preprocessing } from './preprocessing.js';

/** Bytes of pixels go in as 0..1 (libs/data). */
const PIXEL_MAXIMUM = 255;
/** What a target is called where a spec does not name it (libs/data). */
const DEFAULT_TARGET = 'y';

type Model = Pick<RunSpec, 'model'>;
type Ends = Pick<ModelDescription, 'inputs' | 'outputs'>;

/** Preprocessing of a run on built-in images. */
export function builtInPreprocessing(spec: Model, { name, format }: Pick<DatasetInfo, 'name' | 'format'>, ends: Ends): Preprocessing {
  const inputs = format.inputs.map(({ shape }) => {
    const [height = 1, width = 1, channels = 1] = shape;
    const image = { height, width, channels: channels === 3 ? (3 as const) : (1 as const), divideBy: PIXEL_MAXIMUM };
    return { name, shape: [...shape], image };
  });
  return { format: 'paceline.preprocessing', version: 1, inputs, outputs: outputsOf(spec, format, ends, undefined) };
}

/** Preprocessing of a run on a dataset with columns. @param plan undefined when the dataset was removed: what comes out is still known */
export function planPreprocessing(spec: Model, format: RowFormat, ends: Ends, plan: FeaturePlan | undefined): Preprocessing {
  const planned = plan && { plan, inputOrder: fieldsOfEnds(ends.inputs, format.inputs) };
  return Object.assign({ format: 'paceline.preprocessing' as const, version: 1 as const }, planned, {
    outputs: outputsOf(spec, format, ends, plan),
  });
}

function outputsOf(spec: Model, format: RowFormat, { outputs }: Ends, plan: FeaturePlan | undefined): PreparedOutput[] {
  const activations = outputActivations(planModel(spec, format).plan);
  const targets = fieldsOfEnds(outputs, format.targets);
  return outputs.map((_, i) => {
    const target = format.targets[targets[i]!]!;
    return outputOf(target, nameOf(target, format, plan?.targets[targets[i]!]?.encoders), activations[i], plan, targets[i]!);
  });
}

/** A target that nobody has named bears the name of its column, unless another target has it. */
function nameOf({ name }: TargetField, { targets }: RowFormat, encoders: readonly Encoder[] = []): string {
  const [encoder, more] = encoders;
  if (name !== DEFAULT_TARGET || !encoder || more || encoder.kind === 'same') return name;
  const columns = encoder.kind === 'numbers' ? encoder.columns : [encoder.column];
  const [column] = columns;
  return columns.length === 1 && !targets.some((other) => other.name === column) ? column! : name;
}

function outputOf(
  target: TargetField,
  name: string,
  activation: string | undefined,
  plan: FeaturePlan | undefined,
  index: number,
): PreparedOutput {
  const shape = [...target.shape];
  if (target.kind === 'classes' && target.classes <= LABELS_MAX) {
    const gives = activation === 'softmax' || activation === 'sigmoid' ? 'probabilities' : 'logits';
    const labels = plan?.targets[index]?.labels ?? labelsOf(plan?.targets[index]?.encoders[0], target.classes);
    return Object.assign(
      { name, kind: 'classes' as const, gives: gives as 'probabilities' | 'logits', labels: [...labels] },
      shape.length > 0 && { shape },
    );
  }
  const scale = plan && scaleOf(plan, plan.targets[index]!.encoders);
  return Object.assign({ name, kind: 'values' as const, shape }, scale && { scale });
}

/** Tokens have names; other classes that nobody has named are called by their index. */
function labelsOf(encoder: Encoder | undefined, classes: number): string[] {
  const words = encoder?.kind === 'text' && encoder.tokens !== 'tokenizer' ? ['', '[unknown]', ...encoder.vocabulary] : [];
  return Array.from({ length: classes }, (_, i) => words[i] ?? String(i));
}

/** Undefined when nothing was scaled. */
function scaleOf(plan: FeaturePlan, encoders: readonly Encoder[]): { subtract: number[]; divide: number[] } | undefined {
  const [subtract, divide]: [number[], number[]] = [[], []];
  for (const encoder of encoders) {
    if (encoder.kind === 'same') {
      const input = plan.rowFormat.inputs.findIndex(({ name }) => name === encoder.input);
      return scaleOf(plan, plan.inputs[input]?.encoders ?? []);
    }
    if (encoder.kind === 'numbers') {
      subtract.push(...encoder.subtract);
      divide.push(...encoder.divide);
    } else if (encoders.length === 1 && (encoder.kind === 'array' || encoder.kind === 'image')) {
      subtract.push(encoder.subtract);
      divide.push(encoder.divide);
    } else return undefined;
  }
  const isAsItIs = subtract.every((less) => less === 0) && divide.every((by) => by === 1);
  return isAsItIs || divide.length === 0 ? undefined : { subtract, divide };
}
