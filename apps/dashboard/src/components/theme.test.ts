import { expect, it } from 'vitest';
import { THEMES, nextTheme, readTheme } from './theme.js';

it('goes through device, light and dark, and takes an unknown choice as none', () => {
  expect(THEMES.map(nextTheme)).toEqual(['light', 'dark', 'system']);
  const stored = (value: string | null) => readTheme({ getItem: () => value });
  expect([stored('dark'), stored('light'), stored(null), stored('purple')]).toEqual(['dark', 'light', 'system', 'system']);
});
