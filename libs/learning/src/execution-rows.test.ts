import fc from 'fast-check';
import { roundGrid } from '@paceline/spec';
import { expect, test } from 'vitest';
import { executedBefore, executedExamples, stepExamples, stepRows, stepsIn } from './execution-rows.js';
import { replicaRows } from './sampler.js';

test('steps of several in a round have the rows that each would have as a round of its own', () => {
  const sizes = fc.record({
    examples: fc.integer({ min: 1, max: 400 }),
    globalBatch: fc.integer({ min: 1, max: 60 }),
    replicas: fc.integer({ min: 1, max: 7 }),
    steps: fc.integer({ min: 1, max: 9 }),
  });
  fc.assert(
    fc.property(sizes, ({ examples, globalBatch, replicas, steps }) => {
      const executed = roundGrid({ examples, globalBatch: globalBatch * steps, dropRemainder: false });
      const single = roundGrid({ examples, globalBatch, dropRemainder: false });
      let number = 0;
      for (let round = 0; round < executed.roundsIn(2); round++) {
        const { epoch, first, count } = executed.round(round);
        expect(executedBefore({ epoch, first }, examples, { globalBatch })).toBe(number);
        const of = Array.from({ length: replicas }, () => 0);
        for (let step = 0; step < stepsIn(count, { globalBatch }); step++, number++) {
          const alone = single.round(number);
          expect(stepExamples(count, step, { globalBatch })).toBe(alone.count);
          for (let replica = 0; replica < replicas; replica++) {
            const { from, to } = stepRows(count, replica, step, { globalBatch, replicas });
            const rows = replicaRows(alone.count, replicas, replica);
            expect([epoch, first + from, first + to]).toEqual([alone.epoch, alone.first + rows.from, alone.first + rows.to]);
            of[replica]! += to - from;
          }
        }
        expect(of).toEqual(of.map((_, replica) => executedExamples(count, replica, { globalBatch, replicas })));
      }
      expect(number).toBe(single.roundsIn(2));
    }),
    { numRuns: 60 },
  );
});
