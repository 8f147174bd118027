/** Texts of the plan: the vocabulary comes with the features (see vocabulary.ts), the ids of a tokenizer.json from itself. */
import type { EncoderOf, Feature } from '@paceline/spec';
import type { Resolution } from './resolution.js';
import { tokenizerIds } from './tokenizer.js';

/** Ids before the vocabulary: padding and unknown. */
export const RESERVED_IDS = 2;

export function textEncoder(
  resolution: Resolution,
  path: string,
  feature: Extract<Feature, { kind: 'text' }>,
): { encoder: EncoderOf<'text'>; shape: number[] } | undefined {
  const column = resolution.column(`${path}.column`, feature.column, ['text']);
  if (!column) return undefined;
  const ids = idsOf(resolution, path, feature);
  if (ids === undefined) return undefined;
  const { tokens, length, lowerCase, vocabulary = [], tokenizer, encode } = feature;
  const encoder: EncoderOf<'text'> = {
    kind: 'text',
    column: column.name,
    tokens,
    length,
    skip: 0,
    lowerCase,
    vocabulary,
    encode,
    ids,
    tokenizer,
  };
  return { encoder, shape: encode === 'multi-hot' ? [ids] : [length] };
}

function idsOf(
  resolution: Resolution,
  path: string,
  { tokens, tokenizer, vocabulary }: Extract<Feature, { kind: 'text' }>,
): number | undefined {
  if (tokens !== 'tokenizer') {
    if (tokenizer !== undefined) return resolution.issue(`${path}.tokenizer`, `needs tokens: tokenizer, and tokens is ${tokens}`);
    if (vocabulary !== undefined && vocabulary.length > 0) {
      const seen = new Set<string>();
      const twice = vocabulary.findIndex((token) => seen.size === seen.add(token).size);
      return twice === -1
        ? vocabulary.length + RESERVED_IDS
        : resolution.issue(`${path}.vocabulary.${twice}`, `${JSON.stringify(vocabulary[twice])} stands twice`);
    }
    return resolution.issue(`${path}.vocabulary`, 'has no token: the training split holds no text that could give any, so list them');
  }
  if (vocabulary !== undefined) return resolution.issue(`${path}.vocabulary`, 'does not go with tokens: tokenizer, which brings its own');
  if (tokenizer === undefined) return resolution.issue(`${path}.tokenizer`, 'is missing: put the content of tokenizer.json here');
  try {
    return tokenizerIds(tokenizer);
  } catch (error) {
    return resolution.issue(
      `${path}.tokenizer`,
      `is no tokenizer.json that can be read: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}
