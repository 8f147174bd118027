import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { featuresSchema, fieldLength, type DatasetManifest, type FeaturePlan } from '@paceline/spec';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RowBuffers } from '../contract.js';
import { openPreparedRows } from '../prepared/prepared-rows.js';
import { FIXTURE_TEAM, localStoreAt, writePrepared, type Row } from '../prepared/prepared.fixture.js';
import { storeShardSource, type ShardSource } from '../prepared/shard-source.js';
import { decodeImage } from './image.js';
import { Preprocessor } from './preprocessor.js';
import { resolveFeatures } from './resolve-features.js';
import { learnVocabularies } from './vocabulary.js';

const TEXTS = ['The cat sat.', "the dog's mat", 'Ein Öl über dem Öl', '', 'cat cat the'];
let folder: string;
let manifest: DatasetManifest;
let source: ShardSource;
let rows: Row[];

const noise = (seed: number) => Uint8Array.from({ length: 12 * 10 * 3 }, (_, i) => (i * 7 + seed * 31 + ((i * i) % 13)) % 256);

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'paceline-preprocessor-'));
  const store = localStoreAt(folder);
  source = storeShardSource(store, FIXTURE_TEAM);
  const photo = (i: number) => {
    const image = sharp(noise(i), { raw: { height: 12, width: 10, channels: 3 } });
    return [() => image.jpeg(), () => image.png(), () => image.webp()][i % 3]!().toBuffer();
  };
  rows = await Promise.all(
    TEXTS.map(async (text, i): Promise<Row> => {
      const photoBytes = new Uint8Array(await photo(i));
      return {
        size: i === 2 ? null : i * 0.1,
        big: 2 ** 24 + i,
        color: ['red', 'blue'][i % 2]!,
        text,
        photo: photoBytes,
        path: [i, 1, 2, 3].slice(0, 2 * (i % 3)),
        y: i,
      };
    }),
  );
  manifest = await writePrepared(store, {
    columns: [
      { name: 'size', kind: 'number' },
      { name: 'big', kind: 'number' },
      { name: 'color', kind: 'category' },
      { name: 'text', kind: 'text' },
      { name: 'photo', kind: 'image', height: 12, width: 10 },
      { name: 'path', kind: 'sequence', dtype: 'F32', shape: [2] },
      { name: 'y', kind: 'number' },
    ],
    splits: { train: rows },
    label: 'y',
    isOrdered: true,
    rowsPerShard: 2,
  });
});
afterAll(() => rm(folder, { recursive: true }));

async function planFor(features: unknown): Promise<FeaturePlan> {
  const learned = await learnVocabularies(manifest, featuresSchema.parse(features), source);
  const result = learned.ok ? resolveFeatures(manifest, learned.features) : learned;
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.plan;
}

it('a vocabulary that a stored spec has no room for says how many tokens it has', async () => {
  const inputs = { note: [{ kind: 'text', column: 'text', length: 4 }] };
  const features = featuresSchema.parse({ inputs });
  const whole = await learnVocabularies(manifest, features, source);
  const made = whole.ok ? (whole.features!.inputs!['note']![0] as { vocabulary: string[] }).vocabulary : [];
  const maxVocabularyBytes = Buffer.byteLength(JSON.stringify(made.slice(0, 4)));
  expect(await learnVocabularies(manifest, features, source, { maxVocabularyBytes })).toEqual({
    ok: false,
    issues: [
      {
        path: 'features.inputs.note.0.vocabularySize',
        message: `its ${made.length} tokens are more than a stored spec has room for: write vocabularySize: 4 or less`,
      },
    ],
  });
});

async function fromShards(plan: FeaturePlan): Promise<RowBuffers> {
  const opened = openPreparedRows(manifest, plan, source);
  const { count } = opened.train;
  const floats = (field: { shape: number[] }) => new Float32Array(count * fieldLength(field));
  const { inputs, targets, isWeighted } = plan.rowFormat;
  const into = { inputs: inputs.map(floats), targets: targets.map(floats), weights: isWeighted ? new Float32Array(count) : undefined };
  await opened.train.gather(
    Int32Array.from({ length: count }, (_, i) => i),
    0,
    count,
    into,
  );
  await opened.close();
  return into;
}

