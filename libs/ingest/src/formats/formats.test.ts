/** Each format by files that are made here as their writers make them. */
import { symlink } from 'node:fs/promises';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import protobuf from 'protobufjs/minimal.js';
import sharp from 'sharp';
import { pack } from 'tar-stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { safetensorsHeader } from '@paceline/storage';
import { Bench, refusal } from '../import.fixture.js';
import { crc32c, maskedCrc32c } from './crc32c.js';
import { delimiterOf } from './csv.js';
import { imageParts } from './images.js';

/** Written by the zstd tool at level 19. */
const ZSTD_TABLE =
  'KLUv/QRoHQwAhmtVErAl6UsGPKzoJoQQslMckwowAk8AVQBTALwSonUQr4JoDcQrEa0Tr0O0BsRrTWuZVzKtY17FtIZ5pWl9WoN5raG1DK9kaB3Dqxhaw/BK' +
  'Q+vD6wyvRWvhldA6eBW0Bl6J1nkdWgMGCgjWCa9DaA0IrzVoLYNXMmgdg1cxaA2DVxq0PnidQWsweC1BaxG8EkHrELwKQWsQvJKgdcHrCFoDwWsFWkvglQRa' +
  'R+BVBFpD4JUCrQdeJ9AaBF6LaC0U9P//MzMzMzNVyBCBnmBoDYLhtYrWUrySonUUr6JoDcUrFa0Xr1O0BsVrFVpL4ZUUWkfhVRRaQ+GVCq0XXqfQGhRei9Ba' +
  'CK+E0DoIr4LQGgivRBi8Vv3///////////////////////////////9BVVVVVVUppZRSSimEEEIIIYSMMcYYY4whhBBCCCFECCGEEEIIRERERBSAyKgR4Ov/' +
  '1RrAFQqtARAQP9/3fd8HtqShrRdAEAQ5fxUzjieVfFIto/sPHOqtaw==';
/** Written by another library than the one that reads it here: row groups of two rows, compressed pages. */
const PARQUET =
  'UEFSMRUGFSQVJFwVBBUAFQQVABUEFQAAAAMDEABmBQEkFECamZmZmZkTQBUGFSQVKFwVBBUAFQQVABUEFQAAAAMDEDwBAAAAAAAAAP7/////////FQYVMhU2' +
  'XBUEFQAVBBUAFQQVAAAAAwMXWAYAAABzZXRvc2EJAAAAdmlyZ2luaWNhFQYVBhUKXBUEFQAVBBUAFQQVAAAAAwMBAAEVBhUUFRhcFQIVABUCFQAVBBUAAAAD' +
  'AQgcAAAAAAAAGEAVBhUUFRhcFQIVABUCFQAVBBUAAAADAQgcAwAAAAAAAAAVBhUYFRxcFQIVABUCFQAVBBUAAAADAQokBgAAAHNldG9zYRUGFQYVClwVAhUA' +
  'FQIVABUEFQAAAAMBAQABFQQZXEgEcm9vdBUIABUKJQIYBmxlbmd0aAAVBCUCGAVjb3VudAAVDCUCGAdzcGVjaWVzJQAAFQAlAhgFZnJlc2gAFgYZLBlMJggc' +
  'FQoZFQAZGAZsZW5ndGgVAhYEFk4WTiYIPDYAKAhmZmZmZmYUQBgImpmZmZmZE0A2AAAZHBUGFQAVAgAAACZWHBUEGRUAGRgFY291bnQVAhYEFk4WUiZWPDYA' +
  'KAgBAAAAAAAAABgI/v////////8AGRwVBhUAFQIAAAAmqAEcFQwZFQAZGAdzcGVjaWVzFQIWBBZcFmAmqAE8NgAoCXZpcmdpbmljYRgGc2V0b3NhABkcFQYV' +
  'ABUCAAAAJogCHBUAGRUAGRgFZnJlc2gVAhYEFjAWNCaIAjw2ACgBARgBAAAZHBUGFQAVAgAAABaoAhYENrQCABlMJrwCHBUKGRUAGRgGbGVuZ3RoFQIWAhY+' +
  'FkImvAI8NgAoCAAAAAAAABhAGAgAAAAAAAAYQDYAABkcFQYVABUCAAAAJv4CHBUEGRUAGRgFY291bnQVAhYCFj4WQib+Ajw2ACgIAwAAAAAAAAAYCAMAAAAA' +
  'AAAAABkcFQYVABUCAAAAJsADHBUMGRUAGRgHc3BlY2llcxUCFgIWQhZGJsADPDYAKAZzZXRvc2EYBnNldG9zYQAZHBUGFQAVAgAAACaGBBwVABkVABkYBWZy' +
  'ZXNoFQIWAhYwFjQmhgQ8NgAoAQEYAQEAGRwVBhUAFQIAAAAW7gEWAjb+AQAoCWh5cGFycXVldBlMHAAAHAAAHAAAHAAAAFMCAABQQVIx';

