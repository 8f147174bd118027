/** Files that lie: each is refused with a code and its place, before anything is allocated by what it claims. */
import { appendFile, mkdtemp, open, readdir, symlink, truncate, utimes } from 'node:fs/promises';
import { deflateRawSync, gzipSync } from 'node:zlib';
import { pack, type Header } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { importDataset } from './import-dataset.js';
import { Bench, MemorySink, refusal } from './import.fixture.js';
import { checkOptions } from './options.js';
import { localFiles } from './sources/local-files.js';
import type { SourceContext } from './sources/source-file.js';

let bench: Bench;
beforeAll(async () => void (bench = await Bench.open()));
afterAll(() => bench[Symbol.asyncDispose]());

const refused = async (name: string, content: string | Uint8Array, options: Parameters<Bench['import']>[0] | object = {}) =>
  await refusal(bench.import(Object.assign({ sources: [await bench.write(name, content)] }, options)));

const npy = (dict: string, data = new Uint8Array(0)): Buffer => {
  const length = Buffer.alloc(2);
  length.writeUInt16LE(dict.length);
  return Buffer.concat([Buffer.from('\x93NUMPY\x01\x00', 'latin1'), length, Buffer.from(dict), data]);
};
const dict = (descr: string, shape: string): string => `{'descr': '${descr}', 'fortran_order': False, 'shape': ${shape}, }`;

describe('.npy', () => {
  test.each([
    ['32 GiB in 80 bytes', npy(dict('<f4', '(1, 8589934592)')), 'ROW_TOO_LONG'],
    ['many rows in 80 bytes', npy(dict('<f4', '(8589934592,)')), 'FORMAT_MALFORMED'],
    ['a product that overflows', npy(dict('<f8', '(9007199254740991, 9007199254740991)')), 'ROW_TOO_LONG'],
    ['Python objects', npy(dict('|O', '(3,)')), 'UNSUPPORTED'],
    ['records', npy(`{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }`), 'UNSUPPORTED'],
    ['a negative shape', npy(dict('<f4', '(-1, 2)')), 'FORMAT_MALFORMED'],
    ['no shape', npy(dict('<f4', '()')), 'FORMAT_MALFORMED'],
    ['no dict', npy('hello'), 'FORMAT_MALFORMED'],
    ['an inherited name for a type', npy(dict('constructor', '(1,)')), 'UNSUPPORTED'],
    ['too few bytes', npy(dict('<f4', '(2,)'), new Uint8Array(7)), 'FORMAT_MALFORMED'],
    ['too many bytes', npy(dict('<f4', '(2,)'), new Uint8Array(9)), 'FORMAT_MALFORMED'],
    ['a header that is longer than the file', Buffer.from('\x93NUMPY\x02\x00\xff\xff\xff\xff', 'latin1'), 'FORMAT_MALFORMED'],
    ['rows of texts without a byte', npy(dict('<U0', '(300,)')), 'FORMAT_MALFORMED'],
    ['texts of a length without end', npy(dict('<U99999999', '(1,)')), 'ROW_TOO_LONG'],
  ])('with %s', async (_, content, code) => {
    expect(await refused('x.npy', content)).toMatchObject({ code, file: expect.stringContaining('x.npy') as string });
  });
});

const idx = (type: number, shape: readonly number[], bytes: number): Buffer => {
  const head = Buffer.alloc(4 + 4 * shape.length);
  head.set([0, 0, type, shape.length]);
  shape.forEach((size, i) => head.writeUInt32BE(size, 4 + 4 * i));
  return Buffer.concat([head, new Uint8Array(bytes)]);
};

test.each([
  ['U+0000', '"b\\u0000c"'],
  ['half a surrogate pair', '"b\\ud800c"'],
])('a category with %s is refused with its place', async (_, text) => {
  const lines = `{"kind": "a", "n": 1}\n{"kind": ${text}, "n": 2}\n`;
  expect(await refused('odd.jsonl', lines, { columns: { kind: 'category' } })).toMatchObject({
    code: 'VALUE_MISFIT',
    row: 2,
    column: 'kind',
  });
});

