/**
 * The undisturbed run, generation by generation, in a plain loop: what any disturbed one must arrive at, bit for bit (I8).
 *
 * With backup replicas timing chooses which replicas count, and no bits are promised. Then the loop is told the choice of every round
 * (`fix`), and what is compared is that all chunks, the ledger and every checkpoint follow that one choice. An attempt that begins with a
 * checkpoint chooses anew from there (`restart`). Where replicas keep something between rounds, what is chosen is the sum of each chunk (`choose`,
 * kept-of-replicas.ts).
 */
import type { RoundDecision } from '@paceline/exchange';
import { decidedRate, validationPlanOf } from '@paceline/hosting';
import { split } from '@paceline/learning';
import { ReferenceStore } from './reference-store.js';
import { decodedGradient, localGradient, localUpdatesOf, publishedParameters } from '../run/replica-gradient.js';
import { keepsOfReplicas } from '../run/replica-shape.js';
import { scratchArena, type TinyRun } from '../run/tiny-run.js';

/** What a shard applies to a chunk. */
interface ChosenSum {
  readonly sum: Float32Array;
  /** Plan two-phase: as was decided. */
  readonly decision: RoundDecision | undefined;
  /** Of the shard that chose it. */
  readonly term: number;
}

/** Rows of a block of the evaluation split. */
const BLOCK = 500;

const rateOf = (course: string | undefined): number => (course === undefined ? 1 : decidedRate(course));

interface Generation {
  /** The course that validations have decided up to it. */
  readonly course: string | undefined;
  readonly weights: Float32Array;
  readonly slots: readonly Float32Array[];
}

export class Reference {
  private readonly generations: Generation[];
  private readonly chosen = new Map<number, readonly number[]>();
  private readonly all: readonly number[];
  private readonly store: ReferenceStore;
  private readonly plan: ReturnType<typeof validationPlanOf>;
  private readonly arena = scratchArena();
  private readonly local: ReturnType<typeof localUpdatesOf>;
  /** Sums of chunks by round and chunk; undefined where they follow from the run alone. */
  private readonly sums: Map<string, ChosenSum> | undefined;

  constructor(private readonly run: TinyRun) {
    const { evalExamples, heldOutExamples } = run.shape;
    this.plan = evalExamples > 0 ? validationPlanOf(run.spec, run.schedule, undefined, heldOutExamples !== undefined) : undefined;
    this.all = Array.from({ length: run.shape.replicas }, (_, replica) => replica);
    this.store = ReferenceStore.of(run);
    this.local = localUpdatesOf(run, this.arena);
    this.sums = keepsOfReplicas(run.shape) ? new Map() : undefined;
    this.generations = [{ course: this.plan?.firstCourse, weights: run.initial.slice(), slots: this.store.savedSlots() }];
  }

  generation(k: number): Float32Array {
    while (this.generations.length <= k) this.advance();
    return this.generations[k]!.weights;
  }

  /** True when `values` are bit for bit the chunk of generation k. */
  holds(k: number, chunk: { readonly offset: number; readonly length: number }, values: Float32Array): boolean {
    const expected = this.isPartial(k) ? this.next(k - 1).weights : this.generation(k);
    const a = new Uint32Array(expected.buffer, chunk.offset * 4, chunk.length);
    const b = new Uint32Array(values.buffer, values.byteOffset, chunk.length);
    for (let i = 0; i < chunk.length; i++) if (a[i] !== b[i]) return false;
    return true;
  }

  /** Rounds after which the run ends, and those in the weights that it ends with. */
  end(): { readonly rounds: number; readonly weights: number } {
    const { totalRounds } = this.run.schedule;
    let rounds = 0;
    while (rounds < totalRounds && this.stopOf(rounds) === undefined) rounds++;
    this.generation(rounds);
    const { course } = this.generations[rounds]!;
    const best = course === undefined ? undefined : this.plan!.endOf(course, rounds)?.generation;
    return { rounds, weights: best ?? rounds };
  }

