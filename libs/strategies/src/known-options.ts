/** Options of people, who may write no TypeScript. */
import { ArgumentError } from './errors.js';

/** @throws ArgumentError for what is no object, and for a key that nobody would read */
export function checkKeys(name: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw new ArgumentError(`${name} takes an object with ${known.join(', ')}`);
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown !== undefined) throw new ArgumentError(`${name} has no option "${unknown}": it takes ${known.join(', ')}`);
}

const TRANSPORTS: readonly unknown[] = ['auto', 'tcp', 'unix'];

/** @throws ArgumentError */
export function checkTransport(name: string, transport: unknown): void {
  if (!TRANSPORTS.includes(transport)) throw new ArgumentError(`${name}: transport must be auto, tcp or unix, not ${String(transport)}`);
}

/** @returns undefined where none is given @throws ArgumentError */
export function listenHostOf(name: string, listenHost: unknown): string | undefined {
  if (listenHost === undefined || (typeof listenHost === 'string' && listenHost !== '')) return listenHost;
  throw new ArgumentError(`${name}: listenHost must be an address or a name of this machine, such as "0.0.0.0", not ${String(listenHost)}`);
}
