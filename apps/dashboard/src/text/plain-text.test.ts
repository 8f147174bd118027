import { describe, expect, it } from 'vitest';
import { plainText, sentence } from './plain-text.js';

describe('plainText', () => {
  it('leaves markup as the text that it is', () => {
    expect(plainText('<script>alert(1)</script> & "x"')).toBe('<script>alert(1)</script> & "x"');
  });
  it('drops terminal escapes, bidirectional overrides and zero width characters', () => {
    expect(plainText('\u001b[31mred\u001b[0m \u001b]0;title\u0007x')).toBe('red x');
    expect(plainText('a\u202Eb\u200Bc\u2066d')).toBe('abcd');
    expect(plainText('a\u0000b\u007Fc\u009Bd')).toBe('abcd');
  });
  it('makes one line of several', () => {
    expect(plainText('first\r\nsecond\u2028third\tx')).toBe('first secondthird x');
  });
  it('cuts at whole characters', () => {
    expect(plainText('😀😀😀', 2)).toBe('😀😀…');
  });
  it('makes a sentence of a fragment', () => {
    expect([sentence('is being cancelled'), sentence(''), sentence(null)]).toEqual(['Is being cancelled', '', '']);
  });
  it('is empty for what is no text', () => {
    expect(plainText(undefined)).toBe('');
    expect(plainText({ toString: () => 'x' })).toBe('');
  });
});
