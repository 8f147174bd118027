import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { printSchema } from './show-dataset.js';
import { createTerminal } from './terminal/terminal.js';

it('data show says of how many series a split is, where it is of several', () => {
  const stdout = new PassThrough();
  const terminal = createTerminal({ json: false, debug: false }, {}, stdout as never, new PassThrough() as never);
  const split = { bytes: 1, shards: 1 };
  printSchema(terminal, {
    splits: [
      { ...split, name: 'train', rows: 9000, series: 3 },
      { ...split, name: 'test', rows: 1000, series: 1 },
    ],
    columns: [],
    label: null,
    untrainedClasses: [],
    droppedRows: 0,
    isOrdered: true,
  });
  expect(String(stdout.read())).toMatch(/^train 9000 in 3 series {2}test 1000 {2}in order\n/);
});
