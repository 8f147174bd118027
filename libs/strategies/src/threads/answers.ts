/** What compute threads answer, as results and errors of the main thread. */
import { ReplicaError, ThreadError, UnsupportedError } from '../errors.js';
import type { FromThread } from './protocol.js';

export function okOf(answer: FromThread | undefined): Extract<FromThread, { kind: 'ok' }> {
  if (!answer) throw new ThreadError('a compute thread did not answer');
  if (answer.kind === 'ok') return answer;
  if (answer.path !== undefined) throw new UnsupportedError(answer.path, answer.message);
  throw new ThreadError(answer.message);
}

/** The failure of the first replica that failed: the same in every run, unless several micro-batches of a model in stages fail. */
export function replicaError(failures: readonly FromThread[], step: number): Error {
  const [first] = failures.filter((answer) => answer.kind === 'failed').sort((a, b) => (a.replica ?? -1) - (b.replica ?? -1));
  if (!first) return new ThreadError('a replica failed and did not say why');
  return new ReplicaError(first.replica ?? -1, step, first.layer, first.message);
}
