import { Arena } from '@paceline/kernels';
import { expect, test } from 'vitest';
import { acquireRegion, regionSum, type Region } from './regions.js';

const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 65_536 });

function regionOf(values: readonly number[]): Region {
  const region = acquireRegion(arena, values.length);
  region.floats.set(values);
  return region;
}

test('a region that has come is finite or not, as its elements are', () => {
  expect(regionOf([1, -3e38, 0]).isFinite).toBe(true);
  expect(regionOf([1, Infinity, 0]).isFinite).toBe(false);
  expect(regionOf([NaN, 2, 0]).isFinite).toBe(false);
});

test('a sum is as its last addition left it: of finite parts it may be too large', () => {
  const sum = regionOf([1, 2e38, 3]);
  regionSum.add(sum, regionOf([1, 1e38, 3]));
  expect([sum.isFinite, ...sum.floats]).toEqual([true, 2, Math.fround(3e38), 6]);
  regionSum.add(sum, regionOf([1, 1e38, 3]));
  expect([sum.isFinite, ...sum.floats]).toEqual([false, 3, Infinity, 9]);
  const late = regionOf([1, Infinity]);
  regionSum.add(late, regionOf([1, -Infinity]));
  expect(late.isFinite).toBe(false);
});

test('the first bytes of a region are one view for all sends, so that their checksum is taken once', () => {
  const region = regionOf([1, 2, 3, 4]);
  expect(region.first(16)).toBe(region.bytes);
  expect(region.first(5)).toBe(region.first(5));
  expect([...region.first(5)]).toEqual([...region.bytes.slice(0, 5)]);
  expect(region.first(7)).toHaveLength(7);
});
