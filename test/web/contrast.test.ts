import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const css = readFileSync(join(import.meta.dirname, '../../apps/dashboard/src/styles/tokens.css'), 'utf8');
/** --name: light-dark(#light, #dark); */
const pairsOf = [...css.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);/g)];
const light = Object.fromEntries(pairsOf.map(([, name, colour]) => [name, colour]));
const dark = Object.fromEntries(pairsOf.map(([, name, , colour]) => [name, colour]));

/** WCAG 2.2, relative luminance. */
function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [lighter = 0, darker = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (lighter + 0.05) / (darker + 0.05);
}

describe.each([
  ['light', light],
  ['dark', dark],
])('colours of the %s scheme', (_name, colours: Record<string, string | undefined>) => {
  const grounds = ['ground', 'surface', 'sunken'];
  const texts = ['text', 'text-2', 'accent', 'good', 'bad', 'wait'];
  const pairs = [
    ...texts.flatMap((text) => grounds.map((ground) => [text, ground])),
    ['accent-text', 'accent'],
    ['surface', 'bad'],
    ['text', 'bad-ground'],
  ];

  it.each(pairs)('%s on %s is readable (4.5:1)', (text, ground) => {
    expect(contrast(colours[text!]!, colours[ground!]!)).toBeGreaterThanOrEqual(4.5);
  });
});
