import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import { acquireRegion, type Region } from '../attempt/regions.js';
import { Generations } from './generations.js';

const arena = Arena.create({ initialBytes: 1 << 16, maximumBytes: 1 << 16 });

function regionOf(value: number): Region {
  const region = acquireRegion(arena, 8);
  region.floats.fill(value);
  return region;
}

test('a chunk is encoded once for a generation, when somebody is to have it, and let go with the generation', () => {
  const encoded: string[] = [];
  const generations = new Generations([regionOf(1), regionOf(2)], 5, (generation, place, values) => {
    encoded.push(`${generation}/${place} of ${values.floats[0]}`);
    return { codec: 3, region: acquireRegion(arena, 2), bytes: 5 };
  });
  expect(generations.published(6, 0)).toBeUndefined();
  expect(encoded).toEqual([]);
  const first = generations.published(5, 0)!;
  expect([first.codec, first.bytes, generations.published(5, 0) === first]).toEqual([3, 5, true]);
  generations.setNext(0, regionOf(3));
  generations.setNext(1, regionOf(4));
  const next = generations.published(6, 0)!;
  const sending = next.region.retain();
  generations.takeOver();
  expect(generations.published(6, 0)).toBe(next);
  expect(generations.published(5, 0)).toBeUndefined();
  expect(encoded).toEqual(['5/0 of 1', '6/0 of 3']);
  // What the best generation is goes to who collects the weights, who has it as float32.
  generations.keepAsBest();
  generations.setNext(0, regionOf(5));
  generations.setNext(1, regionOf(6));
  generations.takeOver();
  expect([generations.find(6, 1)!.floats[0], generations.published(6, 1)]).toEqual([4, undefined]);
  generations.letGo();
  sending.release();
  expect(arena.bytesInUse).toBe(0);
});

test('without an encoder chunks are published as they are', () => {
  const generations = new Generations([regionOf(7)], 0);
  const { codec, region, bytes } = generations.published(0, 0)!;
  expect([codec, bytes, region.floats[0]]).toEqual([0, 32, 7]);
  generations.letGo();
  expect(arena.bytesInUse).toBe(0);
});
