/** The resolver that a program gives to a strategy or a server. */
import type { ClusterResolver } from '@paceline/collectives';
import { ArgumentError } from './errors.js';

/**
 * @param what begins the sentence: `cluster takes`
 * @throws ArgumentError for something else, and for the promise of one, which nobody has awaited
 */
export function resolverOf(name: string, what: string, given: unknown): ClusterResolver {
  const { resolve, then } = (given ?? {}) as { readonly resolve?: unknown; readonly then?: unknown };
  if (typeof then === 'function') {
    (given as PromiseLike<unknown>).then(undefined, () => undefined); // what it fails with has no other reader, and would end the process
    throw new ArgumentError(
      `${name}: ${what} a resolver, and this is the promise of one: await it first, as in await DnsClusterResolver.lookUp({ … })`,
    );
  }
  if (typeof resolve === 'function') return given as ClusterResolver;
  throw new ArgumentError(
    `${name}: ${what} a resolver, such as new TfConfigResolver() or new GivenResolver({ worker: ['10.0.0.1:4600'] }, { type: 'worker', index: 0 })`,
  );
}