test('what is quoted of a line that is not JSON can be stored', async () => {
  const error = await refused('odd.jsonl', '{"a": \0}\n');
  expect(error).toMatchObject({ code: 'FORMAT_MALFORMED', row: 1 });
  expect(error.message).not.toMatch(/\p{Cc}/u);
});

describe('IDX', () => {
  test.each([
    ['255 dimensions', Buffer.from([0, 0, 8, 255, 0, 0, 0, 1]), 'FORMAT_MALFORMED'],
    ['a product that overflows', idx(8, [2 ** 32 - 1, 2 ** 32 - 1, 2 ** 32 - 1], 4), 'ROW_TOO_LONG'],
    ['an unknown type', idx(7, [1], 1), 'FORMAT_MALFORMED'],
    ['a dimension of size 0', idx(8, [3, 0], 0), 'FORMAT_MALFORMED'],
    ['too few elements', idx(8, [10], 9), 'FORMAT_MALFORMED'],
    ['too many elements', idx(8, [10], 11), 'FORMAT_MALFORMED'],
  ])('with %s', async (_, content, code) => {
    expect(await refused('x.idx', content)).toMatchObject({ code });
  });

  test('pictures and labels of different counts', async () => {
    await bench.write('pair/a-images-idx3-ubyte', idx(8, [3, 2, 2], 12));
    await bench.write('pair/a-labels-idx1-ubyte', idx(8, [2], 2));
    const error = await refusal(bench.import({ sources: [`${bench.folder}/source/pair`] }));
    expect(error.message).toMatch(/a-label has 2 rows, a-image has 3/);
  });
});

test.each([
  ['a header longer than the file', Buffer.from('ffffffffffffff7f7b7d', 'hex')],
  ['offsets beyond the end', safetensors({ a: { dtype: 'F32', shape: [4], data_offsets: [0, 16] } }, 4)],
  ['a shape that overflows', safetensors({ a: { dtype: 'F32', shape: [2 ** 31, 2 ** 31], data_offsets: [0, 4] } }, 4)],
])('safetensors with %s', async (_, content) => {
  expect(await refused('x.safetensors', content)).toMatchObject({ code: 'FORMAT_MALFORMED' });
});

function safetensors(header: object, bytes: number): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, new Uint8Array(bytes)]);
}

describe('packed files', () => {
  test('that unpack to more than the limit, or to very many times their size', async () => {
    const zeros = gzipSync(new Uint8Array(80 << 20), { level: 9 });
    expect(await refused('bomb.txt.gz', zeros, { limits: { unpackedBytes: 1 << 20 } })).toMatchObject({ code: 'SOURCE_TOO_LARGE' });
    const error = await refused('ratio.txt.gz', zeros, { limits: { unpackRatio: 100, rowBytes: 1 << 28 } });
    expect(error).toMatchObject({ code: 'SOURCE_TOO_LARGE' });
    expect(error.message).toMatch(/100 times its size/);
  });

  test('that are cut off or damaged', async () => {
    const whole = gzipSync('x\n1\n2\n'.repeat(1000));
    expect(await refused('cut.csv.gz', whole.subarray(0, whole.length - 9))).toMatchObject({ code: 'FORMAT_MALFORMED' });
    expect(await refused('cut.csv.zst', Buffer.from('28b52ffd00', 'hex'))).toMatchObject({ code: 'FORMAT_MALFORMED' });
  });

  test('zstd with a window of gigabytes', async () => {
    const wide = Buffer.from('28b52ffd00f0000000', 'hex');
    expect((await refused('window.csv.zst', wide)).message).toMatch(/window is larger/);
    // Each frame has a window of its own. These come first: one that holds "a", a run of it with a checksum, and one that is skipped.
    const raw = Buffer.from('28b52ffd200109000061', 'hex');
    const run = Buffer.from('28b52ffd24041b00006100000000', 'hex');
    const passed = Buffer.from('5f2a4d180300000028b52f', 'hex');
    for (const before of [[raw], [run], [passed, raw], [raw, passed]])
      expect((await refused('window.csv.zst', Buffer.concat([raw, ...before, wide]))).message).toMatch(/window is larger/);
  });
});

