/** How the targets of a run were scaled: what makes its errors numbers in the unit of the data. They never change, so they are asked for until they are known. */
import { useEffect, useState } from 'react';
import { TargetScales } from '../graphql/generated/course.js';
import { askUntilAnswered } from '../live/ask-until-answered.js';
import { useApi } from '../session/api-context.js';
import type { TargetScale } from './measures.js';

const NONE: readonly TargetScale[] = [];

/** @param hasErrors nothing is asked for a run that measures no errors */
export function useTargetScales(id: string, hasErrors: boolean): readonly TargetScale[] {
  const { ask, onFault } = useApi();
  const [scales, setScales] = useState(NONE);
  useEffect(() => {
    if (!hasErrors) return;
    const controller = new AbortController();
    // Meanwhile the errors are shown as they were measured.
    void askUntilAnswered(
      (signal) => ask(TargetScales, { id }, signal),
      ({ run }) => setScales(run?.targetScales ?? NONE),
      onFault,
      controller.signal,
    );
    return () => controller.abort();
  }, [ask, onFault, id, hasErrors]);
  return scales;
}
