/**
 * Vocabularies of texts, made from the training split before the features are resolved: they stand in the features from then on, so that the plan
 * says everything by itself. Tokens come in the order of how often they occur, those of equal counts in the order of their UTF-16 units.
 */
import { LIMITS, type DatasetManifest, type Feature, type Features, type SpecIssue } from '@paceline/spec';
import { asNamed } from '../prepared/resident-shard.js';
import { rowsOfColumn } from '../prepared/shard-columns.js';
import { shardLayout } from '../prepared/shard-layout.js';
import { startOf } from '../prepared/shard-columns.js';
import type { ShardSource } from '../prepared/shard-source.js';
import { completeFeatures } from './default-features.js';
import { Resolution } from './resolution.js';
import { tokensOf } from './tokenizer.js';

export type LearnResult =
  | { readonly ok: true; readonly features: Features | undefined }
  | { readonly ok: false; readonly issues: readonly SpecIssue[] };

type TextFeature = Extract<Feature, { kind: 'text' }>;

export interface LearnOptions {
  /** Most bytes of text read for one vocabulary: the training split from its beginning. */
  readonly maxBytes?: number;
  /** Most bytes of all vocabularies together, as JSON. */
  readonly maxVocabularyBytes?: number;
}

const MAX_BYTES = 256 << 20;
const ROWS_AT_ONCE = 4096;
/** Tokens that are counted at once; beyond it those that occurred once are forgotten, and what is left is approximate. */
const COUNTED_MAX = 2_000_000;
const TOKEN_CHARACTERS = 200;
const VOCABULARY_MIN = 3;

/**
 * Without a row that is read: whether a vocabulary is to be learned, and the features with one token in its place. Whatever else is wrong with them
 * is found with those.
 */
export function provisionalVocabularies(
  manifest: DatasetManifest,
  features: Features | undefined,
): { readonly isNeeded: boolean; readonly features: Features | undefined } {
  const complete = completeFeatures(new Resolution(manifest), features);
  const needsOne = neededIn(manifest);
  if (!complete || !Object.values(complete.inputs).flat().some(needsOne)) return { isNeeded: false, features };
  const inputs = Object.fromEntries(
    Object.entries(complete.inputs).map(([name, list]) => [
      name,
      list.map((feature) => (needsOne(feature) ? Object.assign({}, feature, { vocabulary: ['a'] }) : feature)),
    ]),
  );
  return { isNeeded: true, features: Object.assign({}, features, { inputs }) };
}

function neededIn({ columns }: DatasetManifest): (feature: Feature) => feature is TextFeature {
  const texts = new Set(columns.filter(({ kind }) => kind === 'text').map(({ name }) => name));
  return (feature): feature is TextFeature =>
    feature.kind === 'text' && feature.tokens !== 'tokenizer' && feature.vocabulary === undefined && texts.has(feature.column);
}

/** Features with the vocabulary of every text that has none; without texts, the features as they are. @throws DatasetError */
export async function learnVocabularies(
  manifest: DatasetManifest,
  features: Features | undefined,
  source: ShardSource,
  { maxBytes = MAX_BYTES, maxVocabularyBytes = LIMITS.vocabularyBytes }: LearnOptions = {},
): Promise<LearnResult> {
  const resolution = new Resolution(manifest);
  const complete = completeFeatures(resolution, features);
  if (!complete) return { ok: false, issues: resolution.issues };
  const needsOne = neededIn(manifest);
  if (!Object.values(complete.inputs).flat().some(needsOne)) return { ok: true, features };
  const inputs: Record<string, Feature[]> = {};
  let left = maxVocabularyBytes;
  for (const [name, list] of Object.entries(complete.inputs)) {
    inputs[name] = [];
    for (const [i, feature] of list.entries()) {
      if (!needsOne(feature)) {
        inputs[name].push(feature);
        continue;
      }
      const vocabulary = await vocabularyOf(manifest, feature, source, maxBytes);
      const fits = tokensWithin(vocabulary, left);
      if (fits.count < vocabulary.length)
        return { ok: false, issues: [tooLarge(`features.inputs.${name}.${i}`, vocabulary.length, fits.count)] };
      left -= fits.bytes;
      inputs[name].push(Object.assign({}, feature, { vocabulary }));
    }
  }
  return { ok: true, features: Object.assign({}, features, { inputs }) };
}

/** How many of the first tokens have room in so many bytes of JSON. */
function tokensWithin(vocabulary: readonly string[], most: number): { readonly count: number; readonly bytes: number } {
  const encoder = new TextEncoder();
  let bytes = 0;
  for (const [count, token] of vocabulary.entries()) {
    const own = encoder.encode(JSON.stringify(token)).length + 1;
    if (bytes + own > most) return { count, bytes };
    bytes += own;
  }
  return { count: vocabulary.length, bytes };
}

function tooLarge(path: string, tokens: number, fits: number): SpecIssue {
  const instead = fits < VOCABULARY_MIN ? 'give fewer text inputs a vocabulary, or smaller ones' : `write vocabularySize: ${fits} or less`;
  return { path: `${path}.vocabularySize`, message: `its ${tokens} tokens are more than a stored spec has room for: ${instead}` };
}

async function vocabularyOf(manifest: DatasetManifest, feature: TextFeature, source: ShardSource, maxBytes: number): Promise<string[]> {
  const { tokens, lowerCase, column, vocabularySize } = feature;
  if (tokens === 'tokenizer') return [];
  const counts = new Map<string, number>();
  for await (const text of textsOf(manifest, column, source, maxBytes)) {
    for (const token of tokensOf(text, tokens, lowerCase)) {
      if (token.length <= TOKEN_CHARACTERS) counts.set(token, (counts.get(token) ?? 0) + 1);
    }
    if (counts.size > COUNTED_MAX) for (const [token, count] of counts) if (count === 1) counts.delete(token);
  }
  return [...counts]
    .sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
    .slice(0, vocabularySize)
    .map(([token]) => token);
}

async function* textsOf(manifest: DatasetManifest, column: string, source: ShardSource, maxBytes: number): AsyncIterable<string> {
  const decoder = new TextDecoder();
  let bytes = 0;
  for (const shard of manifest.splits.train.shards) {
    const layout = await asNamed(shard, async () => shardLayout(manifest, shard, await startOf(source, shard)));
    for (let from = 0; from < shard.rows; from += ROWS_AT_ONCE) {
      const rows = Array.from({ length: Math.min(ROWS_AT_ONCE, shard.rows - from) }, (_, i) => from + i);
      const { values, offsets } = await asNamed(shard, () => rowsOfColumn(column, layout, shard, source, rows));
      for (const row of rows.keys()) yield decoder.decode(values.subarray(offsets![row], offsets![row + 1]) as Uint8Array);
      if ((bytes += values.length) >= maxBytes) return;
    }
  }
}