describe('.npz', () => {
  /** One entry, deflated; the directory may claim another size. */
  function archive(name: string, data: Uint8Array, claimed = data.length): Buffer {
    const packed = deflateRawSync(data, { level: 9 });
    const fixed = Buffer.alloc(26);
    fixed.writeUInt16LE(20, 0);
    fixed.writeUInt16LE(8, 4);
    fixed.writeUInt32LE(packed.length, 14);
    fixed.writeUInt32LE(claimed, 18);
    fixed.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from('PK\x03\x04', 'latin1'), fixed, Buffer.from(name), packed]);
    const directory = Buffer.concat([Buffer.from('PK\x01\x02\x14\x00', 'latin1'), fixed, Buffer.alloc(14), Buffer.from(name)]);
    const end = Buffer.alloc(22);
    end.write('PK\x05\x06', 'latin1');
    end.writeUInt16LE(1, 8);
    end.writeUInt16LE(1, 10);
    end.writeUInt32LE(directory.length, 12);
    end.writeUInt32LE(local.length, 16);
    return Buffer.concat([local, directory, end]);
  }
  const zeros = npy(dict('|u1', `(${65 << 20},)`), new Uint8Array(65 << 20));

  test('that unpacks to very many times its size', async () => {
    const error = await refused('bomb.npz', archive('x.npy', zeros));
    expect(error).toMatchObject({ code: 'SOURCE_TOO_LARGE', file: expect.stringContaining('bomb.npz/x.npy') as string });
    expect(await refused('bomb.npz', archive('x.npy', zeros), { limits: { unpackedBytes: 1 << 20 } })).toMatchObject({
      code: 'SOURCE_TOO_LARGE',
    });
  });

  test('whose directory claims less than is unpacked', async () => {
    expect(await refused('liar.npz', archive('x.npy', zeros, 1000))).toMatchObject({ code: 'FORMAT_MALFORMED' });
  });
});

test('a disk that is full is named, and the work folder is left as it was', async () => {
  const source = await bench.write('full.csv', 'a,b\n1,2\n3,4\n5,6\n');
  const handle = await open(source);
  const files = Object.getPrototypeOf(handle) as { appendFile(): Promise<void> };
  await handle.close();
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', syscall: 'write' });
  const appends = vi.spyOn(files, 'appendFile').mockRejectedValue(full);
  try {
    const error = await refusal(bench.import({ sources: [source], split: { train: 0.5, test: 0.5 }, inOrder: true }));
    expect(error).toMatchObject({ code: 'DISK_FULL', detail: expect.stringMatching(/^ENOSPC in .*work-/) as string });
    expect(appends).toHaveBeenCalled();
  } finally {
    appends.mockRestore();
  }
  expect((await bench.import({ sources: [source], split: { train: 0.5, test: 0.5 }, inOrder: true })).manifest.isOrdered).toBe(true);
});

