/**
 * Keyset pages (Relay connections). A cursor is opaque to clients: base64url of a kind and the key of a row. A cursor of another
 * list, or one that nobody gave out, is refused instead of read as "from the start".
 */
import { Fault } from '../fault.js';
import type { PageInfo } from './node.type.js';

export const MAX_PAGE = 100;

export interface PageArgs {
  readonly first?: number | null | undefined;
  readonly after?: string | null | undefined;
  readonly last?: number | null | undefined;
  readonly before?: string | null | undefined;
}

export interface Page {
  readonly size: number;
  /** True when the page counts from the end (`last`/`before`). */
  readonly backward: boolean;
  readonly after?: readonly string[];
  readonly before?: readonly string[];
}

/** What each part of a cursor's key must be. Whoever forges one gets no further than a row of this list could. */
export type CursorParts = readonly ((part: string) => boolean)[];

/** A whole number from 0 to `most`: what the column it is compared with can hold. */
export const wholeNumberUpTo =
  (most: number) =>
  (part: string): boolean =>
    /^\d{1,15}$/.test(part) && Number(part) <= most;

export function encodeCursor(kind: string, ...key: readonly (string | number)[]): string {
  return Buffer.from(JSON.stringify([kind, ...key])).toString('base64url');
}

/** @throws Fault INVALID_INPUT */
export function decodeCursor(kind: string, cursor: string, parts: CursorParts): string[] {
  if (cursor.length <= 300) {
    try {
      const value: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
      if (Array.isArray(value) && value.length === parts.length + 1 && value[0] === kind) {
        const key = value.slice(1).map(String);
        if (key.every((part, i) => parts[i]!(part))) return key;
      }
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
  }
  throw new Fault('INVALID_INPUT', `The cursor ${JSON.stringify(cursor.slice(0, 40))} does not belong to this list.`);
}

/** @throws Fault INVALID_INPUT */
export function readPage(kind: string, parts: CursorParts, args: PageArgs, defaultSize: number): Page {
  const backward = args.last !== null && args.last !== undefined;
  if (!backward && args.before) throw new Fault('INVALID_INPUT', '`before` goes with `last`.');
  if (backward && args.after) throw new Fault('INVALID_INPUT', '`after` goes with `first`; ask for one direction at a time.');
  const size = backward ? args.last! : (args.first ?? defaultSize);
  if (!Number.isInteger(size) || size < 0 || size > MAX_PAGE) {
    throw new Fault('INVALID_INPUT', `${backward ? '`last`' : '`first`'} must be from 0 to ${MAX_PAGE}, not ${size}.`);
  }
  return {
    size,
    backward,
    ...(args.after ? { after: decodeCursor(kind, args.after, parts) } : {}),
    ...(args.before ? { before: decodeCursor(kind, args.before, parts) } : {}),
  };
}

/** @param rows up to size + 1 rows in the direction of the page: the extra one tells whether more follow */
export function toConnection<Row, Out>(page: Page, rows: readonly Row[], cursorOf: (row: Row) => string, toNode: (row: Row) => Out) {
  const hasMore = rows.length > page.size;
  const kept = rows.slice(0, page.size);
  if (page.backward) kept.reverse();
  const edges = kept.map((row) => ({ cursor: cursorOf(row), node: toNode(row) }));
  const pageInfo: PageInfo = {
    hasNextPage: page.backward ? page.before !== undefined : hasMore,
    hasPreviousPage: page.backward ? hasMore : page.after !== undefined,
    startCursor: edges[0]?.cursor ?? null,
    endCursor: edges.at(-1)?.cursor ?? null,
  };
  return { edges, pageInfo };
}
