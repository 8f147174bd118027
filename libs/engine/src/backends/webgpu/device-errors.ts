/** Errors that a GPU device reports only on request: those of queued work, and that the device is lost. */
import { EngineMemoryError } from '../../errors/engine-memory-error.js';

/** Waits for work on the device. @throws EngineMemoryError, or an Error with the device's words, also when the device is lost */
export type Checked = <T>(work: () => Promise<T>) => Promise<T>;

type WatchedDevice = Pick<GPUDevice, 'lost' | 'pushErrorScope' | 'popErrorScope'>;

/** @param name of the device, for messages */
export function checkedOn(device: WatchedDevice, name: string): Checked {
  let lost: Error | undefined;
  // Not a race against `lost`: a promise that never settles keeps a reaction for each race that it was in.
  const present = new Set<(error: Error) => void>();
  void device.lost.then(({ message }) => {
    lost = new Error(`the GPU device ${name} is lost: ${message || 'no reason was given'}`);
    for (const reject of present) reject(lost);
  });
  return async <T>(work: () => Promise<T>): Promise<T> => {
    if (lost) throw lost;
    let rejectPresent: ((error: Error) => void) | undefined;
    try {
      return await new Promise<T>((resolve, reject) => {
        present.add((rejectPresent = reject));
        inErrorScopes(device, work).then(resolve, reject);
      });
    } finally {
      if (rejectPresent) present.delete(rejectPresent);
    }
  };
}

const SCOPES: readonly GPUErrorFilter[] = ['validation', 'out-of-memory', 'internal'];

async function inErrorScopes<T>(device: WatchedDevice, work: () => Promise<T>): Promise<T> {
  for (const scope of SCOPES) device.pushErrorScope(scope);
  const outcome = await work().then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  const told = await Promise.all(SCOPES.map(() => device.popErrorScope()));
  const error = told.find((each) => each !== null);
  if (error && error instanceof GPUOutOfMemoryError)
    throw new EngineMemoryError(
      `the memory of the GPU is full (${error.message.slice(0, 300)}): use a larger \`accumulate\`, a smaller batch or a smaller model`,
    );
  if (error) throw new Error(`the GPU refused a step: ${error.message.slice(0, 500)}`);
  if ('error' in outcome) throw outcome.error;
  return outcome.value;
}
