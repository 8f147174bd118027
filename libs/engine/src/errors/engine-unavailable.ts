/** The engine that a run wants cannot be started in this process. The message says what to do; the worker goes on with other runs. */
export class EngineUnavailableError extends Error {
  override readonly name = 'EngineUnavailableError';
  readonly code = 'ENGINE_UNAVAILABLE';
}