  private stopOf(k: number): string | undefined {
    this.generation(k);
    const { course } = this.generations[k]!;
    return course === undefined ? undefined : this.plan!.stopOf(course);
  }

  /** The loss that a validation of generation k comes to. */
  lossOf(k: number): number {
    return this.validated(this.generation(k), k)['loss']!;
  }

  /** The loss of generation k on the evaluation split. */
  resultOf(k: number): number {
    return this.valuesOf(publishedParameters(this.run, k, this.generation(k)), 0, this.run.shape.evalExamples)['loss']!;
  }

  private validated(exact: Float32Array, k: number): Readonly<Record<string, number>> {
    const weights = publishedParameters(this.run, k, exact);
    const { evalExamples, heldOutExamples } = this.run.shape;
    return heldOutExamples === undefined
      ? this.valuesOf(weights, 0, evalExamples)
      : this.valuesOf(weights, evalExamples, evalExamples + heldOutExamples);
  }

  /** Added up block by block. */
  private valuesOf(weights: Float32Array, first: number, end: number): Readonly<Record<string, number>> {
    const sums = [0, 0, 0];
    for (let from = first; from < end; from += BLOCK)
      for (const [i, sum] of this.run.measured(weights, from, Math.min(from + BLOCK, end)).entries()) sums[i]! += sum;
    return { loss: sums[0]! / (end - first), meanAbsoluteError: sums[1]! / sums[2]! };
  }

  /** The course after generation k: its validation, where one is due, may change it. */
  private judged(course: string | undefined, k: number, weights: Float32Array): string | undefined {
    if (course === undefined || !(this.plan!.isDue(k) || k === this.run.schedule.totalRounds)) return course;
    const verdict = this.plan!.judge(course, k, this.validated(weights, k));
    const { evalExamples, heldOutExamples } = this.run.shape;
    if (heldOutExamples === undefined || this.plan!.bestOf(verdict.course) !== k) return verdict.course;
    return this.plan!.withResult(verdict.course, this.valuesOf(publishedParameters(this.run, k, weights), 0, evalExamples));
  }

  /** Examples of a round that are in its update. */
  examplesIn(round: number): number {
    const included = this.includedIn(round);
    if (this.run.isLeftOut(round, included)) return 0;
    if (included === this.all) return this.run.schedule.round(round).count;
    return included.reduce((sum, replica) => sum + this.run.replicaExamples(round, replica), 0);
  }

  examplesBefore(round: number): number {
    let examples = 0;
    for (let k = 0; k < round; k++) examples += this.examplesIn(k);
    return examples;
  }

  /** Replicas that count in a round with backup replicas. Returns false when others were chosen before. */
  fix(round: number, replicas: readonly number[]): boolean {
    const before = this.chosen.get(round);
    if (before) return String(before) === String(replicas);
    this.chosen.set(round, replicas);
    return true;
  }

  /** An attempt begins with `round` committed rounds: what was chosen after them is forgotten. */
  restart(round: number): void {
    if (this.run.shape.gradient.backupReplicas === 0 && !this.sums) return;
    for (const key of this.sums?.keys() ?? []) if (Number(key.split('/')[0]) >= round) this.sums!.delete(key);
    this.generations.length = Math.min(this.generations.length, round + 1);
    for (const k of this.chosen.keys()) if (k >= round) this.chosen.delete(k);
  }

  /**
   * A shard applies this sum. What is chosen later in a higher term counts instead: the shard was taken over, and the sum is made once more.
   * @returns false for that of a lower term, which is nobody's any more
   */
  choose(round: number, chunk: number, chosen: ChosenSum): boolean {
    const key = `${round}/${chunk}`;
    const before = this.sums!.get(key);
    if (before && before.term > chosen.term) return false;
    this.sums!.set(key, chosen);
    if (before) this.generations.length = Math.min(this.generations.length, round + 1);
    return true;
  }

