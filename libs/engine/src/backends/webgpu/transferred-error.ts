/** An error on its way from one thread to another: structured clones lose names and codes. */
import { EngineMemoryError } from '../../errors/engine-memory-error.js';
import { EngineUnavailableError } from '../../errors/engine-unavailable.js';
import { ModelError } from '../../errors/model-error.js';
import type { TransferredError } from './thread-protocol.js';

export function toTransfer(thrown: unknown): TransferredError {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const { name, message, stack, code, path } = error as Error & { code?: unknown; path?: unknown };
  const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
  return { name, message, stack, code: text(code), path: text(path) };
}

/** The class where users ask for it, else an Error with the name; the stack is that of the thread where it was thrown. */
export function fromTransfer({ name, message, code, path, stack }: TransferredError): Error {
  const error = made(name, message, code, path);
  if (stack !== undefined) error.stack = stack;
  return error;
}

function made(name: string, message: string, code: string | undefined, path: string | undefined): Error {
  if (code === 'ENGINE_UNAVAILABLE') return new EngineUnavailableError(message);
  if (code === 'ENGINE_MEMORY') return new EngineMemoryError(message);
  if (path !== undefined) return new ModelError(path, message);
  if (name === 'RangeError') return new RangeError(message);
  const error = new Error(message);
  error.name = name;
  return error;
}
