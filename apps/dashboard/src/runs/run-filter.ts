/** What the list shows, as it stands in the address: `?status=active&name=cnn&after=CURSOR`. */
import type { RunStatus } from '../graphql/generated/operations.js';

export const FILTERS = {
  all: { label: 'All', statuses: undefined },
  active: { label: 'Active', statuses: ['PENDING', 'QUEUED', 'PROVISIONING', 'RUNNING', 'PAUSING', 'PAUSED', 'RECOVERING'] },
  succeeded: { label: 'Succeeded', statuses: ['SUCCEEDED'] },
  failed: { label: 'Failed', statuses: ['FAILED'] },
  cancelled: { label: 'Cancelled', statuses: ['CANCELLED'] },
} as const satisfies Record<string, { readonly label: string; readonly statuses: readonly RunStatus[] | undefined }>;

export type FilterName = keyof typeof FILTERS;
export const FILTER_NAMES = Object.keys(FILTERS) as readonly FilterName[];

export interface ListAddress {
  readonly filter: FilterName;
  readonly after: string | undefined;
  /** A part of the name of the runs; empty for all. */
  readonly name: string;
}

/** A run's name has no more characters (libs/spec). */
export const MOST_NAME = 100;

export function listAddress(search: string): ListAddress {
  const parameters = new URLSearchParams(search);
  const status = parameters.get('status') ?? 'all';
  return {
    filter: Object.hasOwn(FILTERS, status) ? (status as FilterName) : 'all',
    after: parameters.get('after')?.slice(0, 500) || undefined,
    name: parameters.get('name')?.slice(0, MOST_NAME) ?? '',
  };
}

export function listPath({ filter, after, name = '' }: { filter: FilterName; after?: string | undefined; name?: string }): string {
  const parameters = new URLSearchParams();
  if (filter !== 'all') parameters.set('status', filter);
  if (name !== '') parameters.set('name', name);
  if (after) parameters.set('after', after);
  const search = parameters.toString();
  return search ? `/?${search}` : '/';
}
