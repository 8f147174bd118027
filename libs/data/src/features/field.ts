/** A field of the model with its encoders side by side: floats of some rows, one row after the other. */
import type { FeaturePlan, PlannedField, RowsOfExample } from '@paceline/spec';
import type { Cells } from './cells.js';
import { rowEncoder, type CodedEncoder, type RowEncoder, type Target } from './encode.js';
import type { DecodeImage } from './image.js';

export interface Field {
  readonly kind: 'encoded';
  readonly rows: RowsOfExample;
  /** Floats that one row makes; an example has `rows.count` times as many. */
  readonly rowWidth: number;
  readonly columns: readonly string[];
  readonly isFixed: boolean;
  write(cells: Cells, into: Float32Array, offset: number): Promise<void> | void;
}

/** A target that is a copy of an input. */
export interface CopiedField {
  readonly kind: 'copied';
  /** Index of the input. */
  readonly input: number;
}

export interface Fields {
  readonly inputs: readonly Field[];
  readonly targets: readonly (Field | CopiedField)[];
  /** Weights of training examples and of the others: weights of classes count in training alone. */
  readonly trainWeight: Field | undefined;
  readonly evaluationWeight: Field | undefined;
}

export function fieldsOf(plan: FeaturePlan, decodeImage: DecodeImage): Fields {
  const made = (planned: PlannedField): Field | CopiedField => {
    const [first] = planned.encoders;
    if (first?.kind === 'same') return { kind: 'copied', input: plan.rowFormat.inputs.findIndex(({ name }) => name === first.input) };
    return fieldOf(
      planned.rows,
      planned.encoders.map((encoder) => rowEncoder(encoder as CodedEncoder, decodeImage)),
    );
  };
  const isWeighted = plan.rowFormat.isWeighted;
  return {
    inputs: plan.inputs.map(made) as Field[],
    targets: plan.targets.map(made),
    trainWeight: isWeighted ? weightField(plan, true) : undefined,
    evaluationWeight: isWeighted ? weightField(plan, false) : undefined,
  };
}

function fieldOf(rows: RowsOfExample, encoders: readonly RowEncoder[]): Field {
  const rowWidth = encoders.reduce((sum, { width }) => sum + width, 0);
  const starts = encoders.map((_, i) => encoders.slice(0, i).reduce((sum, { width }) => sum + width, 0));
  return {
    kind: 'encoded',
    rows,
    rowWidth,
    columns: [...new Set(encoders.flatMap(({ columns }) => columns))],
    isFixed: encoders.every(({ isFixed }) => isFixed),
    write(cells, into, offset) {
      const waits = encoders.flatMap((encoder, i) => {
        const target: Target = { into, offset: offset + starts[i]!, stride: rowWidth };
        return encoder.write(cells, target) ?? [];
      });
      if (waits.length > 0) return Promise.all(waits).then(() => undefined);
    },
  };
}

function weightField({ weight, targets }: FeaturePlan, isTraining: boolean): Field {
  const rows = targets[0]!.rows;
  const [target] = targets[0]!.encoders;
  const classes = isTraining && target?.kind === 'class' ? weight.classes : undefined;
  const factors: RowEncoder[] = [];
  const none = (): Promise<Uint8Array> => Promise.reject(new Error('no image is weighed'));
  if (weight.column !== undefined)
    factors.push(rowEncoder({ kind: 'numbers', columns: [weight.column], missing: [null], subtract: [0], divide: [1] }, none));
  const classIndex = classes && target?.kind === 'class' ? rowEncoder(target, none) : undefined;
  return {
    kind: 'encoded',
    rows,
    rowWidth: 1,
    columns: [...factors, ...(classIndex ? [classIndex] : [])].flatMap(({ columns }) => columns),
    isFixed: true,
    write(cells, into, offset) {
      const target = { into, offset, stride: 1 };
      into.fill(1, offset, offset + cells.rows);
      for (const factor of factors) void factor.write(cells, target);
      if (!classIndex || !classes) return;
      const indices = new Float32Array(cells.rows);
      void classIndex.write(cells, { into: indices, offset: 0, stride: 1 });
      for (let row = 0; row < cells.rows; row++) into[offset + row] = into[offset + row]! * classes[indices[row]!]!;
    },
  };
}
