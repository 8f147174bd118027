import type { MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { Evaluation } from './evaluation.js';

test('a lone member is given a large evaluation split in messages that each fit, and every row once', () => {
  const EXAMPLES = 5_000_001;
  const sent: MessageOf<'evaluate'>[] = [];
  new Evaluation(7, EXAMPLES).offer([{ id: 'w0' }], (_, message) => void sent.push(message as MessageOf<'evaluate'>));
  expect(Math.max(...sent.map(({ blocks }) => blocks.length))).toBeLessThanOrEqual(4096);
  expect(sent.flatMap(({ blocks }) => blocks).reduce((sum, { from, to }) => sum + to - from, 0)).toBe(EXAMPLES);
});
