/** The buffers in which a batch, or rows to be predicted, lie for the compute threads: a set of them for each step or prediction that may be under way. They only grow. */
import { LIMITS } from '@paceline/spec';
import { ArgumentError } from '../errors.js';
import type { BatchBuffers } from './protocol.js';

/** Float32 of an example, of each field; and of the tensor at each boundary between stages, where there are some. */
export interface BufferFloats {
  readonly inputs: readonly number[];
  readonly targets: readonly number[];
  readonly outputs: readonly number[];
  readonly boundaries: readonly number[];
}

interface BufferSet {
  /** Rows that have room. */
  readonly capacity: number;
  /** Rows whose tensors have room at a boundary. */
  readonly betweenRows: number;
  readonly buffers: BatchBuffers;
}

export class BufferSets {
  private readonly sets: (BufferSet | undefined)[] = [];
  /** At each boundary a tensor of so many rows, and a gradient. All sets have them in common. */
  private readonly between = {
    rows: 0,
    values: [] as readonly SharedArrayBuffer[],
    gradientRows: 0,
    gradients: [] as readonly SharedArrayBuffer[],
  };

  /** @param tell hands new buffers of a set to the threads, when these have ended what they do */
  constructor(
    private readonly floats: BufferFloats,
    private readonly tell: (buffers: BatchBuffers, set: number) => void,
  ) {}

  /**
   * @param partRows of a prediction: rows whose tensors are between two stages at a time
   * @throws ArgumentError for more rows than a batch may have
   */
  of(count: number, set: number, partRows?: number): BatchBuffers {
    const { inputs, targets, outputs, boundaries } = this.floats;
    const present = this.sets[set];
    const betweenRows = boundaries.length > 0 ? (partRows ?? count) : 0;
    if (present && count <= present.capacity && betweenRows <= present.betweenRows) return present.buffers;
    if (count > LIMITS.globalBatchExamples)
      throw new ArgumentError(`a batch has ${count} examples; the most is ${LIMITS.globalBatchExamples}: set a smaller batchSize`);
    const capacity = Math.max(count, present?.capacity ?? 0);
    const ofRows = shared(capacity);
    const buffers = {
      inputs: inputs.map(ofRows),
      targets: targets.map(ofRows),
      weights: ofRows(1),
      outputs: outputs.map(ofRows),
      boundaries: this.boundariesFor(betweenRows, partRows === undefined),
    };
    this.tell(buffers, set);
    this.sets[set] = { capacity, betweenRows: this.between.rows, buffers };
    return buffers;
  }

  /** Threads have opened the model anew. */
  tellAgain(): void {
    for (const [set, present] of this.sets.entries()) if (present) this.tell(present.buffers, set);
  }

  /** @param isStep gradients come back */
  private boundariesFor(rows: number, isStep: boolean): NonNullable<BatchBuffers['boundaries']> {
    const { between, floats } = this;
    if (rows > between.rows) {
      between.values = floats.boundaries.map(shared(rows));
      between.rows = rows;
    }
    if (isStep && rows > between.gradientRows) {
      between.gradients = floats.boundaries.map(shared(rows));
      between.gradientRows = rows;
    }
    return between.values.map((values, i) => ({ values, gradients: between.gradients[i] ?? new SharedArrayBuffer(0) }));
  }
}

const shared =
  (rows: number) =>
  (floats: number): SharedArrayBuffer =>
    new SharedArrayBuffer(rows * floats * Float32Array.BYTES_PER_ELEMENT);
