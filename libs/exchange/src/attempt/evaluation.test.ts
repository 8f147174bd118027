import type { MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { Evaluation } from './evaluation.js';

test('a lone member is given a large evaluation split in messages that each fit, and every row once', () => {
  const EXAMPLES = 5_000_001;
  const sent: MessageOf<'evaluate'>[] = [];
  new Evaluation(7, { from: 0, to: EXAMPLES }).offer([{ id: 'w0' }], (_, message) => void sent.push(message as MessageOf<'evaluate'>));
  expect(Math.max(...sent.map(({ blocks }) => blocks.length))).toBeLessThanOrEqual(4096);
  expect(sent.flatMap(({ blocks }) => blocks).reduce((sum, { from, to }) => sum + to - from, 0)).toBe(EXAMPLES);
});

test('blocks add up in their order, each once, whoever answers first and whatever comes after that', () => {
  const block = (from: number, loss: number): MessageOf<'evaluated'> => {
    const to = Math.min(from + 500, 1_700);
    return { type: 'evaluated', generation: 7, from, to, examples: to - from, sums: [loss, 1] };
  };
  // In another order 1 would be lost beside 2 ** 53.
  const blocks = [block(0, 2 ** 53), block(500, -(2 ** 53)), block(1000, 1), block(1500, 0.1)];
  const measured = (order: readonly number[]) => {
    const evaluation = new Evaluation(7, { from: 0, to: 1_700 });
    return order.map((i, at) => evaluation.done(order.indexOf(i) < at ? { ...blocks[i]!, sums: [99, 1] } : blocks[i]!));
  };
  const expected = { loss: 1.1 / 1_700, accuracy: 4 / 1_700 };
  expect(measured([0, 1, 2, 3]).at(-1)).toEqual(expected);
  expect(measured([2, 2, 0, 3, 0, 1])).toEqual([undefined, undefined, undefined, undefined, undefined, expected]);
});
