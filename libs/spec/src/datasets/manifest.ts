/**
 * The manifest of a prepared dataset: its columns, splits, statistics and shards. A shard is a safetensors file that holds some rows of one
 * split, column by column, so the bytes of any row are found by arithmetic (docs/decisions/024-prepared-datasets.md).
 *
 * Tensors of a column named N, for a shard of n rows:
 *
 *   number     N [n] F32, NaN where the value is missing
 *   category   N [n] I32, index into the vocabulary, -1 where the value is missing
 *   array      N [n, ...shape] F32, I32 or U8
 *   sequence   N [all elements, ...shape] F32 or I32, and `N:offsets` [n + 1] I64
 *   text       N [bytes] U8 (UTF-8), and `N:offsets` [n + 1] I64
 *   image      N [bytes] U8 (the encoded PNG, JPEG or WebP file), and `N:offsets` [n + 1] I64
 *
 * The manifest comes from a person's machine and is not trusted; its hash names the version of the dataset.
 */
import { z } from 'zod';

export const DATASET_LIMITS = {
  columns: 100_000,
  /** Words of all category columns together. */
  vocabularyEntries: 1_000_000,
  vocabularyCharacters: 1000,
  shardsPerSplit: 100_000,
  shardBytes: 256 << 20,
  /** Size of a shard that the importer aims at. */
  shardTargetBytes: 32 << 20,
  rows: 2 ** 40,
  seriesPerSplit: 100_000,
  manifestBytes: 32 << 20,
} as const;

export const SPLITS = ['train', 'validation', 'test'] as const;
export type SplitName = (typeof SPLITS)[number];

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in hexadecimal');
const count = z.int().min(0).max(DATASET_LIMITS.rows);
const columnName = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^\p{Cc}\p{Cf}\p{Cs}]*$/u, 'must not contain control characters or halves of characters')
  .refine((name) => !name.endsWith(':offsets') && name !== '__metadata__' && name !== '__proto__', 'is reserved');
/** Text that every part stores and sends as it is: PostgreSQL has no U+0000, UTF-8 no half of a surrogate pair. */
export const isStorable = (text: string): boolean => !text.includes('\0') && !/\p{Cs}/u.test(text);
const storableText = z.string().refine(isStorable, 'must not contain U+0000 or halves of characters');
const innerShape = z
  .array(
    z
      .int()
      .min(1)
      .max(1 << 24),
  )
  .max(5);

/** Statistics of the training split over the values that are not missing. */
const numberStatistics = z.strictObject({
  count,
  missing: count,
  mean: z.number(),
  /** Standard deviation of the population: divided by the count. */
  deviation: z.number().min(0),
  minimum: z.number(),
  maximum: z.number(),
  /** Counts in bins of equal width from minimum to maximum. */
  histogram: z.array(count).max(64).optional(),
});
export type NumberStatistics = z.output<typeof numberStatistics>;

const heldOutSplit = z.strictObject({
  missing: count.optional(),
  minimum: z.number().optional(),
  maximum: z.number().optional(),
  /** Length of the shortest sequence, in elements. */
  shortest: count.optional(),
});
/**
 * What rows outside of the training split have that those in it have not: missing values where the training split has none, numbers beyond its
 * own. A column without surprises says nothing, so data without them keeps the version that it has always had.
 */
const heldOut = z.strictObject({ validation: heldOutSplit.optional(), test: heldOutSplit.optional() }).optional();
export type HeldOut = z.output<typeof heldOutSplit>;

const sizeStatistics = z.strictObject({ count, missing: count, minimum: z.number(), maximum: z.number(), mean: z.number() });

export const columnSchema = z.discriminatedUnion('kind', [
  z.strictObject({ name: columnName, kind: z.literal('number'), statistics: numberStatistics, heldOut }),
  z.strictObject({
    name: columnName,
    kind: z.literal('category'),
    /** In the order of the codes. What a class is called. Class indices of a run follow the sorted vocabulary. */
    vocabulary: z.array(storableText.max(DATASET_LIMITS.vocabularyCharacters)).max(DATASET_LIMITS.vocabularyEntries),
    /** Rows of the training split per code: as many numbers as the vocabulary has words. */
    statistics: z.strictObject({ count, missing: count, counts: z.array(count).max(DATASET_LIMITS.vocabularyEntries) }),
    heldOut,
  }),
  z.strictObject({
    name: columnName,
    kind: z.literal('array'),
    dtype: z.enum(['F32', 'I32', 'U8']),
    shape: innerShape,
    /** Over all elements. */
    statistics: numberStatistics,
    heldOut,
  }),
  z.strictObject({
    name: columnName,
    kind: z.literal('sequence'),
    dtype: z.enum(['F32', 'I32']),
    shape: innerShape,
    statistics: numberStatistics,
    /** In elements of `shape`. */
    lengths: sizeStatistics,
    heldOut,
  }),
  /** Lengths in UTF-16 units, as a string has them. */
  z.strictObject({ name: columnName, kind: z.literal('text'), lengths: sizeStatistics }),
  z.strictObject({
    name: columnName,
    kind: z.literal('image'),
    /** In pixels. */
    heights: sizeStatistics,
    widths: sizeStatistics,
    channels: z.array(z.int().min(1).max(4)).max(4),
  }),
]);
export type Column = z.output<typeof columnSchema>;