const EVERYTHING = {
  inputs: {
    x: [
      { kind: 'number', columns: ['size', 'big'] },
      { kind: 'category', column: 'color' },
      { kind: 'category', column: 'color', encode: 'hash', buckets: 5 },
      { kind: 'category', column: 'color', encode: 'index' },
    ],
    words: [{ kind: 'text', column: 'text', length: 4 }],
    bag: [{ kind: 'text', column: 'text', length: 4, encode: 'multi-hot' }],
    letters: [{ kind: 'text', column: 'text', tokens: 'character', length: 6, vocabularySize: 8 }],
    photo: [{ kind: 'image', column: 'photo', height: 6, width: 6, scale: 'symmetric' }],
    grey: [{ kind: 'image', column: 'photo', height: 8, width: 5, channels: 1, fit: 'pad' }],
    cut: [{ kind: 'image', column: 'photo', height: 8, width: 5, fit: 'crop', scale: 'none' }],
    path: [{ kind: 'sequence', column: 'path', length: 2, pad: 'before', value: -1 }],
  },
  targets: { y: { kind: 'number', columns: ['y'] }, next: { kind: 'next-token', column: 'text' } },
  weightColumn: 'big',
};

describe('rows that somebody has at hand', () => {
  it('become the same bits as those of the shards, whatever the feature', async () => {
    const plan = await planFor(EVERYTHING);
    const { examples, buffers } = await new Preprocessor(plan, decodeImage).examples(rows);
    expect(examples).toBe(5);
    expect(buffers).toEqual(await fromShards(plan));
  });

  it('windows too, and for a prediction without what lies ahead', async () => {
    const plan = await planFor({
      inputs: { x: [{ kind: 'window', columns: ['size', 'big'], lookback: 2 }] },
      targets: { y: { kind: 'window', columns: ['y'], delay: 2 } },
    });
    const preprocessor = new Preprocessor(plan, decodeImage);
    expect((await preprocessor.examples(rows)).buffers).toEqual(await fromShards(plan));
    const { examples, buffers } = await preprocessor.inputs(rows.slice(3));
    expect(examples).toBe(1);
    expect(buffers.inputs[0]!.length).toBe(4);
  });

  it('texts become ids: 0 pads, 1 is unknown, frequent tokens first', async () => {
    const plan = await planFor({ inputs: { t: [{ kind: 'text', column: 'text', length: 5, vocabularySize: 3 }] } });
    expect(plan.inputs[0]!.encoders[0]).toMatchObject({ vocabulary: ['cat', 'the', 'öl'], ids: 5 });
    const { buffers } = await new Preprocessor(plan, decodeImage).inputs([{ text: 'The CAT, öl und the cat' }, { text: null }]);
    expect([...buffers.inputs[0]!]).toEqual([3, 2, 4, 1, 3, 0, 0, 0, 0, 0]);
  });

  it('the next token is the text one step later', async () => {
    const plan = await planFor({
      inputs: { t: [{ kind: 'text', column: 'text', length: 3 }] },
      targets: { y: { kind: 'next-token', column: 'text' } },
    });
    // As many ids as the target has classes: what an Embedding and the last layer of a language model need.
    expect(plan.rowFormat.inputs[0]).toMatchObject({ shape: [3], ids: (plan.rowFormat.targets[0] as { classes: number }).classes });
    const { buffers } = await new Preprocessor(plan, decodeImage).examples([{ text: 'the cat sat mat' }]);
    const [cat, the] = [2, 3];
    const [input, target] = [[...buffers.inputs[0]!], [...buffers.targets[0]!]];
    expect(input.slice(0, 2)).toEqual([the, cat]);
    expect(target.slice(0, 2)).toEqual(input.slice(1));
    expect(target[2]).toBeGreaterThan(1);
    const short = await new Preprocessor(plan, decodeImage).examples([{ text: 'the cat' }]);
    expect([...short.buffers.inputs[0]!]).toEqual([the, cat, 0]);
    expect([...short.buffers.targets[0]!]).toEqual([cat, Number.NaN, Number.NaN]);
    expect(plan.rowFormat.targets[0]).toMatchObject({
      kind: 'classes',
      shape: [3],
      classes: plan.inputs[0]!.encoders[0]!.kind === 'text' ? plan.inputs[0]!.encoders[0]!.ids : 0,
    });
  });

  it('what a sequence lacks is no number in a target, on the side that it is padded', async () => {
    const targets = { y: { kind: 'sequence', column: 'path', length: 2, of: 'values', pad: 'before' } };
    const plan = await planFor({ inputs: { x: [{ kind: 'number', columns: ['size'] }] }, targets });
    expect(plan.rowFormat.targets).toEqual([{ name: 'y', kind: 'values', shape: [2, 2], isPadded: true }]);
    const { buffers } = await new Preprocessor(plan, decodeImage).examples(rows.slice(0, 3));
    const none = Number.NaN;
    expect([...buffers.targets[0]!]).toEqual([none, none, none, none, none, none, 1, 1, 2, 1, 2, 3]);
  });

  it('an unknown category is all zeros in one-hot and 0 as an index', async () => {
    const plan = await planFor({
      inputs: {
        x: [
          { kind: 'category', column: 'color' },
          { kind: 'category', column: 'color', encode: 'index' },
        ],
      },
    });
    const { buffers } = await new Preprocessor(plan, decodeImage).inputs([{ color: 'green' }, { color: 'blue' }, {}]);
    expect([...buffers.inputs[0]!]).toEqual([0, 0, 0, 1, 0, 1, 0, 0, 0]);
  });

  it('a tokenizer.json gives the ids that it says', async () => {
    const tokenizer = {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: [],
      normalizer: { type: 'Lowercase' },
      pre_tokenizer: { type: 'Whitespace' },
      post_processor: null,
      decoder: null,
      model: {
        type: 'WordPiece',
        unk_token: '[UNK]',
        continuing_subword_prefix: '##',
        max_input_chars_per_word: 100,
        vocab: { '[UNK]': 0, cat: 1, '##s': 2, the: 7 },
      },
    };
    const plan = await planFor({ inputs: { t: [{ kind: 'text', column: 'text', tokens: 'tokenizer', tokenizer, length: 4 }] } });
    expect(plan.inputs[0]!.encoders[0]).toMatchObject({ ids: 8 });
    const { buffers } = await new Preprocessor(plan, decodeImage).inputs([{ text: 'The cats dog' }]);
    expect([...buffers.inputs[0]!]).toEqual([7, 1, 2, 0]);
  });

  it.each([
    [{ size: 'tall' }, 'row 1, column "size": must be a number, not "tall"'],
    [{ photo: 'x.png' }, 'row 1, column "photo": must be the bytes of a PNG, JPEG or WebP file, not "x.png"'],
    [{ photo: Uint8Array.of(1, 2, 3) }, 'row 1, column "photo": it is no PNG, JPEG or WebP file'],
    [{ path: [1, 2, 3] }, 'row 1, column "path": must have elements of 2 numbers; there are 3 numbers'],
    [{ color: {} }, 'row 1, column "color": must be a text, not object'],
    [{ size: 1e39 }, 'row 1, column "size": must be a number that float32 holds, not 1e+39'],
    [{ size: '0x10' }, 'row 1, column "size": must be a number, not "0x10"'],
  ])('%j is refused', async (wrong, message) => {
    const plan = await planFor(EVERYTHING);
    await expect(new Preprocessor(plan, decodeImage).inputs([rows[0]!, Object.assign({}, rows[1], wrong)])).rejects.toMatchObject({
      code: 'DATASET_ROW_INVALID',
      message: `rows: ${message}`,
    });
  });
});

