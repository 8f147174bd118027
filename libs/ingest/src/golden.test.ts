/** Versions of small imports, written down: a version names bytes that people have, so a faster import must make the same. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bench } from './import.fixture.js';

let bench: Bench;
beforeAll(async () => void (bench = await Bench.open()));
afterAll(() => bench[Symbol.asyncDispose]());

const WORDS = ['Rome', ' Rome ', 'Oslo', 'São Paulo', '"a ""quoted"" word"', '"two\nlines"', '', '東京'];
const NUMBERS = ['1', '-2.5', '1e3', '', '0.1', '16777217', '+7', ' 8 ', '.5', '3.', 'NA', '1E-7', '0', '-0', '123456.789'];
const NOTES = ['short', '', '"with, a comma"', 'naïve café', '🙂 and more', 'x'.repeat(300), '"q""q"'];

const table = (rows: number): string =>
  `\ufeffa,b,city,note,kind\r\n${Array.from({ length: rows }, (_, i) =>
    `${NUMBERS[(i * 7) % 15]},${(i * 37) % 1001}.${i % 10},${WORDS[(i * 5) % 8]},${NOTES[(i * 3) % 7]} ${i},${i % 3}`.replace(
      /" (\d+),/,
      '$1",',
    ),
  ).join('\r\n')}\r\n`;

const VERSIONS = {
  ordered: 'f3605ba57aa773d34e7a8808d67ef05093168ea99cab1c74018779758da7f788',
  divided: '9727761b165a6b81ea2557e0118924842b0244924fec93e28a4e48761711cc1e',
  inOrder: '33835411e90acc7a256d150207e5ce6ef0be769f2b358a0bc80316669fbcf309',
  dropped: 'b7c8f683913fe0ecf636d0b3baf6a2a14620ff0cae3202361e3f11e09edef087',
};

test.each([
  ['ordered', {}],
  ['divided', { split: { train: 0.7, validation: 0.2, test: 0.1 }, seed: 9 }],
  ['inOrder', { split: { train: 0.8, test: 0.2 }, inOrder: true }],
  ['dropped', { missing: 'drop', split: { train: 0.9, test: 0.1 } }],
] as const)('a table that is %s has the version that it always had', async (name, options) => {
  // More rows than the head of 10,000 that types are inferred from, and a last block that is not full.
  const source = await bench.write('golden.csv', table(12_345));
  const { version } = await bench.import({ sources: [source], label: 'kind', columns: { note: 'text' }, missing: 'fill', ...options });
  expect(version).toBe(VERSIONS[name]);
});