const shardSchema = z.strictObject({ sha256, rows: count.min(1), bytes: z.int().min(1).max(DATASET_LIMITS.shardBytes) });
export type DatasetShard = z.output<typeof shardSchema>;
const splitSchema = z.strictObject({
  rows: count,
  shards: z.array(shardSchema).max(DATASET_LIMITS.shardsPerSplit),
  /** Rows at which a further series begins: no window has rows of two. A split that is one series says nothing, so it keeps its version. */
  starts: z
    .array(count.min(1))
    .min(1)
    .max(DATASET_LIMITS.seriesPerSplit - 1)
    .optional(),
});

/** How the files of the source were written, where the user had to say it: files of rows for a trained model are read in the same way. */
export const dialectSchema = z.strictObject({
  decimal: z.enum(['.', ',']).optional(),
  delimiter: z.string().length(1).optional(),
});
export type Dialect = z.output<typeof dialectSchema>;

export const datasetManifestSchema = z
  .strictObject({
    format: z.literal('paceline.dataset'),
    version: z.literal(1),
    columns: z.array(columnSchema).min(1).max(DATASET_LIMITS.columns),
    /** The column that the import named as the label: the default target. */
    label: columnName.optional(),
    splits: z.strictObject({ train: splitSchema, validation: splitSchema.optional(), test: splitSchema.optional() }),
    /** Rows of the source that were left out, by reason. */
    dropped: z.strictObject({ missing: count }),
    /** Rows lie in the order of the source: windows over time may be cut from them. */
    isOrdered: z.boolean(),
    dialect: dialectSchema.optional(),
  })
  .superRefine((manifest, ctx) => {
    const names = new Set<string>();
    for (const [i, { name }] of manifest.columns.entries()) {
      if (names.has(name)) ctx.addIssue({ code: 'custom', path: ['columns', i, 'name'], message: `${JSON.stringify(name)} stands twice` });
      names.add(name);
    }
    if (manifest.label !== undefined && !names.has(manifest.label))
      ctx.addIssue({ code: 'custom', path: ['label'], message: `names ${JSON.stringify(manifest.label)}, which is no column` });
    for (const split of SPLITS) {
      const found = manifest.splits[split];
      if (found && found.shards.reduce((sum, shard) => sum + shard.rows, 0) !== found.rows)
        ctx.addIssue({ code: 'custom', path: ['splits', split, 'rows'], message: 'is not the sum of the rows of its shards' });
      if (found?.starts?.some((start, i, all) => start >= (all[i + 1] ?? found.rows)))
        ctx.addIssue({ code: 'custom', path: ['splits', split, 'starts'], message: 'must rise, and stay below the number of rows' });
    }
  });
export type DatasetManifest = z.output<typeof datasetManifestSchema>;

/** What a manifest that somebody gives is held to beside; one that is stored was taken before. */
export const givenManifestSchema = datasetManifestSchema.superRefine(({ columns }, ctx) => {
  let words = 0;
  for (const [i, column] of columns.entries()) {
    if (column.kind !== 'category') continue;
    const { length } = column.vocabulary;
    words += length;
    if (column.statistics.counts.length !== length)
      ctx.addIssue({
        code: 'custom',
        path: ['columns', i, 'statistics', 'counts'],
        message: `has ${column.statistics.counts.length} numbers, and the vocabulary has ${length} words`,
      });
  }
  if (words > DATASET_LIMITS.vocabularyEntries)
    ctx.addIssue({
      code: 'custom',
      path: ['columns'],
      message: `have ${words} words together; at most ${DATASET_LIMITS.vocabularyEntries} are taken`,
    });
});

/** Keys of the data store. A team sees its own folder alone. */
export const datasetShardKey = (teamId: string, shardSha256: string): string => `datasets/${teamId}/shards/${shardSha256}.safetensors`;
export const datasetManifestKey = (teamId: string, version: string): string => `datasets/${teamId}/manifests/${version}.json`;
