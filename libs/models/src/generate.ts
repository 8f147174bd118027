/** Text from a language model: token after token, each drawn from what the model says of the last ones. */
import { CounterStream, streamKey } from '@paceline/learning';
import type { EncoderOf } from '@paceline/spec';
import { ExportError } from './export-error.js';
import type { ModelFolder } from './model-folder.js';
import { encoderFor, largestOf, shares } from './rows.js';

export interface GenerateOptions {
  readonly prompt: string;
  /** Tokens. */
  readonly length: number;
  /** 0: always the most probable token; 1: by the probabilities of the model; below 1 bolder ones are rarer. */
  readonly temperature: number;
  /** The same seed gives the same text. */
  readonly seed: number;
}

/** Padding and unknown: no token of a text. */
const RESERVED = 2;

interface Language {
  readonly text: EncoderOf<'text'>;
  readonly classes: number;
  readonly gives: 'logits' | 'probabilities';
}

/** @throws ExportError NOT_GENERATIVE for a model that does not tell the next token at each step */
function languageOf({ preprocessing, predictor }: ModelFolder): Language {
  const refuse = (why: string): never => {
    throw new ExportError('NOT_GENERATIVE', `text comes from a model with the target next-token; ${why}`);
  };
  const plan = preprocessing?.plan ?? refuse('this one was not trained on a dataset with columns');
  const [input, ...others] = plan.inputs;
  const [target, ...more] = plan.targets;
  const text = input?.encoders[0];
  if (others.length > 0 || more.length > 0 || text?.kind !== 'text' || text.encode !== 'ids')
    return refuse('this one takes other inputs than the ids of one text, or predicts several things');
  const next = target?.encoders[0];
  if (next?.kind !== 'text' || next.skip !== 1) return refuse('this one predicts something else');
  if (text.tokens === 'tokenizer')
    return refuse('this one has a tokenizer of its own, whose tokens are not put together here: use characters or words');
  const output = preprocessing?.outputs[0];
  return { text, classes: predictor.outputs[0]?.shape.at(-1) ?? text.ids, gives: output?.kind === 'classes' ? output.gives : 'logits' };
}

/**
 * @returns the text behind the prompt
 * @throws ExportError
 */
export async function generate(model: ModelFolder, options: GenerateOptions): Promise<string> {
  const { text, classes, gives } = languageOf(model);
  const encoder = encoderFor(model.preprocessing, model.predictor.inputs);
  const separator = text.tokens === 'word' ? ' ' : '';
  const stream = new CounterStream(streamKey('generate', options.seed));
  const said = (await idsOf(options.prompt, encoder, text)) ?? [];
  if (said.length === 0)
    throw new ExportError('ROW_INVALID', 'the prompt has no token: give at least one character or word that the model may know');
  const tokens: string[] = [];
  for (let i = 0; i < options.length; i++) {
    const seen = said.slice(-text.length);
    const ids = new Float32Array(text.length);
    ids.set(seen);
    const [logits] = model.predictor.predict([ids], 1);
    const from = (seen.length - 1) * classes;
    const scores = logits!.subarray(from, from + classes);
    const id = drawn(gives === 'logits' ? scores : scores.map(Math.log), options.temperature, () => stream.nextFloat());
    said.push(id);
    tokens.push(text.vocabulary[id - RESERVED] ?? '');
  }
  return tokens.map((token) => separator + token).join('');
}

/** The last of them that the model looks at: a longer prompt is encoded from behind. */
async function idsOf(prompt: string, encoder: ReturnType<typeof encoderFor>, text: EncoderOf<'text'>): Promise<number[] | undefined> {
  const pieces = text.tokens === 'character' ? [...prompt] : prompt.split(/\s+/u);
  const { inputs } = await encoder.encode([{ [text.column]: pieces.slice(-text.length).join(text.tokens === 'character' ? '' : ' ') }]);
  const ids = [...inputs[0]!];
  const end = ids.findLastIndex((id) => id !== 0);
  return ids.slice(0, end + 1);
}

function drawn(logits: Float32Array, temperature: number, random: () => number): number {
  const tokens = logits.subarray(RESERVED);
  if (temperature === 0) return tokens.indexOf(largestOf(tokens)) + RESERVED;
  const probabilities = shares(
    Array.from(tokens, (value) => value / temperature),
    'logits',
  );
  let left = random();
  for (const [i, probability] of probabilities.entries()) {
    left -= probability;
    if (left < 0) return i + RESERVED;
  }
  return tokens.length - 1 + RESERVED;
}