it('blanks around a category are none of it, as in an import', async () => {
  const plan = await planFor(EVERYTHING);
  const [plain, blank] = await Promise.all(
    [(color: unknown) => color, (color: unknown) => (typeof color === 'string' ? ` ${color} ` : '  ')].map((of) =>
      new Preprocessor(plan, decodeImage).inputs(rows.map((row) => Object.assign({}, row, { color: of(row['color']) }))),
    ),
  );
  expect(blank).toEqual(plain);
});

describe('images', () => {
  it('are decoded to [height, width, channels], upright, and padded with black', async () => {
    const red = await sharp({ create: { width: 4, height: 2, channels: 4, background: { r: 255, g: 0, b: 0, alpha: 1 } } })
      .png()
      .toBuffer();
    const padded = await decodeImage(red, { height: 4, width: 4, channels: 3, fit: 'pad' });
    expect([...padded.subarray(0, 3), ...padded.subarray(12, 15), ...padded.subarray(36, 39)]).toEqual([0, 0, 0, 255, 0, 0, 0, 0, 0]);
    const turned = await sharp(red).jpeg().withMetadata({ orientation: 6 }).toBuffer();
    expect((await decodeImage(turned, { height: 4, width: 2, channels: 1, fit: 'stretch' })).length).toBe(8);
  });

  it('a broken file and an SVG are refused', async () => {
    const jpeg = await sharp(noise(1), { raw: { height: 12, width: 10, channels: 3 } })
      .jpeg()
      .toBuffer();
    const size = { height: 4, width: 4, channels: 3, fit: 'stretch' } as const;
    await expect(decodeImage(jpeg.subarray(0, jpeg.length >> 1), size)).rejects.toThrow();
    await expect(decodeImage(new TextEncoder().encode('<svg xmlns="http://www.w3.org/2000/svg"/>'), size)).rejects.toThrow(
      'no PNG, JPEG or WebP',
    );
  });
});
