import { expect, it } from 'vitest';
import { extendedOf, totalText } from './extension.js';

it('says what the run will be after an extension by epochs or by rounds', () => {
  const progress = { rounds: 1175, totalRounds: 1175, totalEpochs: 5 };
  expect(totalText('2', 'epochs', progress)).toBe('1,175 rounds + 470 = 1,645 rounds (7 epochs)');
  expect(totalText('100', 'rounds', progress)).toBe('1,175 rounds + 100 = 1,275 rounds (5.4 epochs)');
  expect(totalText('1', 'rounds', { rounds: 150, totalRounds: 150, totalEpochs: 150 / 235 })).toBe(
    '150 rounds + 1 = 151 rounds (0.6 epochs)',
  );
  expect(['', '0', '1.5', 'x', '1e12'].map((typed) => totalText(typed, 'rounds', progress))).toEqual(['', '', '', '', '']);
});

it('begins where a run has ended that stopped early, with the rounds per epoch that were planned', () => {
  const progress = { totalRounds: 1175, totalEpochs: 5 };
  const stopped = extendedOf({ status: 'SUCCEEDED', progress, result: { rounds: 470 } });
  expect(totalText('2', 'epochs', stopped)).toBe('470 rounds + 470 = 940 rounds (4 epochs)');
  expect(totalText('30', 'rounds', stopped, false)).toBe('470 rounds + 30 = 500 rounds');
  expect(extendedOf({ status: 'PAUSED', progress, result: { rounds: 470 } }).rounds).toBe(1175);
  expect(extendedOf({ status: 'SUCCEEDED', progress, result: null }).rounds).toBe(1175);
});
