/**
 * Patterns for variables of a model: `conv*`, `dense_1/kernel`, `encoder/dense_1`. A star stands for any characters. A pattern names variables,
 * whole layers, or whole nested models; without a slash it is never one variable alone.
 */
import { z } from 'zod';
import { LIMITS } from './limits.js';

export const variablePatternsSchema = z
  .array(
    z
      .string()
      .min(1)
      .max(200)
      .regex(/^[A-Za-z0-9_.*/-]+$/, 'must be the name of a layer, of a nested model or layer/weight, with * for any characters'),
  )
  .min(1)
  .max(LIMITS.modelLayers);

/** Whether one of the patterns names the variable with this path, `layer/weight`, or something that it is part of. */
export function matchesPatterns(patterns: readonly string[] | undefined, path: string): boolean {
  if (patterns === undefined || patterns.length === 0) return false;
  const wholes: string[] = [];
  for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1)) wholes.push(path.slice(0, at));
  return patterns.some((pattern) => wholes.some((whole) => hasForm(whole, pattern)) || (pattern.includes('/') && hasForm(path, pattern)));
}

/** Searches each part of the pattern behind the one before. No regular expression, because a hostile pattern could make it slow. */
function hasForm(text: string, pattern: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  if (rest.length === 0) return text === first;
  const last = rest.pop()!;
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
