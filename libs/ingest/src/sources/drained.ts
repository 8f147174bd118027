/** A stream that is full takes more, or is closed and never will: nothing stays on it that listens. */
import type { EventEmitter } from 'node:events';

export function drained(stream: EventEmitter & { readonly destroyed: boolean }): Promise<void> {
  return new Promise((resolve) => {
    if (stream.destroyed) return resolve();
    const done = (): void => {
      stream.off('drain', done).off('close', done);
      resolve();
    };
    stream.on('drain', done).on('close', done);
  });
}
