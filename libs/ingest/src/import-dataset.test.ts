import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Bench, MemorySink, refusal } from './import.fixture.js';
import { readRows } from './read-rows.js';
import { BlockSplits } from './splits.js';

let bench: Bench;
beforeAll(async () => void (bench = await Bench.open()));
afterAll(() => bench[Symbol.asyncDispose]());

const FLOWERS = 'length,width,species\n5.1,3.5,setosa\n4.9,3,virginica\n6,2.9,setosa\n';

test('a table becomes columns, rows, statistics and a version', async () => {
  const source = await bench.write('flowers.csv', FLOWERS);
  const { manifest, train } = await bench.import({ sources: [source], label: 'species' });
  expect(train).toEqual([
    { length: Math.fround(5.1), width: 3.5, species: 'setosa' },
    { length: Math.fround(4.9), width: 3, species: 'virginica' },
    { length: 6, width: Math.fround(2.9), species: 'setosa' },
  ]);
  expect(manifest.label).toBe('species');
  expect(manifest.isOrdered).toBe(true);
  expect(manifest.columns[2]).toEqual({
    name: 'species',
    kind: 'category',
    vocabulary: ['setosa', 'virginica'],
    statistics: { count: 3, missing: 0, counts: [2, 1] },
  });
  const [length] = manifest.columns;
  expect(length).toMatchObject({ kind: 'number', statistics: { count: 3, missing: 0, maximum: 6, minimum: Math.fround(4.9) } });
  const values = [5.1, 4.9, 6].map(Math.fround);
  const mean = values.reduce((a, b) => a + b) / 3;
  const deviation = Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / 3);
  if (length?.kind !== 'number') throw new Error('no number');
  expect(length.statistics.mean).toBeCloseTo(mean, 12);
  expect(length.statistics.deviation).toBeCloseTo(deviation, 12);
  expect(length.statistics.histogram).toHaveLength(20);
  expect([length.statistics.histogram![0], length.statistics.histogram![3], length.statistics.histogram![19]]).toEqual([1, 1, 1]);
});

test('the same source gives the same version, and a second import sends no shard again', async () => {
  const source = await bench.write('twice.csv', 'a,b\n' + Array.from({ length: 1000 }, (_, i) => `${i},${i % 7}x`).join('\n'));
  const options = { sources: [source], split: { train: 0.8, validation: 0.1, test: 0.1 }, seed: 5 };
  const first = await bench.import(options);
  const second = await bench.import(options, first.sink);
  expect(second.version).toBe(first.version);
  expect(first.sink.puts).toBe(3);
  const other = await bench.import({ ...options, seed: 6 });
  expect(other.version).not.toBe(first.version);
});