let bench: Bench;
beforeAll(async () => void (bench = await Bench.open()));
afterAll(() => bench[Symbol.asyncDispose]());

export const npy = (descr: string, shape: readonly number[], data: Uint8Array): Buffer => {
  const header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape.join(', ')}${shape.length === 1 ? ',' : ''}), }`;
  const padded = header + ' '.repeat(64 - ((10 + header.length + 1) % 64)) + '\n';
  const length = Buffer.alloc(2);
  length.writeUInt16LE(padded.length);
  return Buffer.concat([Buffer.from('\x93NUMPY\x01\x00', 'latin1'), length, Buffer.from(padded), data]);
};

const bytesOf = (values: ArrayBufferView): Uint8Array => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
const picture = (red: number, format: 'png' | 'jpeg' | 'webp' = 'png') =>
  sharp({ create: { width: 4, height: 3, channels: 3, background: { r: red, g: 0, b: 0 } } })
    [format]()
    .toBuffer();

function idx(type: number, shape: readonly number[], data: Uint8Array): Buffer {
  const header = Buffer.alloc(4 + 4 * shape.length);
  header.set([0, 0, type, shape.length]);
  shape.forEach((size, i) => header.writeUInt32BE(size, 4 + 4 * i));
  return Buffer.concat([header, data]);
}

test('CSV: quotes, line ends in quotes, a byte order mark, and delimiters that are found', async () => {
  const source = await bench.write('odd.csv', '\ufeffa;b\r\n"x;1";2\r\n"y\nz";"3"\r\n');
  expect((await bench.import({ sources: [source], columns: { a: 'text' } })).train).toEqual([
    { a: 'x;1', b: 2 },
    { a: 'y\nz', b: 3 },
  ]);
  expect(['a,b', 'a;b', 'a\tb', 'a|b', '"a;;;",b', 'a'].map((line) => delimiterOf(`${line}\n`))).toEqual([',', ';', '\t', '|', ',', ',']);
});

test('CSV: a decimal comma separates no columns, unless the header is separated by commas', () => {
  const tables = ['price\n1,5\n2,25\n', 'a;b\n1,5;2,25\n', 'a;b, of c\n1,5;2\n', 'a\n"1,5"\n', 'a|b\n1,5|2\n', '\r\na,b\r\n"1,5",2\r\n'];
  expect(tables.map((text) => delimiterOf(text, ','))).toEqual([';', ';', ';', ';', '|', ',']);
  expect(delimiterOf('price\n1,5\n2,25\n')).toBe(',');
});

test('CSV without a header gets names of columns, and TSV is read by its name', async () => {
  const source = await bench.write('bare.tsv', '1\t2\n3\t4\n');
  expect((await bench.import({ sources: [source] })).train).toEqual([
    { column1: 1, column2: 2 },
    { column1: 3, column2: 4 },
  ]);
});

test('CSV has a header where each column of numbers begins with a word, or where somebody says so', async () => {
  const years = await bench.write('years.csv', 'name,2019,2020\nann,1,2\nben,3,4\n');
  expect((await bench.import({ sources: [years], header: true })).train).toEqual([
    { name: 'ann', '2019': 1, '2020': 2 },
    { name: 'ben', '2019': 3, '2020': 4 },
  ]);
  const mixed = await bench.write('mixed.csv', '2019,n\nann,1\nben,3\n');
  expect((await bench.import({ sources: [mixed] })).train).toEqual([
    { '2019': 'ann', n: 1 },
    { '2019': 'ben', n: 3 },
  ]);
});

test('JSON Lines: numbers, texts, lists, objects in objects, fields that come later', async () => {
  const lines = [
    { n: 1, inner: { flag: true }, list: [1, 2] },
    { n: 2, inner: { flag: false }, list: [3, 4], late: 5 },
  ];
  const source = await bench.write('rows.jsonl', lines.map((line) => JSON.stringify(line)).join('\n'));
  expect((await bench.import({ sources: [source], missing: 'fill' })).train).toEqual([
    { n: 1, 'inner.flag': 'true', list: [1, 2], late: null },
    { n: 2, 'inner.flag': 'false', list: [3, 4], late: 5 },
  ]);
});

test('lists of several lengths are a sequence', async () => {
  const source = await bench.write('sequence.jsonl', '{"s":[1,2,3]}\n{"s":[]}\n{"s":[4]}\n');
  const { train, manifest } = await bench.import({ sources: [source] });
  expect(train).toEqual([{ s: [1, 2, 3] }, { s: [] }, { s: [4] }]);
  expect(manifest.columns[0]).toMatchObject({ kind: 'sequence', dtype: 'F32', shape: [], lengths: { count: 3, minimum: 0, maximum: 3 } });
});

test('the four files of MNIST are pictures and labels of two splits', async () => {
  const pixels = Uint8Array.from({ length: 6 * 4 }, (_, i) => i);
  await bench.write('mnist/train-images-idx3-ubyte.gz', gzipSync(idx(8, [6, 2, 2], pixels)));
  await bench.write('mnist/train-labels-idx1-ubyte.gz', gzipSync(idx(8, [6], Uint8Array.of(7, 2, 7, 2, 7, 2))));
  await bench.write('mnist/t10k-images-idx3-ubyte.gz', gzipSync(idx(8, [1, 2, 2], pixels.slice(0, 4))));
  await bench.write('mnist/t10k-labels-idx1-ubyte.gz', gzipSync(idx(8, [1], Uint8Array.of(2))));
  const { manifest, train, rows } = await bench.import({ sources: [`${bench.folder}/source/mnist`] });
  expect(manifest.label).toBe('label');
  expect(manifest.columns[0]).toMatchObject({ name: 'image', kind: 'array', dtype: 'U8', shape: [2, 2, 1] });
  expect(train[1]).toEqual({ image: [4, 5, 6, 7], label: '2' });
  expect(rows('test')).toEqual([{ image: [0, 1, 2, 3], label: '2' }]);
});

test('a folder of pictures: classes and splits are the names of folders', async () => {
  await bench.write('flowers/train/rose/1.png', await picture(1));
  await bench.write('flowers/train/tulip/1.jpg', await picture(2, 'jpeg'));
  const held = await picture(3, 'webp');
  await bench.write('flowers/val/tulip/9.webp', held);
  const { manifest, rows, train } = await bench.import({ sources: [`${bench.folder}/source/flowers`] });
  expect(manifest.label).toBe('label');
  expect(train.map(({ label }) => label)).toEqual(['rose', 'tulip']);
  expect(rows('validation')).toEqual([{ image: Uint8Array.from(held), label: 'tulip' }]);
  expect(manifest.columns[0]).toMatchObject({ kind: 'image', heights: { minimum: 3, maximum: 3 }, widths: { mean: 4 }, channels: [3] });
});

test('.npy files of one split stand side by side', async () => {
  await bench.write('npy/x_train.npy', npy('<f8', [2, 3], bytesOf(Float64Array.of(1, 2, 3, 4, 5, 6))));
  await bench.write('npy/y_train.npy', npy('>i2', [2], Uint8Array.of(0, 1, 255, 254)));
  await bench.write('npy/name_train.npy', npy('<U3', [2], bytesOf(Uint32Array.of(97, 98, 0, 0x1f600, 0, 0))));
  const { train } = await bench.import({ sources: [`${bench.folder}/source/npy`] });
  expect(train).toEqual([
    { name: 'ab', x: [1, 2, 3], y: 1 },
    { name: '😀', x: [4, 5, 6], y: -2 },
  ]);
});

test('.npz as Keras writes its datasets', async () => {
  const archive = zip([
    ['x_test.npy', npy('|u1', [1, 2], Uint8Array.of(9, 9))],
    ['x_train.npy', npy('|u1', [2, 2], Uint8Array.of(1, 2, 3, 4))],
    ['y_test.npy', npy('<i8', [1], bytesOf(BigInt64Array.of(1n)))],
    ['y_train.npy', npy('<i8', [2], bytesOf(BigInt64Array.of(0n, 1n)))],
  ]);
  const { train, rows } = await bench.import({ sources: [await bench.write('mnist.npz', archive)], label: 'y' });
  expect(train).toEqual([
    { x: [1, 2], y: '0' },
    { x: [3, 4], y: '1' },
  ]);
  expect(rows('test')).toEqual([{ x: [9, 9], y: '1' }]);
});

test('safetensors: tensors of one length are columns', async () => {
  const header = safetensorsHeader([
    { name: 'x', shape: [2, 2] },
    { name: 'n', shape: [2], dtype: 'I64' },
  ]);
  const file = Buffer.concat([header, bytesOf(Float32Array.of(1, 2, 3, 4)), bytesOf(BigInt64Array.of(-5n, 6n))]);
  expect((await bench.import({ sources: [await bench.write('t.safetensors', file)] })).train).toEqual([
    { x: [1, 2], n: -5 },
    { x: [3, 4], n: 6 },
  ]);
});

test('WebDataset: files with one key are a row', async () => {
  const archive = await tar([
    ['a/0001.png', await picture(1)],
    ['a/0001.cls', Buffer.from('3')],
    ['a/0001.json', Buffer.from('{"size": 2}')],
    ['a/0002.png', await picture(2)],
    ['a/0002.cls', Buffer.from('4')],
    ['a/0002.json', Buffer.from('{"size": 5}')],
  ]);
  const { train } = await bench.import({ sources: [await bench.write('shard-train.tar', archive)], label: 'label' });
  expect(train.map(({ label, size }) => [label, size])).toEqual([
    ['3', 2],
    ['4', 5],
  ]);
  expect(train[1]!['image']).toEqual(Uint8Array.from(await picture(2)));
});

test('CRC-32C of its published vectors', () => {
  expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283);
  expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa);
});

test('TFRecord of tf.train.Example: numbers, lists, texts, pictures', async () => {
  const records = [
    example({ n: { floats: [1.5] }, ids: { integers: [1, 2] }, name: { bytes: Buffer.from('a') }, image: { bytes: await picture(1) } }),
    example({ n: { floats: [2.5] }, ids: { integers: [-1] }, name: { bytes: Buffer.from('b') }, image: { bytes: await picture(2) } }),
  ];
  const source = await bench.write('x.tfrecord', Buffer.concat(records.map(tfRecord)));
  const { train } = await bench.import({ sources: [source] });
  expect(train.map(({ n, ids, name }) => [n, ids, name])).toEqual([
    [1.5, [1, 2], 'a'],
    [2.5, [-1], 'b'],
  ]);
});

test('texts by line', async () => {
  const source = await bench.write('lines.txt', 'first\r\n\nthird');
  expect((await bench.import({ sources: [source] })).train).toEqual([{ text: 'first' }, { text: '' }, { text: 'third' }]);
});

test('a module makes rows: generators, typed arrays, pictures, tensors', async () => {
  const png = (await picture(9)).toString('base64');
  const source = await bench.write(
    'make.mjs',
    `export function* train() {
       for (let i = 0; i < 3; i++) yield { x: Float32Array.of(i, i + 1), word: 'w' + i, image: { image: Buffer.from('${png}', 'base64') },
         t: { shape: [1, 2], dataSync: () => Int32Array.of(i, 7) } };
     }
     export const test = { iterator: async () => { let i = 0; return { next: async () => i++ < 1 ? { done: false, value: { x: new Float32Array(2), word: 'w', image: { image: Buffer.from('${png}', 'base64') }, t: [[1, 2]] } } : { done: true } }; } };`,
  );
  const { train, rows } = await bench.import({ sources: [source], format: 'module' });
  expect(train[2]).toMatchObject({ x: [2, 3], word: 'w2', t: [2, 7] });
  expect(rows('test')).toHaveLength(1);
});

test('zstd around a table, as its own tool writes it', async () => {
  const packed = Buffer.from(ZSTD_TABLE, 'base64');
  const { train } = await bench.import({ sources: [await bench.write('table.csv.zst', packed)] });
  expect(train).toEqual(Array.from({ length: 300 }, (_, i) => ({ a: i, b: 'xy'[i % 2] })));
});

test('Parquet: two row groups with doubles, whole numbers, texts and truth values', async () => {
  const source = await bench.write('flowers.parquet', Buffer.from(PARQUET, 'base64'));
  const { train, manifest } = await bench.import({ sources: [source], label: 'species' });
  expect(train).toEqual([
    { length: Math.fround(5.1), count: 1, species: 'setosa', fresh: 'true' },
    { length: Math.fround(4.9), count: -2, species: 'virginica', fresh: 'false' },
    { length: 6, count: 3, species: 'setosa', fresh: 'true' },
  ]);
  expect(manifest.columns.map(({ kind }) => kind)).toEqual(['number', 'number', 'category', 'category']);
});

test('Parquet that is cut off, or claims more than it has, is refused', async () => {
  const whole = Buffer.from(PARQUET, 'base64');
  const cut = await bench.write('cut.parquet', whole.subarray(0, whole.length - 100));
  expect(await refusal(bench.import({ sources: [cut] }))).toMatchObject({ code: 'FORMAT_MALFORMED' });
  const lies = Buffer.from(whole);
  lies.writeUInt32LE(2 ** 31, lies.length - 8);
  expect(await refusal(bench.import({ sources: [await bench.write('lies.parquet', lies)] }))).toMatchObject({ code: 'FORMAT_MALFORMED' });
});

test('gzip around a table, and a glob', async () => {
  await bench.write('packed/a.csv.gz', gzipSync('x\n1\n'));
  await bench.write('packed/b.csv', 'x\n2\n');
  expect((await bench.import({ sources: [`${bench.folder}/source/packed/*.csv*`] })).train).toEqual([{ x: 1 }, { x: 2 }]);
});

// --- writers

function zip(entries: readonly (readonly [string, Buffer])[]): Buffer {
  const files: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, data] of entries) {
    const fixed = Buffer.alloc(26);
    fixed.writeUInt16LE(20, 0);
    fixed.writeUInt32LE(crc32(data), 10);
    fixed.writeUInt32LE(data.length, 14);
    fixed.writeUInt32LE(data.length, 18);
    fixed.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from('PK\x03\x04', 'latin1'), fixed, Buffer.from(name), data]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00', 'latin1'), fixed, tail, Buffer.from(name)]));
    files.push(local);
    offset += local.length;
  }
  const size = directory.reduce((sum, { length }) => sum + length, 0);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  end.writeUInt16LE(entries.length, 8);
  end.writeUInt16LE(entries.length, 10);
  end.writeUInt32LE(size, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...files, ...directory, end]);
}

function crc32(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const byte of bytes) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  }
  return (value ^ 0xffffffff) >>> 0;
}

async function tar(entries: readonly (readonly [string, Buffer])[]): Promise<Buffer> {
  const archive = pack();
  for (const [name, data] of entries) archive.entry({ name }, data);
  archive.finalize();
  const pieces: Uint8Array[] = [];
  for await (const piece of archive) pieces.push(piece as Uint8Array);
  return Buffer.concat(pieces);
}

type FeatureValue = { floats: number[] } | { integers: (number | bigint)[] } | { bytes: Uint8Array };

function example(features: Record<string, FeatureValue>): Buffer {
  const writer = protobuf.Writer.create();
  writer.uint32(10).fork();
  for (const [name, value] of Object.entries(features)) {
    writer.uint32(10).fork().uint32(10).string(name).uint32(18).fork();
    if ('floats' in value) {
      writer.uint32(18).fork().uint32(10).fork();
      for (const number of value.floats) writer.float(number);
      writer.ldelim().ldelim();
    } else if ('integers' in value) {
      writer.uint32(26).fork().uint32(10).fork();
      for (const number of value.integers)
        writer.int64(
          typeof number === 'number' ? number : { low: Number(number & 0xffffffffn), high: Number(number >> 32n), unsigned: false },
        );
      writer.ldelim().ldelim();
    } else writer.uint32(10).fork().uint32(10).bytes(value.bytes).ldelim();
    writer.ldelim().ldelim();
  }
  return Buffer.from(writer.ldelim().finish());
}

function tfRecord(record: Buffer): Buffer {
  const head = Buffer.alloc(12);
  head.writeBigUInt64LE(BigInt(record.length));
  head.writeUInt32LE(maskedCrc32c(head.subarray(0, 8)), 8);
  const tail = Buffer.alloc(4);
  tail.writeUInt32LE(maskedCrc32c(record));
  return Buffer.concat([head, record, tail]);
}

test('pictures that a table names are read beside it; on a server only from the allowed folder', async () => {
  await bench.write('named/pictures/a.png', await picture(1));
  await bench.write('outside.png', await picture(3));
  const source = await bench.write('named/photos.csv', 'photo,size\npictures/a.png,3\n../outside.png,4\n,5\n');
  const columns = { photo: 'image' } as const;
  const { train, manifest } = await bench.import({ sources: [source], columns, missing: 'drop' });
  expect(train.map(({ photo, size }) => [(photo as Uint8Array).length > 50, size])).toEqual([[true, 3], [true, 4]]); // oxfmt-ignore
  expect(manifest.columns[0]).toMatchObject({ kind: 'image', widths: { minimum: 4, maximum: 4 } });

  const server = { policy: 'server', access: { allowedFolders: [path.dirname(source)] }, missing: 'drop', columns } as const;
  const place = { file: source, row: 2, column: 'photo' };
  const refused = await refusal(bench.import({ sources: [source], ...server }));
  expect(refused).toMatchObject({ code: 'SOURCE_FORBIDDEN', ...place });
  await symlink(path.join(path.dirname(source), '..', 'outside.png'), path.join(path.dirname(source), 'link.png'));
  const linked = await bench.write('named/linked.csv', 'photo,size\npictures/a.png,3\nlink.png,4\n');
  expect(await refusal(bench.import({ sources: [linked], ...server }))).toMatchObject({ code: 'SOURCE_FORBIDDEN', row: 2 });
  const inside = await bench.write('named/inside.csv', 'photo,size\npictures/a.png,3\npictures/none.png,4\n');
  expect((await bench.import({ sources: [inside], ...server, maxRows: 1 })).train).toHaveLength(1);
  const missing = { code: 'SOURCE_NOT_FOUND', file: inside, row: 2, column: 'photo' };
  expect(await refusal(bench.import({ sources: [inside], columns }))).toMatchObject(missing);
});

test('ids beyond 2^53 keep their digits in every format', async () => {
  const ids = [2n ** 53n, 2n ** 53n + 1n, -(2n ** 60n) - 1n, 7n];
  const words = ids.map(String);
  const lines = ids.map((id) => `{"id":${id},"quoted":"\\"${id}: 1","more":{"list":[16777217]}}`).join('\n');
  const sources = [
    await bench.write('ids.jsonl', lines),
    await bench.write('id.npy', npy('<i8', [4], bytesOf(BigInt64Array.from(ids)))),
    await bench.write('ids.tfrecord', Buffer.concat(ids.map((id) => tfRecord(example({ id: { integers: [id] } }))))),
  ];
  for (const source of sources) {
    const { train } = await bench.import({ sources: [source], columns: { id: 'category' } });
    expect(train.map(({ id }) => id)).toEqual(words);
    const { warnings } = await bench.import({ sources: [source], columns: { id: 'number' } });
    expect(warnings[0]).toContain(
      `"id" has whole numbers beyond 2^24 that float32 does not hold, such as ${words[1]}: import it as a category`,
    );
  }
  const { train, warnings } = await bench.import({ sources: [sources[0]!], columns: { quoted: 'text', id: 'ignore' } });
  expect(train[1]).toMatchObject({ quoted: `"${words[1]}: 1` });
  expect(warnings).toEqual([expect.stringMatching(/^Column "more.list" has .* such as 16777217: leave it out/)]);
});

test('CSV in UTF-16 of both orders of bytes', async () => {
  const text = 'name,größe\nälpha,1\nbeta,2\n'.repeat(1) + 'gamma,3\n'.repeat(20_000);
  const little = Buffer.from(`\ufeff${text}`, 'utf16le');
  const [le, be] = [await bench.write('le.csv', little), await bench.write('be.csv', Buffer.from(little).swap16())];
  const [first, second] = [await bench.import({ sources: [le] }), await bench.import({ sources: [be] })];
  expect(first.train.slice(0, 2)).toEqual([{ name: 'älpha', größe: 1 }, { name: 'beta', größe: 2 }]); // oxfmt-ignore
  expect(second.version).toBe(first.version);
});

test('a pattern of pictures has the classes of its folders', async () => {
  for (const name of ['train/rose', 'train/tulip', 'test/rose']) await bench.write(`garden/${name}/1.png`, await picture(7));
  const at = path.join(bench.folder, 'source', 'garden');
  const folder = await bench.import({ sources: [at] });
  expect((await bench.import({ sources: [`${at}/**/*.png`] })).version).toBe(folder.version);
  expect((await bench.import({ sources: [`${at}/train/*/*.png`] })).train.map(({ label }) => label)).toEqual(['rose', 'tulip']);
});

test('more lines and files than a call may have arguments', async () => {
  const lines = await bench.write('many-lines.txt', '\n'.repeat(150_000));
  expect((await bench.import({ sources: [lines], textBy: 'file' })).train).toHaveLength(1);
  const file = { split: undefined, bytes: 1, path: undefined, open: () => expect.unreachable() as never };
  const files = Array.from({ length: 150_000 }, (_, i) => Object.assign({ name: `${i}.png`, relative: `rose/${i}.png` }, file));
  expect(imageParts(files, {} as never)).toHaveLength(1); // minutes, if each picture copied the list of those before it
});
