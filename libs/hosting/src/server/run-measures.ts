/** What a run measures and how its validations are judged, as its coordinator is given it. */
import type { Measuring, ValidationPlan } from '@paceline/exchange';
import type { PlacementJob } from '@paceline/control-plane';
import { createMetricPlan, METRICS, type Schedule } from '@paceline/learning';
import { measuredName, validationRounds, watchedMetric, type RunSpec } from '@paceline/spec';
import type { Manifest } from '@paceline/storage';
import { createValidationPlan, extendedCourse } from './validation-course.js';

function betterOf(metric: string, mode: 'auto' | 'min' | 'max'): 'higher' | 'lower' {
  if (mode !== 'auto') return mode === 'min' ? 'lower' : 'higher';
  // That of an output has the name of the output in front: out_accuracy.
  const watched = watchedMetric(metric);
  const name = measuredName(watched) ?? measuredName(watched.slice(watched.lastIndexOf('_') + 1));
  return name === undefined ? 'lower' : METRICS[name].better;
}

/**
 * What validations have decided before the attempt: as its checkpoint says, where that is of this run. A run that is extended watches anew. Its length does
 * not tell: one that stopped early can be extended to the length that it had. Nor does a course that has stopped: the end may be what is left to do.
 */
export function firstCourseOf(
  { runId, succeededIn = 0 }: Pick<PlacementJob, 'runId' | 'succeededIn'>,
  schedule: Schedule,
  parent: Manifest | undefined,
): string | undefined {
  if (parent?.course === undefined || parent.runId !== runId) return undefined;
  const isExtended = parent.attempt <= succeededIn || parent.schedule.totalRounds !== schedule.totalRounds;
  return isExtended ? extendedCourse(parent.course) : parent.course;
}

/** @param isHeldOut whether validations measure examples that are held out of the training split */
export function validationPlanOf(
  spec: RunSpec,
  schedule: Schedule,
  firstCourse: string | undefined,
  isHeldOut = false,
): ValidationPlan | undefined {
  const everyRounds = validationRounds(spec, schedule.roundsPerEpoch);
  if (everyRounds === undefined) return undefined;
  const { earlyStopping: stopping, reduceLROnPlateau: plateau, optimizer } = spec;
  const rules = {
    everyRounds,
    totalRounds: schedule.totalRounds,
    isHeldOut,
    ...(stopping ? { stopping: { ...stopping, better: betterOf(stopping.metric, stopping.mode) } } : {}),
    ...(plateau
      ? {
          plateau: {
            ...plateau,
            better: betterOf(plateau.metric, plateau.mode),
            minFactor: plateau.minLearningRate / optimizer.learningRate,
          },
        }
      : {}),
  };
  return createValidationPlan(rules, firstCourse);
}

/** What the coordinator of an attempt measures, and when. @param parent the manifest of the checkpoint that the attempt begins with */
export function measuresOf(
  job: PlacementJob,
  schedule: Schedule,
  parent: Manifest | undefined,
): { readonly measured: Measuring; readonly heldOutExamples: number | undefined; readonly validation?: ValidationPlan } {
  const { heldOutExamples } = job.data;
  const measured = createMetricPlan(job.spec, job.data.format, job.model.outputs);
  const validation = validationPlanOf(job.spec, schedule, firstCourseOf(job, schedule, parent), heldOutExamples !== undefined);
  return Object.assign({ measured, heldOutExamples }, validation && { validation });
}
