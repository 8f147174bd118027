/** How the targets of a run were scaled: what makes its errors numbers in the unit of the data. They never change, so they are asked for once. */
import { useEffect, useState } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { TargetScales } from '../graphql/generated/course.js';
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
    ask(TargetScales, { id }, controller.signal)
      .then(({ run }) => setScales(run?.targetScales ?? NONE))
      // The errors are shown as they were measured.
      .catch((error: unknown) => void (controller.signal.aborted || onFault(asFault(error))));
    return () => controller.abort();
  }, [ask, onFault, id, hasErrors]);
  return scales;
}
