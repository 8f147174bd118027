/** Places of a run's charts that are pointed out: the best validation, and where the rate was lowered. */
import type { ChartMark } from './draw-chart.js';
import type { RunCourse } from './use-course.js';

/** A rate that fell more often is a hatched wall; what the curve shows is enough then. */
const MOST_REDUCTIONS = 20;

export interface ChartMarks {
  /** The best round, in the chart of every metric, where early stopping or reduceLROnPlateau looks for one. */
  readonly best: readonly ChartMark[];
  /** Rounds in which the learning rate was lowered. */
  readonly reduced: readonly ChartMark[];
}

export function chartMarks(course: Pick<RunCourse, 'metric' | 'best' | 'reductions'> | undefined, spec: unknown): ChartMarks {
  if (!course) return { best: [], reduced: [] };
  const { earlyStopping, reduceLROnPlateau } = (spec ?? {}) as Readonly<Record<string, unknown>>;
  const { metric, best, reductions } = course;
  const isWatched = (earlyStopping ?? reduceLROnPlateau) !== undefined;
  return {
    best: isWatched ? [{ place: best.round, kind: 'best', label: 'best', text: `the best ${metric}` }] : [],
    reduced: reductions.length > MOST_REDUCTIONS ? [] : reductions.map(reduction),
  };
}

function reduction({ round, was, factor }: RunCourse['reductions'][number]): ChartMark {
  const times = Number((factor / was).toPrecision(2));
  return { place: round, kind: 'reduced', label: `× ${times}`, text: `the learning rate was lowered to ${times} of what it was` };
}
