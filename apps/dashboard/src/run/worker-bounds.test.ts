import { LIMITS } from '@paceline/spec';
import { expect, it } from 'vitest';
import { workerBounds } from './worker-bounds.js';

const sharded = (standby: number) => ({ strategy: { kind: 'multi-worker-mirrored', workers: 4, standby } });

it('workers of a run are as few and as many as the api takes', () => {
  expect(workerBounds({ strategy: { kind: 'parameter-server', servers: 2, standby: 1 } }, 200)).toEqual({ least: 1, most: 200 });
  expect(workerBounds(sharded(0), 8)).toEqual({ least: 1, most: 8 });
  expect(workerBounds(sharded(1), 200)).toEqual({ least: 2, most: LIMITS.servers });
  expect([workerBounds(sharded(1), 2), workerBounds({ strategy: { kind: 'mirrored' } }, 8)], 'nothing to choose').toEqual([
    undefined,
    undefined,
  ]);
});
