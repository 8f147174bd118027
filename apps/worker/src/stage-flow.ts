/**
 * What the stages of a model give each other in a worker (strategy model-parallel): the tensor of a micro-batch forward, and its gradient back. Each stage is a compute
 * thread; between two of them is a boundary, which lies in shared memory.
 *
 * The main thread gives all stages the same commands in the same order: a step or an evaluation of so many parts. In a command each stage counts
 *
 * | cell | written by | meaning |
 * |---|---|---|
 * | PASSED, of each boundary | the stage in front | parts whose tensor lies in the boundary |
 * | RETURNED, of each boundary | the stage behind | parts whose gradient lies in the boundary; in an evaluation those whose tensor was taken out |
 * | CUT | the first stage | parts from this one on are left out, as their round is committed already. It decides alone, so that all stages leave out the same |
 * | DONE, of each stage | this stage | commands that this stage and all behind it have ended |
 *
 * PASSED and RETURNED only rise: in each command by all of its parts, those that were left out too. A stage ends a command when the stages behind it have,
 * so CUT and the boundaries are free for the next one. Counters wrap around at 2³², so two of them are compared by the sign of their difference.
 *
 * A boundary has room for the parts that are on their way: a stage is at most as many ahead as there are stages behind it (stage-steps.ts).
 */
import { spans } from '@paceline/exchange';
import { waitFor } from './waiting.js';

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT;
/** A boundary holds two parts of an evaluation where they take no more bytes than this. */
const EVALUATION_BYTES = 64 << 20;
/** Parts of an evaluation that are on their way over a boundary. */
const EVALUATION_SLOTS = 2;
const CUT = 0;
const passedCell = (boundary: number): number => 1 + 2 * boundary;
const returnedCell = (boundary: number): number => 2 + 2 * boundary;

/** The sizes of what goes over the boundaries. */
export interface FlowSizes {
  /** Elements of the tensor of one example, by boundary. */
  readonly widths: readonly number[];
  /** Examples of the largest micro-batch. */
  readonly rows: number;
  /** Examples of the largest part of an evaluation. */
  readonly evaluationRows: number;
}

export interface FlowPlan extends FlowSizes {
  /** A stage waits so long for another one while nothing moves. */
  readonly deadlineMs: number;
}

export interface FlowMemory {
  readonly cells: SharedArrayBuffer;
  /** By boundary. */
  readonly boundaries: readonly SharedArrayBuffer[];
}

/** Micro-batches that may lie in a boundary at once. */
const slotsOf = ({ widths }: Pick<FlowPlan, 'widths'>, boundary: number): number => widths.length + 1 - boundary;

/** Parts of an evaluation that may lie in a boundary: one where two would take too much. A part is as large as one engine evaluates at once, so that its loss is the same. */
const evaluationSlotsOf = ({ widths, evaluationRows }: FlowSizes, boundary: number): number =>
  EVALUATION_SLOTS * evaluationRows * widths[boundary]! * FLOAT_BYTES > EVALUATION_BYTES ? 1 : EVALUATION_SLOTS;

/** Bytes of each boundary. */
export function boundaryBytes(plan: FlowSizes): number[] {
  return plan.widths.map((width, boundary) => {
    const rows = Math.max(2 * slotsOf(plan, boundary) * plan.rows, evaluationSlotsOf(plan, boundary) * plan.evaluationRows);
    return rows * width * FLOAT_BYTES;
  });
}

/** @throws RangeError where there is not so much memory */
export const flowMemory = (plan: FlowSizes): FlowMemory => ({
  cells: new SharedArrayBuffer((2 + 3 * plan.widths.length) * Int32Array.BYTES_PER_ELEMENT),
  boundaries: boundaryBytes(plan).map((bytes) => new SharedArrayBuffer(bytes)),
});

/** A stage has waited too long for another one. */
export class StageStalledError extends Error {
  override readonly name = 'StageStalledError';
  readonly code = 'STAGE_STALLED';
}

/** One stage's end of the boundaries beside it. Parts are numbered from 0 in each command. */
export class StageFlow {
  private readonly cells: Int32Array;
  private readonly boundaries: readonly Float32Array[];
  private readonly last: number;
  private commands = 0;
  /** Parts of all commands before this one. */
  private before = 0;
  private parts = 0;

