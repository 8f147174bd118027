/**
 * Validation while training, as a coordinator sees it. A generation that is due is measured when all shards are REDUCED(k), before COMMIT(k): every member
 * has the generation by then, nothing of the next round is begun, and what follows from the numbers is told with that COMMIT:
 *
 *   REDUCED(k) from all → the evaluation split is measured on generation k+1 → verdict → COMMIT(k): checkpoint, rate, the end
 *
 * Where examples of the training split are held out, they are what validations measure. The weights that a run may end with are then measured on the
 * evaluation split as well, at the same moment: they are gone from the workers afterwards.
 *
 * The course is what validations have decided so far. It is text that only libs/hosting reads; COMMIT takes it to all shards, and a checkpoint keeps it, so
 * that neither a kill nor a takeover changes what is decided.
 */
import type { MeasuredRange } from './evaluation.js';
import type { Measures } from './measures.js';

/** What follows from a validation. */
export interface Verdict {
  readonly course: string;
  /** Why the run ends with this generation. */
  readonly stop?: string | undefined;
  /** For the journal. */
  readonly events: readonly { readonly type: string; readonly message: string; readonly data: Record<string, unknown> }[];
}

/** The weights that the run ends with, and what is known of them. */
export interface EndWeights {
  readonly generation: number;
  /** Measures of the evaluation split; undefined without one. */
  readonly values: Measures | undefined;
}

export interface ValidationPlan {
  /** What the attempt begins with. */
  readonly firstCourse: string;
  isDue(generation: number): boolean;
  /** Pure: the same for the same course and values. */
  judge(course: string, generation: number, values: Measures): Verdict;
  /** The course with what the evaluation split has come to with the best weights. */
  withResult(course: string, result: Measures): string;
  /** Why the run has ended before its last round; undefined as long as it goes on. */
  stopOf(course: string): string | undefined;
  /** The best generation so far, where the run may end with it: its weights are kept. */
  bestOf(course: string): number | undefined;
  /** What the newest validation has measured, if it was of this generation. */
  lastOf(course: string, generation: number): Measures | undefined;
  /** The weights that a run ends with in this generation, if they were measured. */
  endOf(course: string, generation: number): EndWeights | undefined;
}

interface Judged {
  readonly generation: number;
  readonly values: Measures;
  readonly verdict: Verdict;
  /** The evaluation split was measured too. */
  readonly hasResult: boolean;
}

export class Validations {
  course: string | undefined;
  /** The result for the generation that is about to be committed, or for the newest committed one. */
  private judged: Judged | undefined;

  private readonly plan: ValidationPlan | undefined;

  constructor(
    plan: ValidationPlan | undefined,
    private readonly totalRounds: number,
    private readonly counts: { readonly evalExamples: number; readonly heldOutExamples?: number | undefined },
  ) {
    const isMeasurable = (counts.heldOutExamples ?? counts.evalExamples) > 0;
    this.plan = isMeasurable ? plan : undefined;
    this.course = this.plan?.firstCourse;
  }

  /** What has to be measured of `generation` before it is committed. The last one is always validated. */
  needs(generation: number): MeasuredRange | undefined {
    if (!this.plan) return undefined;
    const { evalExamples, heldOutExamples } = this.counts;
    const judged = this.of(generation);
    if (!judged) {
      if (generation !== this.totalRounds && !this.plan.isDue(generation)) return undefined;
      return heldOutExamples === undefined ? { from: 0, to: evalExamples } : { from: evalExamples, to: evalExamples + heldOutExamples };
    }
    const isResultMissing = heldOutExamples !== undefined && evalExamples > 0 && !judged.hasResult && this.willBeBest(generation);
    return isResultMissing ? { from: 0, to: evalExamples } : undefined;
  }

  /** @param values of the range that was needed */
  measured(generation: number, values: Measures): void {
    const judged = this.of(generation);
    if (!judged) this.judged = { generation, values, verdict: this.plan!.judge(this.course!, generation, values), hasResult: false };
    else {
      const course = this.plan!.withResult(judged.verdict.course, values);
      this.judged = Object.assign({}, judged, { verdict: Object.assign({}, judged.verdict, { course }), hasResult: true });
    }
  }

  /** What was measured of the generation, if anything was. */
  of(generation: number): Judged | undefined {
    return this.judged?.generation === generation ? this.judged : undefined;
  }

  /** The generation is committed: from here on its verdict counts. */
  committed(generation: number): void {
    this.course = this.of(generation)?.verdict.course ?? this.course;
  }

  get stop(): string | undefined {
    return this.course === undefined ? undefined : this.plan?.stopOf(this.course);
  }

  /** Whether the generation is the best so far: its weights and a checkpoint of it are kept. */
  isBest(generation: number): boolean {
    return this.course !== undefined && this.plan?.bestOf(this.course) === generation;
  }

  /** The same of a generation that is measured and about to be committed. */
  willBeBest(generation: number): boolean {
    const judged = this.of(generation);
    return judged !== undefined && this.plan!.bestOf(judged.verdict.course) === generation;
  }

  /** What was measured of the generation, as far as that is the newest validation: by this coordinator or by one before. */
  lastOf(generation: number): Measures | undefined {
    return this.course === undefined ? undefined : this.plan?.lastOf(this.course, generation);
  }

  endOf(generation: number): EndWeights | undefined {
    return this.course === undefined ? undefined : this.plan?.endOf(this.course, generation);
  }
}
