/**
 * What validations have decided so far, as text that COMMIT takes to all shards and checkpoints keep. It is read here alone. Everything in it follows from
 * the validations in their order, so whoever goes on from a checkpoint, or takes over, decides the same.
 */
import type { EndWeights, Measures, ValidationPlan, Verdict } from '@paceline/exchange';
import {
  FULL_RATE,
  judgePlateau,
  NOTHING_WATCHED,
  shownNumber,
  stopReason,
  watchForStop,
  type PlateauRule,
  type PlateauState,
  type StoppingRule,
  type StoppingState,
} from '@paceline/learning';
import { z } from 'zod';

const count = z.int().min(0);
const values = z.record(z.string().max(200), z.number().nullable());
const measured = z.strictObject({ generation: count, values });
/** With the evaluation split, where validations measure held-out examples. */
const best = measured.extend({ result: values.optional() });
const courseSchema = z.strictObject({
  /** The newest validation. */
  last: measured.nullable(),
  /** The best that early stopping has seen. */
  best: best.nullable(),
  stopping: z.strictObject({ best: z.number().nullable(), generation: count, wait: count }),
  stopped: z.string().max(1000).nullable(),
  plateau: z.strictObject({ best: z.number().nullable(), wait: count, cooldown: count, factor: z.number().min(0).max(1) }),
});
type Course = z.output<typeof courseSchema>;

const FIRST: Course = { last: null, best: null, stopping: NOTHING_WATCHED, stopped: null, plateau: FULL_RATE };

export interface ValidationRules {
  readonly everyRounds: number;
  readonly totalRounds: number;
  /** Validations measure other examples than the end of the run does. */
  readonly isHeldOut?: boolean;
  readonly stopping?: (StoppingRule & { readonly restoreBest: boolean }) | undefined;
  readonly plateau?: PlateauRule | undefined;
}

type CourseEvent = Verdict['events'][number];

/** @throws SyntaxError, ZodError when it was not written here */
const read = (course: string): Course => courseSchema.parse(JSON.parse(course));

/** What the rate of the optimizer is multiplied by beside its schedule. */
export const decidedRate = (course: string): number => read(course).plateau.factor;

/** The course of a run that is extended: early stopping begins anew, the learning rate stays as it is. */
export function extendedCourse(course: string): string {
  const { plateau } = read(course);
  return JSON.stringify({ ...FIRST, plateau: { ...FULL_RATE, factor: plateau.factor } } satisfies Course);
}

/** How validations of a run are judged. @param firstCourse of the checkpoint that the attempt begins with */
export function createValidationPlan(rules: ValidationRules, firstCourse = JSON.stringify(FIRST)): ValidationPlan {
  const { everyRounds, stopping } = rules;
  return {
    firstCourse,
    isDue: (generation) => generation > 0 && generation % everyRounds === 0,
    judge: (course, generation, values) => judge(rules, read(course), generation, values),
    withResult(course, result) {
      const { best: of, ...rest } = read(course);
      return JSON.stringify(Object.assign(rest, { best: of && Object.assign(of, { result: Object.assign({}, result) }) }) satisfies Course);
    },
    stopOf: (course) => read(course).stopped ?? undefined,
    bestOf: (course) => (stopping?.restoreBest ? read(course).best?.generation : undefined),
    lastOf: (course, generation) => lastOf(read(course), generation)?.values,
    endOf(course, generation) {
      const all = read(course);
      const last = lastOf(all, generation);
      if (!last) return undefined;
      const end = stopping?.restoreBest && all.best ? all.best : undefined;
      if (rules.isHeldOut) return end && { generation: end.generation, values: end.result };
      return end ?? last;
    },
  };
}

const lastOf = ({ last }: Course, generation: number): EndWeights | undefined => (last?.generation === generation ? last : undefined);

const valueOf = (metric: string, values: Measures): number | null => values[metric.replace(/^val_/, '')] ?? null;

function judge({ stopping, plateau, totalRounds }: ValidationRules, course: Course, generation: number, values: Measures): Verdict {
  const last = { generation, values: { ...values } };
  const events: CourseEvent[] = [];
  let next: Course = { ...course, last };
  if (stopping) {
    const { row, state } = watchForStop(stopping, course.stopping, generation, valueOf(stopping.metric, values));
    const isStopped = row === 'stops' && generation < totalRounds;
    next = {
      ...next,
      stopping: state,
      best: row === 'improved' ? last : course.best,
      stopped: isStopped ? stopReason(stopping, state, generation) : null,
    };
    if (next.stopped !== null) events.push(stoppedEvent(stopping, state, generation, next.stopped));
  }
  if (plateau && next.stopped === null) {
    const { row, state } = judgePlateau(plateau, course.plateau, valueOf(plateau.metric, values));
    next = { ...next, plateau: state };
    if (row === 'reduced') events.push(reducedEvent(plateau, state, course.plateau.factor, generation));
  }
  return { course: JSON.stringify(next), stop: next.stopped ?? undefined, events };
}

function stoppedEvent(
  { metric }: StoppingRule,
  { best, generation: bestRound, wait }: StoppingState,
  round: number,
  message: string,
): CourseEvent {
  return { type: 'training.stopped-early', message, data: { round, metric, best, bestRound, validations: wait } };
}

function reducedEvent({ metric, patience }: PlateauRule, { factor }: PlateauState, was: number, round: number): CourseEvent {
  const waited = Math.max(1, patience);
  const why = `${metric} has not improved in ${waited} validation${waited === 1 ? '' : 's'}`;
  const message = `the learning rate falls from ${shownNumber(was)} to ${shownNumber(factor)} of its schedule after round ${round}: ${why}`;
  return { type: 'rate.reduced', message, data: { round, metric, was, factor } };
}
