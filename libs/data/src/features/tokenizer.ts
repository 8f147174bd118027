/** From texts to tokens: characters, words, or the ids of a tokenizer.json of Hugging Face. */
import { Tokenizer } from '@huggingface/tokenizers';
import type { EncoderOf } from '@paceline/spec';

/** Letters, marks, digits and _ hang together; an apostrophe joins two of them. Punctuation and blanks separate and are no words. */
const WORD = /[\p{L}\p{M}\p{N}_]+(?:['’][\p{L}\p{M}\p{N}_]+)*/gu;

/** Tokens of a text in its Unicode normal form C. */
export function tokensOf(text: string, tokens: 'character' | 'word', lowerCase: boolean): string[] {
  const normal = text.normalize('NFC');
  const cased = lowerCase ? normal.toLowerCase() : normal;
  return tokens === 'character' ? [...cased] : (cased.match(WORD) ?? []);
}

/** Ids of a text; bounded by whoever takes them. */
export type TextIds = (text: string) => readonly number[];

const UNKNOWN_ID = 1;
const FIRST_ID = 2;

export function textIds({ tokens, lowerCase, vocabulary, tokenizer }: EncoderOf<'text'>): TextIds {
  if (tokens === 'tokenizer') {
    const opened = openTokenizer(tokenizer);
    return (text) => opened.encode(text).ids;
  }
  const ids = new Map(vocabulary.map((token, i) => [token, i + FIRST_ID]));
  return (text) => tokensOf(text, tokens, lowerCase).map((token) => ids.get(token) ?? UNKNOWN_ID);
}

/** One more than the largest id. @throws when it is no tokenizer.json */
export function tokenizerIds(tokenizer: unknown): number {
  let most = 0;
  for (const id of openTokenizer(tokenizer).get_vocab(true).values()) if (id > most) most = id;
  return most + 1;
}

function openTokenizer(tokenizer: unknown): Tokenizer {
  if (tokenizer === null || typeof tokenizer !== 'object' || !('model' in tokenizer)) throw new TypeError('it has no field "model"');
  return new Tokenizer(tokenizer, {});
}
