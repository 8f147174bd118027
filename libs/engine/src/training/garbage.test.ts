import { expect, it } from 'vitest';
import { Housekeeping } from './garbage.js';

const MIB = 2 ** 20;

it('collects when the heap has grown by 64 MiB since it was smallest, and not by the number of steps', () => {
  let bytes = 30 * MIB;
  let collections = 0;
  const housekeeping = new Housekeeping(
    () => bytes,
    () => void ([bytes, collections] = [24 * MIB, collections + 1]),
  );
  const steps = (count: number, bytesEach = 0): void => {
    for (let i = 0; i < count; i++) {
      bytes += bytesEach;
      housekeeping.afterStep();
    }
  };
  steps(100_000);
  expect(collections).toBe(0);
  bytes = 20 * MIB; // V8 has collected by itself
  steps(10_000, 6000);
  expect(collections, '57 MiB').toBe(0);
  steps(1_500, 6000);
  expect(collections).toBe(1);
  steps(11_000, 6000);
  expect(collections, 'it begins anew with what the collection has left').toBe(1);
  steps(750, 6000);
  expect(collections).toBe(2);
});