describe('archives', () => {
  const archive = async (header: Partial<Header> & Pick<Header, 'name'>, data = ''): Promise<Buffer> => {
    const tar = pack();
    tar.entry(header, data);
    tar.finalize();
    const pieces: Uint8Array[] = [];
    for await (const piece of tar) pieces.push(piece as Uint8Array);
    return Buffer.concat(pieces);
  };

  test.each([
    ['../', { name: '../up.txt' }, 'SOURCE_FORBIDDEN'],
    ['../ in the middle', { name: 'a/../../up.txt' }, 'SOURCE_FORBIDDEN'],
    ['an absolute name', { name: '/etc/passwd.txt' }, 'SOURCE_FORBIDDEN'],
    ['a drive', { name: 'C:\\a.txt' }, 'SOURCE_FORBIDDEN'],
    ['a symbolic link', { name: 'a.txt', type: 'symlink', linkname: '/etc/passwd' }, 'SOURCE_FORBIDDEN'],
    ['a hard link', { name: 'a.txt', type: 'link', linkname: '/etc/passwd' }, 'SOURCE_FORBIDDEN'],
    ['a device', { name: 'a.txt', type: 'character-device' }, 'SOURCE_FORBIDDEN'],
  ] as const)('with %s', async (_, header, code) => {
    expect(await refused('x.tar', await archive(header))).toMatchObject({ code });
  });

  test('with an entry that claims gigabytes', async () => {
    const whole = await archive({ name: 'a.txt' }, 'x');
    whole.write('77777777777\0', 124, 'latin1');
    let sum = 0;
    whole.fill(' ', 148, 156);
    for (const byte of whole.subarray(0, 512)) sum += byte;
    whole.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
    expect(await refused('x.tar', whole)).toMatchObject({ code: 'ROW_TOO_LONG' });
  });

  test('that are cut off', async () => {
    const whole = await archive({ name: 'a.txt' }, 'x'.repeat(5000));
    expect(await refused('x.tar', whole.subarray(0, 1500))).toMatchObject({ code: 'FORMAT_MALFORMED' });
  });
});

test('TFRecord with a damaged record, a damaged length, and a length without end', async () => {
  const head = Buffer.alloc(12);
  head.writeBigUInt64LE(2n ** 60n);
  expect(await refused('x.tfrecord', head)).toMatchObject({ code: 'FORMAT_MALFORMED', row: 1 });
});