  /** A standby applies what its primary has chosen; where another server has chosen since, it is not compared. */
  hasChosen(round: number, chunk: number, sum: Float32Array): boolean {
    const chosen = this.sums!.get(`${round}/${chunk}`)?.sum;
    return chosen !== undefined && sum.every((value, i) => Object.is(value, chosen[i]));
  }

  /** Plan two-phase: what follows from these sums of all chunks. */
  decisionOf(round: number, sum: Float32Array): RoundDecision | undefined {
    this.generation(round);
    const { weights, slots, course } = this.generations[round]!;
    this.store.loadSlots(slots);
    return this.store.decided(round, weights, sum, this.examplesIn(round), rateOf(course));
  }

  /** Some chunks of the generation are chosen: it is compared chunk by chunk. */
  private isPartial(k: number): boolean {
    if (!this.sums || k !== this.generations.length) return false;
    const { layout, isExchanged } = this.run;
    return layout.chunks.some(({ index }) => isExchanged?.(k - 1, index) !== false && !this.sums!.has(`${k - 1}/${index}`));
  }

  private includedIn(round: number): readonly number[] {
    if (this.run.shape.gradient.backupReplicas === 0) return this.all;
    const included = this.chosen.get(round);
    if (!included) throw new Error(`nothing was chosen in round ${round}`);
    return included;
  }

  private advance(): void {
    const round = this.generations.length - 1;
    const { course } = this.generations[round]!;
    const { weights, slots } = this.next(round);
    this.generations.push({ weights, course: this.judged(course, round + 1, weights), slots });
  }

  private next(round: number): Pick<Generation, 'weights' | 'slots'> {
    const { run } = this;
    const { weights, slots, course } = this.generations[round]!;
    const included = this.includedIn(round);
    const sum = run.isLeftOut(round, included) ? undefined : (this.chosenSum(round) ?? this.sumOf(weights, round, included));
    this.store.loadSlots(slots);
    const decisionOf = this.sums && ((chunk: number) => this.sums!.get(`${round}/${chunk}`)?.decision);
    const next = this.store.after(round, weights, sum, this.examplesIn(round), rateOf(course), decisionOf);
    return { weights: next, slots: this.store.savedSlots() };
  }

  /** Zeros where nothing is chosen yet. */
  private chosenSum(round: number): Float32Array | undefined {
    if (!this.sums) return undefined;
    const whole = new Float32Array(this.run.layout.totalLength);
    for (const { index, offset } of this.run.layout.chunks) whole.set(this.sums.get(`${round}/${index}`)?.sum ?? [], offset);
    return whole;
  }

  private sumOf(weights: Float32Array, round: number, included: readonly number[]): Float32Array {
    return this.sum(publishedParameters(this.run, round, weights), round, new Set(included), 0, this.run.shape.replicas)!;
  }

  /** What a server has of one replica. */
  private leaf(weights: Float32Array, round: number, replica: number): Float32Array {
    const { run, local, arena } = this;
    const out = local ? localGradient(run, local, arena, { round, replica, start: weights }) : new Float32Array(weights.length);
    if (!local) run.step(weights, round, replica, out);
    return decodedGradient(run, round, replica, out);
  }

  /** After the run: nothing is asked any more. */
  release(): void {
    this.store.release();
  }

  /** By the rule of the reduction tree; a node with one child that counts is that child. */
  private sum(weights: Float32Array, round: number, included: ReadonlySet<number>, lo: number, hi: number): Float32Array | undefined {
    if (hi - lo === 1) {
      return included.has(lo) ? this.leaf(weights, round, lo) : undefined;
    }
    const middle = split(lo, hi);
    const left = this.sum(weights, round, included, lo, middle);
    const right = this.sum(weights, round, included, middle, hi);
    if (!left || !right) return left ?? right;
    for (let i = 0; i < left.length; i++) left[i]! += right[i]!;
    return left;
  }
}
