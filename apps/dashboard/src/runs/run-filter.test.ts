import { describe, expect, it } from 'vitest';
import { FILTERS, FILTER_NAMES, listAddress, listPath } from './run-filter.js';

describe('the filter in the address', () => {
  it('is read as it was written', () => {
    for (const filter of FILTER_NAMES) {
      for (const after of [undefined, 'a+b/c=&?']) {
        expect(listAddress(listPath({ filter, after }).slice(1))).toEqual({ filter, after });
      }
    }
    expect(listPath({ filter: 'all' })).toBe('/');
  });
  it('shows all runs where the address makes no sense', () => {
    expect(listAddress('?status=toString&after=')).toEqual({ filter: 'all', after: undefined });
  });
  it('puts every status under one filter', () => {
    const statuses = FILTER_NAMES.flatMap((name) => [...(FILTERS[name].statuses ?? [])]);
    expect(statuses.length).toBe(new Set(statuses).size);
    expect(statuses.length).toBe(10);
  });
});
