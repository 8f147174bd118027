import type { RunData, RunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { openBuiltIn } from './dataset.js';
import { openRunRows } from './run-rows.js';

test('rows that differ from what the api has resolved are refused', async () => {
  const spec = { dataset: 'iris' } as unknown as RunSpec;
  const { format, train } = await openBuiltIn({ dataset: 'iris', features: undefined });
  const data: RunData = {
    source: { kind: 'built-in', name: 'iris' },
    format,
    trainExamples: train.count,
    evalExamples: 0,
    evaluateOn: 'test',
  };
  const open = (change: Partial<RunData>) => openRunRows(Object.assign({}, data, change), spec, {});
  await expect(open({})).resolves.toMatchObject({ format });
  await expect(open({ trainExamples: train.count + 1 })).rejects.toThrow(/iris: .*do not agree on its examples/);
  await expect(open({ format: Object.assign({}, format, { isWeighted: !format.isWeighted }) })).rejects.toThrow(/the fields of its rows/);
});