describe('tables', () => {
  test('with a line without end', async () => {
    const limits = { rowBytes: 1 << 20 };
    const text = 'x'.repeat(3 << 20);
    expect(await refused('long.csv', `a,b\n"${text}`, { limits })).toMatchObject({ code: 'ROW_TOO_LONG' });
    expect(await refused('long.jsonl', `{"a":"${text}`, { limits })).toMatchObject({ code: 'ROW_TOO_LONG', row: 1 });
    expect(await refused('long.txt', text, { limits })).toMatchObject({ code: 'ROW_TOO_LONG' });
  });

  test('with a row of another width name file and row', async () => {
    const error = await refused('width.csv', 'a,b\n1,2\n3\n4,5\n');
    expect(error).toMatchObject({ code: 'COLUMN_COUNT', row: 2 });
    expect(error.message).toMatch(/has 1 columns, the first row 2/);
  });

  test('with more columns than a dataset may have', async () => {
    const wide = Array.from({ length: 100_001 }, (_, i) => `c${i}`).join(',');
    expect(await refused('wide.csv', `${wide}\n${'1,'.repeat(100_000)}1\n`)).toMatchObject({ code: 'TOO_MANY_COLUMNS' });
  });

  test.runIf(process.env['PACELINE_SOAK'] === '1')('with exactly as many columns as a dataset may have', async () => {
    const wide = Array.from({ length: 100_000 }, (_, i) => `c${i}`).join(',');
    const ones = `${'1,'.repeat(99_999)}1\n`;
    const sources = [await bench.write('widest.csv', `${wide}\n${ones}`)];
    const { manifest } = await importDataset({ sources }, new MemorySink(), { workFolder: bench.folder });
    expect(manifest.columns).toHaveLength(100_000);
  });

  test('whose numbers are written as hexadecimal, also behind a blank', async () => {
    for (const cell of ['0x1f', ' 0x1f', '0b1'])
      expect(await refused('hex.csv', `a\n1\n${cell}\n`, { columns: { a: 'number' } })).toMatchObject({ code: 'VALUE_MISFIT', row: 2 });
  });

  test.each(['__proto__', '__metadata__', 'a:offsets', 'x\u0007', 'y\u202e'])('with a column called %j', async (name) => {
    expect(await refused('name.csv', `ok,${name}\n1,2\n`)).toMatchObject({ code: 'COLUMN_NAME_INVALID', column: name });
    expect(await refused('name.jsonl', `{"ok":1,${JSON.stringify(name)}:2}\n`)).toMatchObject({ code: 'COLUMN_NAME_INVALID' });
  });

  test('with a column twice', async () => {
    expect(await refused('twice.csv', 'a,a\n1,2\n', { header: true })).toMatchObject({ code: 'COLUMN_NAME_INVALID', column: 'a' });
  });

  test('with a column that the rows before do not have', async () => {
    const lines = '{"a":1}\n'.repeat(11_000) + '{"a":1,"b":2}\n';
    expect(await refused('late.jsonl', lines)).toMatchObject({ code: 'COLUMN_UNKNOWN', row: 11_001, column: 'b' });
  });

  test('without rows, and without a label that was named', async () => {
    expect(await refused('empty.csv', '')).toMatchObject({ code: 'NO_ROWS' });
    expect(await refused('header.csv', 'a,b\n')).toMatchObject({ code: 'NO_ROWS' });
    expect(await refused('label.csv', 'a,b\n1,2\n', { label: 'c' })).toMatchObject({ code: 'COLUMN_UNKNOWN', column: 'c' });
  });

  test('whose label is not there where the others are whole numbers', async () => {
    const table = (missing: string): string =>
      `x,y\n${Array.from({ length: 30 }, (_, i) => `${i},${i === 6 ? missing : i % 2}`).join('\n')}\n`;
    for (const missing of ['NA', 'nan', '?', ''])
      expect(await refused('label.csv', table(missing), { label: 'y' })).toMatchObject({ code: 'VALUE_MISSING', row: 7, column: 'y' });
    const source = await bench.write('dropped.csv', table('?'));
    const { train } = await bench.import({ sources: [source], label: 'y', missing: 'drop' });
    expect(train).toHaveLength(29);
    expect(new Set(train.map(({ y }) => y))).toEqual(new Set(['0', '1']));
  });

  test('with two names that are equal above numbers', async () => {
    expect(await refused('twice.csv', 'x,y,x\n1,2,3\n4,5,6\n')).toMatchObject({ code: 'COLUMN_NAME_INVALID', column: 'x' });
  });

  test('that are not UTF-8', async () => {
    const latin = Buffer.from('name,n\nM\xfcller,1\nM\xf6ller,2\n', 'latin1');
    expect(await refused('latin.csv', latin)).toMatchObject({ code: 'FORMAT_MALFORMED' });
    expect(await refused('cut.csv', Buffer.from('name,n\na,1\nM\xc3', 'latin1'))).toMatchObject({ code: 'FORMAT_MALFORMED' });
    // A character may lie on both sides of where a file is cut into pieces.
    const long = await bench.write('long.csv', `n,name\n${Array.from({ length: 20_000 }, (_, i) => `${i},aä€😀`).join('\n')}\n`);
    expect((await bench.import({ sources: [long] })).train).toHaveLength(20_000);
    const wide = await bench.write('wide.csv', Buffer.from('\ufeffname,n\nMüller,1\nMöller,2\n', 'utf16le'));
    expect((await bench.import({ sources: [wide] })).train.map(({ name }) => name)).toEqual(['Müller', 'Möller']);
    expect(await refused('latin.jsonl', Buffer.from('{"a":"\xe4"}\n', 'latin1'))).toMatchObject({ code: 'FORMAT_MALFORMED', row: 1 });
  });
});

