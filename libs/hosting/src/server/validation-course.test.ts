import { expect, test } from 'vitest';
import { createValidationPlan, decidedRate, extendedCourse, type ValidationRules } from './validation-course.js';

const WATCHED = { metric: 'val_loss', better: 'lower', minDelta: 0, patience: 2 } as const;
const RULES: ValidationRules = {
  everyRounds: 5,
  totalRounds: 100,
  stopping: { ...WATCHED, startFromRound: 0, restoreBest: true },
  plateau: { ...WATCHED, patience: 1, factor: 0.5, cooldown: 0, minFactor: 0 },
};

/** The courses of a run whose validations measure these losses. */
function coursesOf(rules: ValidationRules, losses: readonly number[]): string[] {
  const plan = createValidationPlan(rules);
  const courses = [plan.firstCourse];
  for (const [i, loss] of losses.entries()) courses.push(plan.judge(courses.at(-1)!, (i + 1) * 5, { loss, accuracy: 1 - loss }).course);
  return courses;
}

test('a course that was written and read again decides what it would have decided without', () => {
  const losses = [0.5, 0.4, 0.45, 0.3, 0.35, 0.36];
  const whole = coursesOf(RULES, losses);
  for (let kill = 1; kill < losses.length; kill++) {
    const plan = createValidationPlan(RULES, whole[kill]);
    let course = plan.firstCourse;
    for (const [i, loss] of losses.entries()) if (i >= kill) course = plan.judge(course, (i + 1) * 5, { loss, accuracy: 1 - loss }).course;
    expect(course).toBe(whole.at(-1));
  }
  const plan = createValidationPlan(RULES);
  expect(plan.stopOf(whole.at(-2)!)).toBeUndefined();
  expect(plan.stopOf(whole.at(-1)!)).toBe('stopped early at round 30: val_loss has not improved in 2 validations (best 0.3 at round 20)');
  expect(whole.map(decidedRate)).toEqual([1, 1, 1, 0.5, 0.5, 0.25, 0.25]);
});

test('with restoreBest a run ends with the best weights and their values, without with the last', () => {
  const course = coursesOf(RULES, [0.5, 0.3, 0.4, 0.6]).at(-1)!;
  expect(createValidationPlan(RULES).endOf(course, 20)).toEqual({ generation: 10, values: { loss: 0.3, accuracy: 0.7 } });
  const last = { ...RULES, stopping: { ...RULES.stopping!, restoreBest: false } };
  expect(createValidationPlan(last).endOf(course, 20)).toMatchObject({ generation: 20 });
  expect([20, 22].map((generation) => createValidationPlan(RULES).lastOf(course, generation)?.['loss'])).toEqual([0.6, undefined]);
  // A generation that was not measured last is evaluated.
  expect(createValidationPlan(RULES).endOf(course, 22)).toBeUndefined();
});

test('a run that is extended begins to watch anew, at the rate where it was', () => {
  const course = coursesOf(RULES, [0.5, 0.6, 0.7]).at(-1)!;
  const plan = createValidationPlan(RULES, extendedCourse(course));
  expect(plan.stopOf(course)).toBeDefined();
  expect(plan.stopOf(plan.firstCourse)).toBeUndefined();
  expect(decidedRate(plan.firstCourse)).toBe(0.5);
  expect(plan.bestOf(plan.judge(plan.firstCourse, 20, { loss: 0.9 }).course)).toBe(20);
});

test('nothing stops with the last round: the run is at its end', () => {
  const plan = createValidationPlan({ ...RULES, totalRounds: 15 });
  const course = coursesOf({ ...RULES, totalRounds: 15 }, [0.5, 0.6, 0.7]).at(-1)!;
  expect(plan.stopOf(course)).toBeUndefined();
  expect(plan.endOf(course, 15)).toMatchObject({ generation: 5 });
});
