/** The layer in which an error of a step was thrown: the innermost one that has streams of its own. */
const LAYERS = new WeakMap<object, string>();

export function noteFailedLayer(error: unknown, layer: string): void {
  if (typeof error === 'object' && error !== null && !LAYERS.has(error)) LAYERS.set(error, layer);
}

/** Undefined for an error that no layer threw. */
export const failedLayer = (error: unknown): string | undefined =>
  typeof error === 'object' && error !== null ? LAYERS.get(error) : undefined;
