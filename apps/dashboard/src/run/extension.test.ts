import { expect, it } from 'vitest';
import { totalText } from './extension.js';

it('says what the run will be after an extension by epochs or by rounds', () => {
  const progress = { totalRounds: 1175, totalEpochs: 5 };
  expect(totalText('2', 'epochs', progress)).toBe('1,175 rounds + 470 = 1,645 rounds (7 epochs)');
  expect(totalText('100', 'rounds', progress)).toBe('1,175 rounds + 100 = 1,275 rounds (5.4 epochs)');
  expect(totalText('1', 'rounds', { totalRounds: 150, totalEpochs: 150 / 235 })).toBe('150 rounds + 1 = 151 rounds (0.6 epochs)');
  expect(['', '0', '1.5', 'x', '1e12'].map((typed) => totalText(typed, 'rounds', progress))).toEqual(['', '', '', '', '']);
});
