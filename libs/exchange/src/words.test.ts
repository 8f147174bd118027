import { expect, it } from 'vitest';
import { counted, sizeText } from './words.js';

it('numbers have their noun and their unit', () => {
  expect([counted(1, 'worker'), counted(0, 'worker'), counted(2, 'round')]).toEqual(['1 worker', '0 workers', '2 rounds']);
  expect([sizeText(1), sizeText(900), sizeText(1_883_728), sizeText(3 * 2 ** 30)]).toEqual(['1 byte', '900 bytes', '1.8 MiB', '3.0 GiB']);
});
