import { expect, it } from 'vitest';
import type { FromCompute } from './compute-protocol.js';
import { evaluateBlocks, type EvaluationOptions } from './evaluate-blocks.js';

const BLOCKS = [
  { from: 0, to: 3 },
  { from: 3, to: 4 },
];

function evaluated(isLoaded: boolean) {
  const sent: FromCompute[] = [];
  let parts = 0;
  const loader = {
    evaluationExamples: 2,
    takeEvaluation: (from: number, to: number) =>
      ({ count: to - from }) as unknown as ReturnType<EvaluationOptions['loader']['takeEvaluation']>,
    prefetchEvaluation: () => undefined,
    releaseEvaluation: () => undefined,
  };
  const engine: EvaluationOptions['engine'] = {
    metricNames: ['loss'],
    evaluate: ({ count }) => (parts++, { count, metricSums: [10 * count] }),
  };
  const load = (): boolean => isLoaded;
  evaluateBlocks(5, BLOCKS, { engine, loader, load, send: (told) => sent.push(told), progress: () => undefined, isStopping: () => false });
  return { sent, parts };
}

it('measures blocks in parts, and tells each of them once', () => {
  expect(evaluated(true)).toEqual({
    sent: [
      { kind: 'evaluated', generation: 5, from: 0, to: 3, examples: 3, sums: [30] },
      { kind: 'evaluated', generation: 5, from: 3, to: 4, examples: 1, sums: [10] },
    ],
    parts: 3,
  });
});

it('computes nothing from parameters of another generation, and says that no block is under way', () => {
  const sent = BLOCKS.map((block) => ({ kind: 'evaluated', generation: 5, ...block, examples: 0, sums: [0] }));
  expect(evaluated(false)).toEqual({ sent, parts: 0 });
});
