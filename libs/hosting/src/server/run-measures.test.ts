import { createSchedule } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import type { Manifest } from '@paceline/storage';
import { expect, test } from 'vitest';
import { firstCourseOf, validationPlanOf } from './run-measures.js';

const parsed = parseRunSpec({
  length: { rounds: 400 },
  validation: { everyRounds: 5 },
  earlyStopping: { patience: 3, restoreBest: true },
});
if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
const { spec } = parsed;
const scheduleOf = (rounds: number) => createSchedule({ examples: 120, globalBatch: 30, dropRemainder: false, length: { rounds } });
const first = scheduleOf(400);
const RUN = 'a-run';

/** What a run of 400 rounds has stopped with at round 25. */
function stoppedCourse(): string {
  const plan = validationPlanOf(spec, first, undefined)!;
  let course = plan.firstCourse;
  for (const [i, loss] of [0.3, 0.2, 0.25, 0.26, 0.27].entries()) course = plan.judge(course, (i + 1) * 5, { loss }).course;
  expect(plan.stopOf(course)).toContain('stopped early at round 25');
  return course;
}

const parentOf = (attempt: number, course: string): Manifest =>
  ({ runId: RUN, attempt, round: 25, course, schedule: { totalRounds: 400, roundsPerEpoch: 4 } }) as Manifest;

/** What the attempt begins with that restores this parent. */
function stopOf(parent: Manifest, succeededIn?: number): string | undefined {
  const course = firstCourseOf({ runId: RUN, succeededIn }, first, parent);
  return validationPlanOf(spec, first, course)!.stopOf(course!);
}

test('a run that stopped early and is extended to its first length watches anew', () => {
  const course = stoppedCourse();
  expect(stopOf(parentOf(1, course), 1)).toBeUndefined();
  expect(firstCourseOf({ runId: RUN, succeededIn: 1 }, scheduleOf(401), parentOf(1, course))).toBe(
    firstCourseOf({ runId: RUN, succeededIn: 1 }, first, parentOf(1, course)),
  );
});

test('a checkpoint between the stop and the end ends the run, that of an extension too', () => {
  const course = stoppedCourse();
  // A job or a run of before says of no attempt that it succeeded.
  expect(stopOf(parentOf(1, course))).toContain('stopped early at round 25');
  expect(stopOf(parentOf(3, course), 2)).toContain('stopped early at round 25');
});

test('the course of another run counts for nothing', () => {
  expect(firstCourseOf({ runId: 'another-run' }, first, parentOf(1, stoppedCourse()))).toBeUndefined();
});
