/** The layer in which an error of a step was thrown: the innermost one that has streams of its own. On the way back it is the layer whose operation it was. */
const LAYERS = new WeakMap<object, string>();

export function noteFailedLayer(error: unknown, layer: string): void {
  if (typeof error === 'object' && error !== null && !LAYERS.has(error)) LAYERS.set(error, layer);
}

/** Undefined for an error that no layer threw. */
export const failedLayer = (error: unknown): string | undefined =>
  typeof error === 'object' && error !== null ? LAYERS.get(error) : undefined;

let present: string | undefined;

/** The layer that is called now. */
export const presentLayer = (): string | undefined => present;

/** Calls a layer, and notes it with what it throws. */
export function withinLayer<T>(layer: string, call: () => T): T {
  const outer = present;
  present = layer;
  try {
    return call();
  } catch (error) {
    noteFailedLayer(error, layer);
    throw error;
  } finally {
    present = outer;
  }
}
