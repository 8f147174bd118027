/** What the validations of a run have come to. Asked for again when there was another one, and when the run has changed its status or attempt. */
import { useEffect, useState } from 'react';
import { Course, type CourseResult } from '../graphql/generated/course.js';
import { askUntilAnswered } from '../live/ask-until-answered.js';
import { useApi } from '../session/api-context.js';
import type { RunDetails } from './run-details.js';
import { isValidated } from './run-state.js';

export type RunCourse = NonNullable<NonNullable<CourseResult['run']>['course']>;

export function useCourse({ id, attempt, status, spec, progress }: RunDetails): RunCourse | undefined {
  const { ask, onFault } = useApi();
  const [course, setCourse] = useState<RunCourse>();
  const { round } = (progress.validation ?? {}) as { readonly round?: unknown };
  const validates = isValidated(spec);
  useEffect(() => {
    if (!validates) return;
    const controller = new AbortController();
    // Meanwhile what is known stays, and the header tells of an api that is away.
    void askUntilAnswered(
      (signal) => ask(Course, { id }, signal),
      ({ run }) => setCourse(run?.course ?? undefined),
      onFault,
      controller.signal,
    );
    return () => controller.abort();
  }, [ask, onFault, id, attempt, status, round, validates]);
  return course;
}
