import { expect, it } from 'vitest';
import { SentFiles } from './sent-files.js';

it('a file is sent once, and the same import has the same key', async () => {
  const sent = new SentFiles();
  const [first, second] = [new File(['1'], 'a.csv'), new File(['2'], 'a.csv')];
  let uploads = 0;
  const idOf = (file: File) => sent.idOf(file, async () => `upload ${++uploads}`);
  await expect(sent.idOf(first, () => Promise.reject(new Error('broke')))).rejects.toThrow('broke');
  expect([await idOf(first), await idOf(second), await idOf(first)]).toEqual(['upload 1', 'upload 2', 'upload 1']);

  const key = sent.keyOf({ name: 'a', uploads: ['upload 1'] });
  expect(sent.keyOf({ name: 'a', uploads: ['upload 1'] })).toBe(key);
  expect(sent.keyOf({ name: 'b', uploads: ['upload 1'] })).not.toBe(key);

  sent.forget();
  expect(await idOf(first)).toBe('upload 3');
});
