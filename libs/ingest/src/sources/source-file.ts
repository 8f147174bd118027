/** A file of a source, wherever it lies. What comes out of `open` is what is stored; `unpacked` of compression.ts looks inside. */
import type { SplitName } from '@paceline/spec';
import type { CheckedOptions } from '../options.js';

export interface SourceFile {
  /** For messages: as the user named it, with the path inside of a folder. */
  readonly name: string;
  /** Path below the folder, with slashes; the name of the file when it was named itself. */
  readonly relative: string;
  readonly split: SplitName | undefined;
  readonly bytes: number | undefined;
  /** Where it lies on this machine. Others are copied into the work folder when a format needs to jump in them. */
  readonly path: string | undefined;
  /** May be opened several times, each from the beginning. */
  open(): AsyncIterable<Uint8Array>;
}

export interface SourceContext {
  readonly options: CheckedOptions;
  readonly signal: AbortSignal | undefined;
  readonly workFolder: string;
  /** For the progress. */
  readonly traffic: { bytesRead: number; bytesTotal: number | undefined };
  /** What is to be cleaned when the import ends, however it does. */
  atClose(close: () => Promise<void>): void;
}

/** The split that the name of a file or folder speaks of: train, validation, test and what people write for them. */
export function splitInName(name: string): SplitName | undefined {
  const words = name.toLowerCase().split(/[^a-z0-9]+/);
  if (words.some((word) => word === 'train' || word === 'training')) return 'train';
  if (words.some((word) => ['val', 'valid', 'validation', 'dev'].includes(word))) return 'validation';
  return words.some((word) => ['test', 'testing', 't10k'].includes(word)) ? 'test' : undefined;
}
