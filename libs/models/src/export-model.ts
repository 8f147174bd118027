/**
 * A trained model as files. The weights come once, as one stream in the order of the layout, and pass into the files of the form; the card follows
 * them, because it names their hash.
 */
import { planModel, zooTopology } from '@paceline/engine/planning';
import { createLayout } from '@paceline/learning';
import { defaultModel, fieldLength, type ModelDescription, type RowFormat, type RunSpec } from '@paceline/spec';
import type { ExportFile } from './archive.js';
import { hashing, jsonOf, StreamCutter, textOf, type Bytes } from './byte-stream.js';
import { ExportError } from './export-error.js';
import type { ExportParts, FormatWriter } from './export-parts.js';
import { kerasFiles } from './formats/keras.js';
import { npzFiles } from './formats/npz.js';
import { safetensorsFiles } from './formats/safetensors.js';
import { tfjsFiles } from './formats/tfjs.js';
import { cardMarkdown, cardOf, type CardFacts } from './model-card.js';
import type { Preprocessing } from './preprocessing.js';

export const EXPORT_FORMATS = ['tfjs', 'safetensors', 'npz', 'keras'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];

/** Preprocessing that is too large for memory: a vocabulary may have a million words. */
export interface WrittenPreprocessing {
  /** The text of `preprocessing.json`. */
  json(): Bytes;
  /** As `describedOutputs` has them. */
  readonly outputs: readonly object[];
}

export interface TrainedModel {
  readonly spec: RunSpec;
  /** The format of the rows that it was trained on. */
  readonly format: RowFormat;
  readonly description: ModelDescription;
  readonly facts: CardFacts;
  readonly preprocessing: Preprocessing | WrittenPreprocessing;
  /** Little-endian float32, trainable variables first, then state. */
  weights(): Bytes;
  /** The hash that the weights must have; undefined where none is known. */
  readonly weightsSha256?: string | undefined;
}

const WRITERS: Readonly<Record<ExportFormat, FormatWriter>> = {
  tfjs: tfjsFiles,
  safetensors: safetensorsFiles,
  npz: npzFiles,
  keras: kerasFiles,
};

/**
 * Files in the order in which they are to be read, each to its end. What the form cannot hold is refused before the first one.
 * @throws ExportError
 */
export function exportModel(model: TrainedModel, format: ExportFormat): AsyncGenerator<ExportFile, void, void> {
  const { spec, facts } = model;
  const preprocessing = written(model.preprocessing);
  const { plan } = planModel(spec, model.format);
  const chosen = spec.model ?? defaultModel(model.format);
  const { stream, hex } = hashing(model.weights());
  const weights = new StreamCutter(stream);
  const parts: ExportParts = {
    name: facts.name,
    plan,
    topology: typeof chosen === 'string' ? { topology: zooTopology(chosen, model.format) } : chosen,
    variables: createLayout(model.description).variables,
    weights,
    metadata: { format: 'paceline', run: facts.run.id, round: String(facts.round) },
    outputs: preprocessing.outputs,
  };
  const files = WRITERS[format](parts);
  return (async function* () {
    try {
      yield { path: 'preprocessing.json', body: preprocessing.json() };
      yield* files;
    } finally {
      await weights.end();
    }
    const sha256 = hex();
    if (model.weightsSha256 !== undefined && sha256 !== model.weightsSha256)
      throw new ExportError('WEIGHTS_DIFFER', `the stored weights have the SHA-256 ${sha256}, and the run says ${model.weightsSha256}`);
    const card = cardOf(facts, sha256);
    yield { path: 'model-card.json', body: jsonOf(card) };
    yield { path: 'MODEL_CARD.md', body: textOf(cardMarkdown(card)) };
  })();
}

function written(preprocessing: Preprocessing | WrittenPreprocessing): WrittenPreprocessing {
  if ('json' in preprocessing) return preprocessing;
  return { json: () => jsonOf(preprocessing), outputs: describedOutputs(preprocessing) };
}

/** Short, for who reads the description of a model alone: a vocabulary of a million labels stays in preprocessing.json. */
export const describedOutputs = ({ outputs }: Preprocessing): object[] =>
  outputs.map((output) => {
    if (output.kind === 'values') return { name: output.name, kind: output.kind, size: fieldLength(output) };
    const { name, kind, gives, labels } = output;
    return { name, kind, gives, labels: labels.length <= 1000 ? labels : labels.length };
  });
