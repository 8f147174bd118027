/** Which datasets a model is measured on. */
import { resolveFeatures } from '@paceline/data';
import type { DatasetManifest } from '@paceline/spec';
import { expect, it } from 'vitest';
import { planOn } from './evaluate-columns.js';

const statistics = { count: 9, missing: 0, mean: 0, deviation: 1, minimum: -1, maximum: 1 };
const manifestOf = (columns: DatasetManifest['columns'], isOrdered = true): DatasetManifest => ({
  format: 'paceline.dataset',
  version: 1,
  columns,
  splits: { train: { rows: 9, shards: [{ sha256: 'a'.repeat(64), rows: 9, bytes: 100 }] } },
  dropped: { missing: 0 },
  isOrdered,
});
const refusal = (work: () => unknown): unknown => {
  try {
    return work();
  } catch (error) {
    return { code: (error as { code?: string }).code, message: (error as Error).message };
  }
};

it('an array of another shape, and mixed rows under windows, are refused', () => {
  const array = (shape: number[]) =>
    manifestOf([
      { name: 'v', kind: 'array', dtype: 'F32', shape, statistics },
      { name: 'y', kind: 'number', statistics },
    ]);
  const plan = resolveFeatures(array([4]), { targets: { y: { kind: 'number', columns: ['y'], scale: 'none' } } });
  if (!plan.ok) throw new Error(JSON.stringify(plan.issues));
  expect(planOn(plan.plan, array([4]), 'other').examples).toEqual({ train: 9 });
  expect(refusal(() => planOn(plan.plan, array([8]), 'other'))).toEqual({
    code: 'MODEL_UNREADABLE',
    message: expect.stringContaining('"v" of kind array and shape [4], and in other it is of kind array and shape [8]') as string,
  });

  const series = (isOrdered: boolean) => manifestOf([{ name: 't', kind: 'number', statistics }], isOrdered);
  const windows = resolveFeatures(series(true), {
    inputs: { past: [{ kind: 'window', columns: ['t'], lookback: 3, step: 1, scale: 'none' }] },
    targets: { next: { kind: 'window', columns: ['t'], delay: 1, scale: 'none' } },
  });
  if (!windows.ok) throw new Error(JSON.stringify(windows.issues));
  expect(planOn(windows.plan, series(true), 'other').examples).toEqual({ train: 6 });
  expect(refusal(() => planOn(windows.plan, series(false), 'other'))).toMatchObject({ code: 'MODEL_UNREADABLE' });
});
