/** What a person asks an import for, checked before it waits: an address or uploads, and options whose values could be wrong anywhere. */
import { isStorable, type SpecIssue } from '@paceline/spec';
import { isUuid } from '../text-input.js';
import type { ImportOptions } from '@paceline/ingest';

export interface GivenImport {
  readonly name: string;
  readonly url?: string | null | undefined;
  readonly uploads?: readonly string[] | null | undefined;
  readonly options?: GivenOptions | null | undefined;
}

interface GivenOptions {
  readonly format?: string | null | undefined;
  readonly label?: string | null | undefined;
  readonly columns?: unknown;
  readonly split?: readonly number[] | null | undefined;
  readonly inOrder?: boolean | null | undefined;
  readonly seed?: number | null | undefined;
  readonly missing?: string | null | undefined;
  readonly oneSeries?: boolean | null | undefined;
  readonly decimal?: string | null | undefined;
  readonly delimiter?: string | null | undefined;
}

/** As it is stored until it is carried out. */
export interface ImportRequest {
  readonly sources: readonly string[];
  readonly uploads: readonly string[];
  readonly options: Omit<ImportOptions, 'sources' | 'policy' | 'access'>;
}

const MAX_URL_CHARACTERS = 2000;
const MAX_UPLOADS = 100;
const MAX_TEXT = 200;
const MAX_COLUMNS = 10_000;
const ODD = 'must not contain U+0000 or halves of characters';
const MISSING = ['refuse', 'drop', 'fill'] as const;
const DECIMAL_SIGNS = ['.', ','] as const;

export function readImportRequest({ url, uploads, options }: GivenImport): ImportRequest | { readonly issues: readonly SpecIssue[] } {
  const issues: SpecIssue[] = [];
  const refuse = (path: string, message: string): void => void issues.push({ path, message });
  const ids = [...new Set(uploads ?? [])];
  if ((url ? 1 : 0) + (ids.length > 0 ? 1 : 0) !== 1) refuse('url', 'either an address or uploads are needed');
  if (url && !isWebAddress(url)) refuse('url', 'must be an address that begins with https://, without a password');
  if (ids.length > MAX_UPLOADS) refuse('uploads', `must be at most ${MAX_UPLOADS}`);
  if (!ids.every(isUuid)) refuse('uploads', 'must be ids of uploads');
  const { format, label, columns, split, inOrder, seed, missing, oneSeries, decimal, delimiter } = options ?? {};
  if (format === 'module') refuse('options.format', 'a module runs on your machine only: paceline data import --module');
  for (const [path, text] of [['format', format] as const, ['label', label] as const])
    if (text && text.length > MAX_TEXT) refuse(`options.${path}`, `must have at most ${MAX_TEXT} characters`);
    else if (text && !isStorable(text)) refuse(`options.${path}`, ODD);
  const kinds = columns ?? {};
  if (typeof kinds !== 'object' || Array.isArray(kinds) || !Object.values(kinds).every((kind) => typeof kind === 'string'))
    refuse('options.columns', 'must be kinds by the name of the column: {"zip": "category"}');
  else if (!Object.entries(kinds).flat().every(isStorable)) refuse('options.columns', ODD);
  else if (Object.keys(kinds).length > MAX_COLUMNS) refuse('options.columns', `must be at most ${MAX_COLUMNS}`);
  if (split && !isSplit(split)) refuse('options.split', 'must be two or three shares from 0 that add up to 1: [0.8, 0.1, 0.1]');
  if (seed !== undefined && seed !== null && seed < 0) refuse('options.seed', 'must be at least 0');
  const policy = MISSING.find((name) => name === missing);
  if (missing && !policy) refuse('options.missing', `must be ${MISSING.join(', ')}`);
  const sign = DECIMAL_SIGNS.find((each) => each === decimal);
  if (decimal && !sign) refuse('options.decimal', 'must be . or ,');
  if (delimiter && (delimiter.length !== 1 || !isStorable(delimiter))) refuse('options.delimiter', 'must be one character');
  if (issues.length > 0) return { issues };
  const [train = 1, validation = 0, test = 0] = split ?? [];
  const read: ImportRequest['options'] = {
    // The importer knows its formats and types of columns, and says what there is.
    format: (format ?? undefined) as ImportOptions['format'],
    label: label ?? undefined,
    columns: kinds as ImportOptions['columns'],
    split: split ? (split.length === 2 ? { train, validation: 0, test: validation } : { train, validation, test }) : undefined,
    inOrder: inOrder ?? undefined,
    seed: seed ?? undefined,
    missing: policy,
    oneSeries: oneSeries ?? undefined,
    decimal: sign,
    delimiter: delimiter || undefined,
  };
  return { sources: url ? [url] : [], uploads: ids, options: read };
}

function isWebAddress(text: string): boolean {
  if (text.length > MAX_URL_CHARACTERS || !URL.canParse(text)) return false;
  const { protocol, username, password } = new URL(text);
  return protocol === 'https:' && username === '' && password === '';
}

const isSplit = (shares: readonly number[]): boolean =>
  (shares.length === 2 || shares.length === 3) &&
  shares.every((share) => share >= 0 && share <= 1) &&
  Math.abs(shares.reduce((sum, share) => sum + share, 0) - 1) < 1e-6;
