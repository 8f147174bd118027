/** Pipelines side by side: what each adds up by itself, and where it says that it lies. */
import { ReductionTree } from '@paceline/learning';
import { expect, it } from 'vitest';
import { boundaryRoom, flowBytes, lossesOfStages, nodesOf, roomOfPart, sumsBytes, sumsOf, vectorsOf } from './pipeline.js';

const sizeOf = (stages: number, pipelines: number, microBatches: number) => ({ stages, pipelines, microBatches });

it('the nodes of all pipelines are the whole tree, and their sums in order are its sum', () => {
  for (let pipelines = 1; pipelines <= 5; pipelines++)
    for (let microBatches = 1; microBatches <= 9; microBatches++) {
      const size = sizeOf(2, pipelines, microBatches);
      const whole = new ReductionTree<string[]>(pipelines * microBatches, {
        add: (into, from) => into.push(...from),
        release: () => undefined,
      });
      for (let p = 0; p < pipelines; p++) {
        const own = nodesOf(size, p);
        expect([own[0]!.lo, own.at(-1)!.hi]).toEqual([p * microBatches, (p + 1) * microBatches]);
        for (const node of own) whole.insert(node, [`${node.lo}-${node.hi}`]);
      }
      expect(whole.takeRoot().length).toBe(Array.from({ length: pipelines }, (_, p) => nodesOf(size, p).length).reduce((a, b) => a + b));
    }
});

it('a pipeline has as many vectors as it holds sums at a time, and one alone ⌊log₂ m⌋ + 1', () => {
  for (let m = 1; m <= 40; m++) expect(vectorsOf(sizeOf(2, 1, m))).toEqual([Math.floor(Math.log2(m)) + 1]);
  for (const m of [1, 2, 4, 8]) expect(vectorsOf(sizeOf(2, 4, m))).toEqual(Array(4).fill(Math.log2(m) + 1));
  expect(vectorsOf(sizeOf(2, 2, 3))).toEqual([2, 3]); // 3, 4 and 5 of six: 4 and 5 are siblings
});

it('no two threads write to the same pointers or counters', () => {
  const size = sizeOf(3, 2, 3);
  const sums = new SharedArrayBuffer(sumsBytes(size));
  const places = [0, 1].flatMap((pipeline) => [0, 1, 2].map((stage) => sumsOf(sums, size, stage, pipeline)));
  for (const [i, place] of places.entries()) place.fill(i + 1);
  expect([...new Int32Array(sums)]).toEqual(places.flatMap((_, i) => Array.from({ length: places[0]!.length }, () => i + 1)));
  expect(flowBytes(size)).toBe(2 * 2 * 2 * 4);
  expect(lossesOfStages(size)).toBe(3 * 6);
});

it('parts of a prediction alternate within the room of their pipeline', () => {
  const size = sizeOf(2, 3, 2);
  expect(boundaryRoom(size, 10, 100)).toBe(4);
  expect(boundaryRoom(size, 1000, 8)).toBe(16);
  expect([0, 1, 2, 3].map((part) => roomOfPart(part, 8))).toEqual([0, 8, 0, 8]);
});