  /** @param stage from 0 @param progress a count that moves whenever a stage does */
  constructor(
    { cells, boundaries }: FlowMemory,
    private readonly plan: FlowPlan,
    private readonly stage: number,
    private readonly progress: () => number,
  ) {
    this.cells = new Int32Array(cells);
    this.boundaries = boundaries.map((buffer) => new Float32Array(buffer));
    this.last = plan.widths.length;
  }

  /** A command begins. */
  begin(parts: number): void {
    this.parts = parts;
    if (this.stage === 0) Atomics.store(this.cells, CUT, parts);
  }

  /** The first stage leaves out this part and those behind it, and so do all others. */
  cut(part: number): void {
    Atomics.store(this.cells, CUT, part);
  }

  /**
   * Waits until the stage in front has passed a part on.
   * @returns false where the part is left out
   * @throws StageStalledError
   */
  comes(part: number): boolean {
    if (this.stage > 0) this.await(passedCell(this.stage - 1), this.before + part + 1, `micro-batch ${part} from stage ${this.stage - 1}`);
    return part < Atomics.load(this.cells, CUT);
  }

  /** The tensor of a part lies in the boundary behind this stage. */
  passed(part: number): void {
    if (this.stage < this.last) this.tell(passedCell(this.stage), this.before + part + 1);
  }

  /** Waits until the gradient of a part has come back. @throws StageStalledError */
  comesBack(part: number): void {
    this.await(returnedCell(this.stage), this.before + part + 1, `the gradient of micro-batch ${part} from stage ${this.stage + 1}`);
  }

  /** The gradient of a part lies in the boundary in front of this stage; or, in an evaluation, its tensor was taken out. */
  returned(part: number): void {
    if (this.stage > 0) this.tell(returnedCell(this.stage - 1), this.before + part + 1);
  }

  /** In an evaluation: waits until the boundary behind this stage has room for a part. @throws StageStalledError */
  hasRoom(part: number): void {
    const slots = evaluationSlotsOf(this.plan, this.stage);
    const taken = part - slots;
    if (taken >= 0)
      this.await(returnedCell(this.stage), this.before + taken + 1, `stage ${this.stage + 1} to take part ${taken} of the evaluation`);
  }

  /** The command is over for this stage, and when this returns for those behind it. @throws StageStalledError */
  end(): void {
    if (this.parts > 0) {
      this.passed(this.parts - 1);
      this.returned(this.parts - 1);
    }
    this.before = (this.before + this.parts) | 0;
    this.commands = (this.commands + 1) | 0;
    if (this.stage < this.last) this.await(this.doneCell(this.stage + 1), this.commands, `the end of stage ${this.stage + 1}`);
    this.tell(this.doneCell(this.stage), this.commands);
  }

  /** Where the tensor of a micro-batch lies, or its gradient, [rows, ...]. @param boundary the one behind the stage of that number */
  tensor(boundary: number, part: number, rows: number, what: 'values' | 'gradients'): Float32Array {
    const width = this.plan.widths[boundary]!;
    const slots = slotsOf(this.plan, boundary);
    const slot = (part % slots) + (what === 'values' ? 0 : slots);
    return this.boundaries[boundary]!.subarray(slot * this.plan.rows * width).subarray(0, rows * width);
  }

  /** The same of a part of an evaluation. */
  evaluated(boundary: number, part: number, rows: number): Float32Array {
    const width = this.plan.widths[boundary]!;
    const slot = part % evaluationSlotsOf(this.plan, boundary);
    return this.boundaries[boundary]!.subarray(slot * this.plan.evaluationRows * width).subarray(0, rows * width);
  }

  private doneCell(stage: number): number {
    return 1 + 2 * this.last + stage;
  }

  private tell(cell: number, count: number): void {
    Atomics.store(this.cells, cell, count | 0);
    Atomics.notify(this.cells, cell);
  }

  private await(cell: number, target: number, what: string): void {
    const sinceMs = spans.now();
    const { cells, progress } = this;
    const { deadlineMs } = this.plan;
    const how = waitFor({ cells, cell, target, deadlineMs, progress });
    if (how === 'stalled') throw new StageStalledError(`it has waited ${deadlineMs} ms for ${what}: set a longer stepDeadlineMs`);
    if (how === 'waited') spans.add('wait for stage', sinceMs);
  }
}
