/**
 * One text for one value: JSON with the names of objects in the order of their UTF-16 code units and without white space, after
 * RFC 8785. Hashes are taken over it, so two writers of the same value get the same hash.
 */
import { createHash } from 'node:crypto';
import { comparableConfig, type RunSpec } from '@paceline/spec';

/** @throws TypeError for what JSON cannot say: NaN, infinities, functions */
export function canonicalJson(value: unknown): string {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError(`${value} is no JSON number`);
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object') throw new TypeError(`a ${typeof value} is no JSON value`);
  const entries = Object.entries(value).filter(([, member]) => member !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(',')}}`;
}

export const sha256Of = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Equal for two specs exactly when a checkpoint of one may be continued under the other. */
export const configHash = (spec: RunSpec): string => sha256Of(canonicalJson(comparableConfig(spec)));