describe('splits', () => {
  const table = (rows: number) => 'i\n' + Array.from({ length: rows }, (_, i) => i).join('\n');

  test('keep their fractions in every block of 100 rows, and a permutation says which rows', async () => {
    const source = await bench.write('split.csv', table(1050));
    const { manifest, rows, train } = await bench.import({ sources: [source], split: { train: 0.8, validation: 0.1, test: 0.1 } });
    const ids = (split: 'train' | 'validation' | 'test') => rows(split).map(({ i }) => i as number);
    expect(train).toHaveLength(840);
    for (let block = 0; block < 10; block++)
      for (const [split, count] of [
        ['train', 80],
        ['validation', 10],
        ['test', 10],
      ] as const)
        expect(ids(split).filter((i) => Math.floor(i / 100) === block)).toHaveLength(count);
    expect([...ids('train'), ...ids('validation'), ...ids('test')].sort((a, b) => a - b)).toEqual(
      Array.from({ length: 1050 }, (_, i) => i),
    );
    // The same on every machine and in every release: a dataset of an older one must come out the same.
    expect(ids('test').slice(0, 10)).toMatchInlineSnapshot(`
      [
        1,
        2,
        5,
        17,
        32,
        40,
        72,
        74,
        76,
        78,
      ]
    `);
    expect(manifest.isOrdered).toBe(false);
  });

  test('keep shares that are no whole percents: after any number of rows each split has its share to a row', () => {
    const shares = fc.tuple(fc.integer({ min: 1, max: 5000 }), fc.nat({ max: 5000 }), fc.nat({ max: 5000 }));
    fc.assert(
      fc.property(shares, fc.nat({ max: 99 }), fc.nat({ max: 60 }), ([a, b, c], last, blocks) => {
        const sum = a + b + c;
        const fractions = { train: a / sum, validation: b / sum, test: c / sum };
        const splits = new BlockSplits(fractions, 1);
        const counts = { train: 0, validation: 0, test: 0 };
        for (let n = 0, block = 0; block <= blocks; block++) {
          const rows = block < blocks ? 100 : last;
          for (const split of splits.next(rows)) counts[split]++;
          n += rows;
          for (const split of ['train', 'validation', 'test'] as const)
            expect(Math.abs(counts[split] - fractions[split] * n)).toBeLessThan(1);
        }
      }),
      { numRuns: 60 },
    );
  });

  test('whose shares miss a whole by a little give every row one split, however many there are', () => {
    const splits = new BlockSplits({ train: 0.8, test: 0.19 }, 1);
    const found = Array.from({ length: 200 }, () => splits.next(100)).flat();
    expect([found.length, found.includes(undefined as never)]).toEqual([20_000, false]);
    expect(Math.abs(found.filter((split) => split === 'test').length - (20_000 * 19) / 99)).toBeLessThan(1);
  });

  test('whose share is below one row are told', async () => {
    const source = await bench.write('few.csv', table(1000));
    const split = { train: 0.998, validation: 0.0019, test: 0.0001 };
    const { manifest, warnings } = await bench.import({ sources: [source], split });
    expect(manifest.splits).toMatchObject({ train: { rows: 998 }, validation: { rows: 2 } });
    expect(warnings).toEqual([expect.stringMatching(/^The split test has no row: its share of 1000 rows/)]);
  });

  test('in order cut training, validation and test one after the other', async () => {
    const source = await bench.write('series.csv', table(1000));
    const { manifest, rows } = await bench.import({ sources: [source], split: { train: 0.7, validation: 0.2, test: 0.1 }, inOrder: true });
    expect(rows('train').map(({ i }) => i)).toEqual(Array.from({ length: 700 }, (_, i) => i));
    expect(rows('validation').map(({ i }) => i)).toEqual(Array.from({ length: 200 }, (_, i) => 700 + i));
    expect(rows('test').map(({ i }) => i)).toEqual(Array.from({ length: 100 }, (_, i) => 900 + i));
    expect(manifest.isOrdered).toBe(true);
    const [column] = manifest.columns;
    expect(column).toMatchObject({ statistics: { count: 700, minimum: 0, maximum: 699 } });
  });

  test('of separate sources stay apart, and columns are matched by name', async () => {
    const train = await bench.write('a.csv', 'x,y\n1,u\n2,v\n');
    const held = await bench.write('b.csv', 'y,x\nw,3\n');
    const { rows, manifest } = await bench.import({
      sources: [
        { location: train, split: 'train' },
        { location: held, split: 'test' },
      ],
    });
    expect(rows('test')).toEqual([{ x: 3, y: 'w' }]);
    expect(manifest.columns[1]).toMatchObject({ vocabulary: ['u', 'v', 'w'], statistics: { counts: [1, 1, 0] } });
  });

  test('in their order say where each further file begins, the tenth behind the second', async () => {
    const files = [1, 2, 10].map(async (n) => bench.write(`stations/s-${n}.csv`, `t\n${10 * n}\n${10 * n + 1}\n`));
    await Promise.all(files);
    const sources = [path.join(bench.folder, 'source', 'stations')];
    const whole = await bench.import({ sources });
    expect(whole.train.map(({ t }) => t)).toEqual([10, 11, 20, 21, 100, 101]);
    expect(whole.manifest.splits.train.starts).toEqual([2, 4]);
    const cut = await bench.import({ sources, inOrder: true, split: { train: 0.5, validation: 0.5 } });
    expect([cut.manifest.splits.train.starts, cut.manifest.splits.validation!.starts]).toEqual([[2], [1]]);
    expect((await bench.import({ sources, oneSeries: true })).manifest.splits.train).not.toHaveProperty('starts');
    expect((await bench.import({ sources, split: { train: 0.5, test: 0.5 } })).manifest.splits.train).not.toHaveProperty('starts');
  });

  test('that do not add up are refused', async () => {
    const source = await bench.write('sum.csv', table(10));
    const error = await refusal(bench.import({ sources: [source], split: { train: 0.8, test: 0.1 } }));
    expect(error).toMatchObject({ code: 'OPTIONS_INVALID' });
  });
});

