/** Names that people give: trimmed, bounded, without control characters, so that a terminal or a log shows them as they are. */
import { randomBytes } from 'node:crypto';
import { LIMITS, type SpecIssue } from '@paceline/spec';

/** A key that a client makes up: printable ASCII, so that two that differ are stored as two. */
export function keyIssues(path: string, key: string): SpecIssue[] {
  if (/^[\x21-\x7e]{1,200}$/.test(key)) return [];
  return [{ path, message: 'must have 1 to 200 printable ASCII characters without spaces, for example a UUID' }];
}

export const isUuid = (text: string): boolean => /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.test(text);

/** As PostgreSQL's rows have them: they sort by time. RFC 9562. */
export function uuidv7(now = Date.now()): string {
  const hex = Buffer.concat([Buffer.from(now.toString(16).padStart(12, '0'), 'hex'), randomBytes(10)]);
  hex[6] = (hex[6]! & 0x0f) | 0x70;
  hex[8] = (hex[8]! & 0x3f) | 0x80;
  return hex.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

export function readName(path: string, given: string): { name: string; issues: SpecIssue[] } {
  const name = given.trim();
  if (name.length < 1 || name.length > LIMITS.nameCharacters)
    return { name, issues: [{ path, message: `must have 1 to ${LIMITS.nameCharacters} characters` }] };
  if (/[\p{Cc}\p{Cf}\p{Cs}]/u.test(name)) return { name, issues: [{ path, message: 'must not contain control characters' }] };
  return { name, issues: [] };
}

/**
 * What PostgreSQL can store: it knows neither U+0000 nor halves of surrogate pairs. Reports come from other processes, and one
 * bad character must not stop the rest of a journal.
 */
export function storable<T>(value: T): T {
  if (typeof value === 'string') return Buffer.from(value.replaceAll('\0', '\uFFFD')).toString() as T; // halves become U+FFFD
  if (Array.isArray(value)) return value.map(storable) as T;
  if (value !== null && typeof value === 'object')
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [storable(key), storable(inner)])) as T;
  return value;
}
