import { createHash } from 'node:crypto';
import { datasetManifestSchema, fieldLength } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { resolveFeatures } from '../features/resolve-features.js';
import { openPreparedRows } from '../prepared/prepared-rows.js';
import { BUILT_IN_TABLES, builtInTable } from './tables.js';

async function allRows(name: string) {
  const { manifest, source } = builtInTable(name);
  const result = resolveFeatures(manifest);
  if (!result.ok) throw new Error('no plan');
  const { rowFormat } = result.plan;
  const rows = openPreparedRows(manifest, result.plan, source);
  const { count } = rows.train;
  const inputs = rowFormat.inputs.map((field) => new Float32Array(count * fieldLength(field)));
  const targets = rowFormat.targets.map((field) => new Float32Array(count * fieldLength(field)));
  await rows.train.gather(
    Int32Array.from({ length: count }, (_, i) => i),
    0,
    count,
    { inputs, targets, weights: undefined },
  );
  return { format: rowFormat, inputs, targets };
}
const hashOf = (values: Float32Array): string => createHash('sha256').update(new Uint8Array(values.buffer)).digest('hex').slice(0, 12);

describe('built-in tables', () => {
  it.each(BUILT_IN_TABLES)('%s has a manifest as the schema wants it', (name) => {
    const { manifest, info } = builtInTable(name);
    expect(datasetManifestSchema.parse(manifest)).toEqual(manifest);
    expect(info).toMatchObject({ trainExamples: manifest.splits.train.rows, evalExamples: manifest.splits.test!.rows });
  });

  it('iris: 120 and 30 flowers, four measures, the means that are known', async () => {
    const { info, manifest } = builtInTable('iris');
    expect(info).toMatchObject({ trainExamples: 120, evalExamples: 30 });
    expect(info.format).toEqual({
      inputs: [{ name: 'x', shape: [4] }],
      targets: [{ name: 'y', kind: 'classes', shape: [], classes: 3 }],
      isWeighted: false,
    });
    expect(manifest.columns[4]).toMatchObject({ vocabulary: ['setosa', 'versicolor', 'virginica'], statistics: { counts: [40, 40, 40] } });
    const { inputs } = await allRows('iris');
    const sum = inputs[0]!.reduce((all, value) => all + value, 0);
    expect(Math.abs(sum)).toBeLessThan(1e-3);
  });

  it('what is made up has the same bits everywhere', async () => {
    const regression = await allRows('made-up-regression');
    const sequence = await allRows('made-up-sequence');
    expect(sequence.format.inputs).toEqual([{ name: 'x', shape: [20, 1] }]);
    expect([regression.targets[0]!, sequence.inputs[0]!].map(hashOf)).toEqual(['e6fd02664961', '8db8f62c1062']);
  });

  it('an unknown name is told with what was meant', () => {
    expect(() => builtInTable('irsi')).toThrow('did you mean iris?');
  });
});

it('the iris data are those of the paper', async () => {
  const { IRIS_ROWS } = await import('./iris-rows.js');
  const mean = (i: number) => IRIS_ROWS.reduce((sum, { measures }) => sum + measures[i]!, 0) / 150;
  // Means that every statistics package shows for these data.
  expect([0, 1, 2, 3].map((i) => Number(mean(i).toFixed(4)))).toEqual([5.8433, 3.0573, 3.758, 1.1993]);
});