describe('missing values', () => {
  const GAPS = 'a,b\n1,x\n,y\n3,\nNaN,z\n';

  test('are refused with file, row and column', async () => {
    const source = await bench.write('gaps.csv', GAPS);
    const error = await refusal(bench.import({ sources: [source] }));
    expect(error).toMatchObject({ code: 'VALUE_MISSING', file: source, row: 2, column: 'a' });
  });

  test('are left out with their rows, and counted', async () => {
    const source = await bench.write('gaps.csv', GAPS);
    const { manifest, train, warnings } = await bench.import({ sources: [source], missing: 'drop', columns: { b: 'category' } });
    expect(train).toEqual([{ a: 1, b: 'x' }]);
    expect(manifest.dropped).toEqual({ missing: 3 });
    expect(warnings.join()).toMatch(/3 of 4 rows/);
    expect(manifest.columns[1]).toMatchObject({ vocabulary: ['x'] });
  });

  test('are kept as missing', async () => {
    const source = await bench.write('gaps.csv', GAPS);
    const { manifest, train } = await bench.import({ sources: [source], missing: 'fill', columns: { b: 'category' } });
    expect(train).toEqual([
      { a: 1, b: 'x' },
      { a: null, b: 'y' },
      { a: 3, b: null },
      { a: null, b: 'z' },
    ]);
    expect(manifest.columns).toMatchObject([{ statistics: { count: 2, missing: 2, mean: 2 } }, { statistics: { count: 3, missing: 1 } }]);
  });
});

describe('types', () => {
  test('are inferred from the first rows; a later value that does not fit names its place', async () => {
    const source = await bench.write('late.csv', 'n\n' + '1\n'.repeat(12_000) + 'twelve\n');
    const error = await refusal(bench.import({ sources: [source] }));
    expect(error).toMatchObject({ code: 'VALUE_MISFIT', row: 12_001, column: 'n' });
    expect(error.message).toMatch(/"twelve" is no number; .* force another type with the option columns/);
  });

  test('can be forced, and a column left out', async () => {
    const source = await bench.write('zip.csv', 'zip,id,note\n01234,7,a b\n99999,8,c d\n');
    const { train } = await bench.import({ sources: [source], columns: { zip: 'category', id: 'ignore', note: 'text' } });
    expect(train).toEqual([
      { zip: '01234', note: 'a b' },
      { zip: '99999', note: 'c d' },
    ]);
  });

  test('whole numbers that float32 does not hold are told', async () => {
    const source = await bench.write('ids.csv', 'id\n16777217\n2\n');
    expect((await bench.import({ sources: [source] })).warnings.join()).toMatch(/"id" .* 16777217/);
  });

  test.each(['0x1f', '1e400', 'Infinity', '1 2', '1,5'])('%s is no number', async (text) => {
    const source = await bench.write('number.csv', `n\n"${text}"\n`);
    const error = await refusal(bench.import({ sources: [source], columns: { n: 'number' } }));
    expect(error).toMatchObject({ code: 'VALUE_MISFIT', row: 1, column: 'n' });
  });
});

