import type { DatasetManifest } from '@paceline/spec';
import { expect, it } from 'vitest';
import { schemaOf } from './dataset-schema.js';

const manifestOf = (isOrdered: boolean): DatasetManifest =>
  ({
    columns: [],
    dropped: { missing: 0 },
    isOrdered,
    splits: {
      train: { rows: 90, shards: [{ sha256: 'a'.repeat(64), rows: 90, bytes: 1000 }], starts: [30, 60] },
      test: { rows: 10, shards: [{ sha256: 'b'.repeat(64), rows: 10, bytes: 100 }] },
      validation: { rows: 0, shards: [] },
    },
  }) as unknown as DatasetManifest;

it('a split in order says of how many series it is, and others have none', () => {
  const series = (isOrdered: boolean) =>
    Object.fromEntries(schemaOf(manifestOf(isOrdered), 10, 0).splits.map((split) => [split.name, split.series]));
  expect(series(true)).toEqual({ train: 3, validation: 0, test: 1 });
  expect(series(false)).toEqual({ train: null, validation: null, test: null });
});
