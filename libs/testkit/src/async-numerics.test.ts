/** What asynchronous updates compute, to the bit. */
import { expect, test } from 'vitest';
import { RATE, STATE, TRAINABLE, tinyStep } from './tiny-model.js';
import { expectComplete, sequentialWeights } from './async-checks.js';
import { AsyncCluster, type ItemClusterOptions } from './async-cluster.js';

const f32 = Math.fround;
const cluster = (options: Partial<ItemClusterOptions>): AsyncCluster =>
  new AsyncCluster({ mode: 'async', replicas: 4, servers: 2, rounds: 8, examples: 37, ...options });

test.each(['async', 'ssp'] as const)(
  'mode %s: one worker gives the bits of plain sequential SGD, on 1, 2 and 3 servers, with a ragged last round',
  async (mode) => {
    for (const servers of [1, 2, 3]) {
      const run = cluster({ mode, servers, lastExamples: 3, stalenessBound: 0 });
      run.join();
      await run.finished();
      expectComplete(run);
      expect(run.applied.every(({ staleness }) => staleness === 0)).toBe(true);
      expect(run.weights()).toEqual(sequentialWeights(run));
    }
  },
);

test.each([{ stalenessScaledRate: true }, { delayCompensation: 0.5 }, { stalenessScaledRate: true, delayCompensation: 0.04 }])(
  '%o: the bits of a written-out replay',
  async (options) => {
    const run = cluster({ ...options, servers: 1, rounds: 6 });
    for (let i = 0; i < 3; i++) run.join();
    await run.finished();
    expectComplete(run);
    // State number i has i updates; an update of staleness s was computed from the state that is s back.
    const states = [new Float32Array(TRAINABLE + STATE)];
    const lambda = f32(options.delayCompensation ?? 0);
    for (const { round, replica, staleness } of run.applied) {
      const now = states.at(-1)!;
      const fetched = states[states.length - 1 - staleness]!;
      const count = run.examplesOf(round, replica);
      const mean = f32(1 / count);
      const out = new Float32Array(now.length);
      tinyStep(fetched, round, replica, count, out);
      const rate = f32(RATE / (options.stalenessScaledRate ? 1 + staleness : 1));
      states.push(
        now.map((w, i) => {
          const g = f32(out[i]! * mean);
          if (i >= TRAINABLE) return f32(w + f32(g - fetched[i]!));
          const delayed = lambda === 0 ? g : f32(g + f32(f32(f32(lambda * g) * g) * f32(w - fetched[i]!)));
          return f32(w - f32(delayed * rate));
        }),
      );
    }
    expect(
      run.applied.some(({ staleness }) => staleness > 0),
      'nothing was stale: the test shows nothing',
    ).toBe(true);
    expect(run.applied.map(({ step }) => step)).toEqual(run.applied.map((_, i) => i + 1));
    expect(run.weights()).toEqual(states.at(-1));
  },
);