describe('numbers that are not written as programs do', () => {
  const german = 'size;price;town\n0,5;1.234,25;x\n2;3,75;y\n-1,5;10;x\n';

  test('are told by name, and read with the sign that the user gives', async () => {
    const source = await bench.write('german.csv', german);
    expect((await bench.import({ sources: [source] })).warnings).toEqual([
      expect.stringMatching(/^Column "size" holds numbers such as "0,5", and became a category column: .*--decimal ,/),
      expect.stringMatching(/^Column "price" /),
    ]);
    const { train, warnings, manifest } = await bench.import({ sources: [source], decimal: ',' });
    expect(train).toEqual([
      { size: 0.5, price: 1234.25, town: 'x' },
      { size: 2, price: 3.75, town: 'y' },
      { size: -1.5, price: 10, town: 'x' },
    ]);
    expect([warnings, manifest.dialect]).toEqual([[], { decimal: ',' }]);
    const rows = readRows({ sources: [source], columns: { price: 'number' }, decimal: ',', workFolder: bench.folder });
    const prices: unknown[] = [];
    for await (const { rows: read } of rows) prices.push(...read.map(({ price }) => price));
    expect(prices).toEqual([1234.25, 3.75, 10]);
    const forced = await refusal(bench.import({ sources: [source], columns: { size: 'number' } }));
    expect(forced).toMatchObject({ code: 'VALUE_MISFIT', row: 1, detail: expect.stringContaining('--decimal') as string });
  });

  test('may separate thousands; what no rule allows is no number', async () => {
    const source = await bench.write('thousands.csv', 'a\n"1,234,567.5"\n"12"\n"1 000"\n');
    expect((await bench.import({ sources: [source], decimal: '.' })).train.map(({ a }) => a)).toEqual([1234567.5, 12, 1000]);
    const odd = await bench.write('odd-groups.csv', 'a\n"1.5"\n"12,5"\n');
    expect(await refusal(bench.import({ sources: [odd], decimal: ',', columns: { a: 'number' } }))).toMatchObject({ row: 1 });
  });
});

test('a sink that fails ends the import with its failure', async () => {
  const source = await bench.write('flowers.csv', FLOWERS);
  const sink = new MemorySink();
  sink.put = () => Promise.reject(new Error('the disk is full'));
  await expect(bench.import({ sources: [source] }, sink)).rejects.toThrow('the disk is full');
});

describe('what only rows outside of the training split have', () => {
  const columnOf = async (name: string, text: string, column: string, options: object = {}) => {
    const sources = [{ location: await bench.write(name, text), split: 'train' as const }];
    const other = { location: await bench.write(`test-${name}`, (options as { test: string }).test), split: 'test' as const };
    const { manifest } = await bench.import({ sources: [...sources, other], missing: 'fill' });
    return manifest.columns.find((one) => one.name === column);
  };

  test('stands in the manifest: missing values, a first negative number, classes and lengths of sequences', async () => {
    const table = { test: 'a,w,c\n,-2,\n,3,x\n' };
    expect(await columnOf('held.csv', 'a,w,c\n1,0,x\n2,5,y\n', 'a', table)).toMatchObject({ heldOut: { test: { missing: 2 } } });
    expect(await columnOf('held.csv', 'a,w,c\n1,0,x\n2,5,y\n', 'w', table)).toMatchObject({ heldOut: { test: { minimum: -2 } } });
    expect(await columnOf('held.csv', 'a,w,c\n1,0,x\n2,5,y\n', 'c', table)).toMatchObject({ heldOut: { test: { missing: 1 } } });
    const lines = { test: '{"s":[9]}\n{"s":[1,2,3]}\n' };
    expect(await columnOf('held.jsonl', '{"s":[1,2]}\n{"s":[0,2,2]}\n', 's', lines)).toMatchObject({
      heldOut: { test: { maximum: 9, shortest: 1 } },
    });
  });

  test('is not said where the training split has it too', async () => {
    expect(await columnOf('known.csv', 'a,b\n,-1\n2,3\n', 'a', { test: 'a,b\n,-7\n' })).not.toHaveProperty('heldOut');
    expect(await columnOf('known.csv', 'a,b\n,-1\n2,3\n', 'b', { test: 'a,b\n,-7\n' })).not.toHaveProperty('heldOut');
  });

  test('as a class is a warning that names file and row; a label without a value is refused with its place', async () => {
    const train = { location: await bench.write('labels.csv', 'a,kind\n1,cat\n2,dog\n'), split: 'train' as const };
    const typed = { location: await bench.write('typed.csv', 'a,kind\n1,cat\n2,dgo\n'), split: 'test' as const };
    const { warnings } = await bench.import({ sources: [train, typed], label: 'kind' });
    expect(warnings).toEqual([expect.stringMatching(/^The class "dgo" of column "kind" stands in no row .*first in .*typed\.csv row 2: /)]);
    const empty = { location: await bench.write('empty-label.csv', 'a,kind\n1,cat\n2,\n'), split: 'test' as const };
    const error = await refusal(bench.import({ sources: [train, empty], label: 'kind', missing: 'fill' }));
    expect(error).toMatchObject({
      code: 'VALUE_MISSING',
      row: 2,
      column: 'kind',
      file: expect.stringContaining('empty-label.csv') as string,
    });
  });
});
