/** The memory of the engine is full: a run with this model and batch cannot go on here. */
export class EngineMemoryError extends Error {
  readonly code = 'ENGINE_MEMORY';
}
