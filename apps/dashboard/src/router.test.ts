import { describe, expect, it } from 'vitest';
import { datasetPath, routeOf, runPath } from './router.js';

describe('routes', () => {
  it('finds the pages, and only them', () => {
    expect(routeOf('/')).toEqual({ page: 'runs' });
    expect(routeOf('/runs/')).toEqual({ page: 'runs' });
    expect(routeOf('/runs/0198-a')).toEqual({ page: 'run', id: '0198-a' });
    expect([routeOf('/datasets'), routeOf('/datasets/a.b')]).toEqual([{ page: 'datasets' }, { page: 'dataset', name: 'a.b' }]);
    expect(datasetPath('a.b', '0123')).toBe('/datasets/a.b?version=0123');
    expect([routeOf('/runs/a/b'), routeOf('/other'), routeOf('/runs/%E0%A4%A')]).toEqual(Array(3).fill({ page: 'unknown' }));
  });
  it('gives back any id that it was given', () => {
    for (const id of ['a', 'a/b', 'ä %', '..', '?x#y']) expect(routeOf(runPath(id))).toEqual({ page: 'run', id });
  });
});
