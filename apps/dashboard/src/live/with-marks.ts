/**
 * What a list of runs shows, asked for in two steps: first a few marks of each run, then, only when one of them is not what it was, everything. A list
 * that nothing happens to costs a tenth of itself, and is the same object, so nothing is drawn again.
 */
export function withMarks<T>(
  marks: (signal: AbortSignal) => Promise<unknown>,
  load: (signal: AbortSignal) => Promise<T>,
): (signal: AbortSignal) => Promise<T> {
  let held: { readonly marks: string; readonly data: T } | undefined;
  return async (signal) => {
    // The marks come first: what changes while the list is on its way shows in the next marks.
    const seen = JSON.stringify(await marks(signal));
    if (held?.marks === seen) return held.data;
    const data = await load(signal);
    held = { marks: seen, data };
    return data;
  };
}