describe('with policy server', () => {
  test('paths outside of the allowed folders, and links in them, are refused', async () => {
    const inside = await bench.write('allowed/a.csv', 'x\n1\n');
    const outside = await bench.write('secret.csv', 'x\n1\n');
    const folder = `${bench.folder}/source/allowed`;
    const server = { policy: 'server' as const, access: { allowedFolders: [folder] } };
    expect((await bench.import({ sources: [`file://${inside}`], ...server })).train).toEqual([{ x: 1 }]);
    for (const source of [outside, `file://${outside}`, `${folder}/../secret.csv`, '/etc/passwd', '/no/such/file', `${folder}-more/x`])
      expect(await refusal(bench.import({ sources: [source], ...server }))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
    await symlink(outside, `${folder}/link.csv`);
    expect(await refusal(bench.import({ sources: [`${folder}/link.csv`], ...server }))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
    expect(await refusal(bench.import({ sources: [folder], ...server }))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
    expect(await refusal(bench.import({ sources: [inside], policy: 'server' }))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
  });

  test('modules and S3 are refused', async () => {
    const folder = `${bench.folder}/source`;
    const source = await bench.write('m.mjs', 'export default [{ x: 1 }];');
    const access = { allowedFolders: [folder] };
    expect(await refusal(bench.import({ sources: [source], format: 'module', policy: 'server', access }))).toMatchObject({
      code: 'SOURCE_FORBIDDEN',
    });
    expect(await refusal(bench.import({ sources: ['s3://bucket/key.csv'], policy: 'server' }))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
  });
});

describe('a file that changes while it is read', () => {
  const context: SourceContext = {
    options: checkOptions({ sources: ['x'] }),
    signal: undefined,
    workFolder: '.',
    traffic: { bytesRead: 0, bytesTotal: 0 },
    atClose: () => undefined,
  };
  const content = Buffer.alloc(3 << 20, 'x\n');
  /** In place: who reads meanwhile sees no other length. */
  const overwrite = async (file: string): Promise<void> => {
    const handle = await open(file, 'r+');
    await handle.write(Buffer.alloc(3 << 20, 'y\n'), 0, null, 0);
    await handle.close();
  };

  test.each([
    ['grows', (file: string) => appendFile(file, 'more\n'), /now has 3145733/],
    ['is cut', (file: string) => truncate(file, 5), /It had 3145728 bytes/],
    ['is written over', overwrite, /was written to while it was read/],
  ] as const)('and %s is refused', async (_, change, why) => {
    const file = await bench.write('changing.txt', content);
    await utimes(file, new Date(0), new Date(0));
    const [source] = await localFiles(file, undefined, context);
    const error = await refusal(
      (async () => {
        let isFirst = true;
        for await (const piece of source!.open()) {
          expect(piece.length).toBeGreaterThan(0);
          if (isFirst) await change(file);
          isFirst = false;
        }
      })(),
    );
    expect(error).toMatchObject({ code: 'SOURCE_CHANGED', detail: expect.stringMatching(why) as string, file });
  });
});

test('an import that ends at any of its steps leaves no work behind, and the next one goes on to the same version', async () => {
  const rows = Array.from({ length: 700 }, (_, i) => `${i},${i % 3}x,"some words ${i}"`).join('\n');
  const sources = [await bench.write('stages.csv', `a,b,c\n${rows}\n`)];
  const options = { sources, split: { train: 0.6, validation: 0.2, test: 0.2 }, inOrder: true };
  const whole = await bench.import(options);
  const workFolder = await mkdtemp(`${bench.folder}/stages-`);
  let stages = 0;
  for (let isOver = false; !isOver; stages++) {
    const sink = new MemorySink();
    let left = stages;
    const step = (): void => {
      if (left-- === 0) throw new Error('the process is gone');
    };
    const failing = {
      has: (sha256: string) => (step(), sink.has(sha256)),
      put: async (sha256: string, bytes: Uint8Array) => (step(), await sink.put(sha256, bytes), step()),
    };
    const ended = await importDataset(options, failing, { workFolder, onProgress: step }).then(
      ({ version }) => version,
      (error: Error) => error.message,
    );
    isOver = left >= 0;
    expect(ended).toBe(isOver ? whole.version : 'the process is gone');
    expect(await readdir(workFolder)).toEqual([]);
    const kept = sink.puts;
    expect((await bench.import(options, sink)).version).toBe(whole.version);
    expect([sink.puts, kept <= 3]).toEqual([3, true]);
  }
  expect(stages).toBeGreaterThan(10);
});
