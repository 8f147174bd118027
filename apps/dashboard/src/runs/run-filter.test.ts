import { describe, expect, it } from 'vitest';
import { FILTERS, FILTER_NAMES, listAddress, listPath } from './run-filter.js';

describe('the filter in the address', () => {
  it('is read as it was written', () => {
    for (const filter of FILTER_NAMES) {
      for (const after of [undefined, 'a+b/c=&?']) {
        for (const name of ['', 'first & 2nd %'])
          expect(listAddress(listPath({ filter, after, name }).slice(1))).toEqual({ filter, after, name });
      }
    }
    expect(listPath({ filter: 'all' })).toBe('/');
    expect(listPath({ filter: 'failed', name: 'cnn' })).toBe('/?status=failed&name=cnn');
  });
  it('shows all runs where the address makes no sense', () => {
    expect(listAddress('?status=toString&after=')).toEqual({ filter: 'all', after: undefined, name: '' });
  });
  it('puts every status under one filter', () => {
    const statuses = FILTER_NAMES.flatMap((name) => [...(FILTERS[name].statuses ?? [])]);
    expect(statuses.length).toBe(new Set(statuses).size);
    expect(statuses.length).toBe(10);
  });
});
