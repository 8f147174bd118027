/**
 * Which steps of a model are replayed from a recording (backends/wasm/recorded-step.ts). By the number of examples, as shapes follow from it:
 *
 *     | step of this size | what happens                                                                  |
 *     |-------------------|-------------------------------------------------------------------------------|
 *     | first, second     | computed: a model that takes a step or two needs no recording                 |
 *     | third             | computed and recorded                                                         |
 *     | fourth            | computed and replayed: used from now on if all bits are the same              |
 *     | later             | replayed                                                                      |
 *
 * Whatever goes wrong ends replays for good, and the step is computed.
 */
import type { RecordedStep } from '../backends/wasm/recorded-step.js';

/** Values of a step that are kept. With more of them the arithmetic takes much longer than the calls. */
export const MOST_KEPT_BYTES = 32 * 2 ** 20;
const COMPUTED_STEPS = 2;
/** The first two that come: the size of a batch, and of the last one of an epoch. */
const MOST_SIZES = 2;

/** The steps of one size. */
export class Replay {
  step: RecordedStep | undefined;
  isProven = false;
  private steps = 0;
  private recordedAt = 0;

  /** Counts a step that begins. */
  begin(): this {
    this.steps++;
    return this;
  }

  /** This one is to be recorded. */
  get isDue(): boolean {
    return this.recordedAt === 0 && this.steps > COMPUTED_STEPS;
  }

  /** This one is to be computed and replayed. */
  get isToProve(): boolean {
    return this.step !== undefined && !this.isProven && this.steps > this.recordedAt;
  }

  /** @param step undefined where the step cannot be replayed */
  take(step: RecordedStep | undefined): void {
    this.recordedAt = this.steps;
    this.step = step;
  }
}

export class Replays {
  private readonly sizes = new Map<number, Replay>();
  private isOver = false;

  /** The steps with so many examples; undefined where they are never replayed. */
  of(count: number): Replay | undefined {
    if (this.isOver) return undefined;
    const known = this.sizes.get(count);
    if (known || this.sizes.size >= MOST_SIZES) return known;
    const replay = new Replay();
    this.sizes.set(count, replay);
    return replay;
  }

  /** No step is replayed any more. */
  end(): void {
    this.isOver = true;
    for (const { step } of this.sizes.values()) step?.dispose();
    this.sizes.clear();
  }
}
