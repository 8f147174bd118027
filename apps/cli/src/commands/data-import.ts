/** `paceline data import`: from files of this machine to a version of a dataset, with what is wrong named by file, row and column. */
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { CommittedVersion, PacelineClient } from '@paceline/client';
import { importDataset, IngestError, type ImportOptions, type ImportProgress, type Source } from '@paceline/ingest';
import { EXIT, type ExitName } from '@paceline/runtime/exit-codes';
import { userDirectories } from '@paceline/runtime';
import { UserError } from '@paceline/runtime/user-error';
import { BUILT_IN_DATASETS, DATASET_NAME } from '@paceline/spec';
import type { Command } from 'commander';
import { interruptSignal, type CommandContext } from '../command.js';
import { printSchema } from '../show-dataset.js';
import { clean } from '../terminal/clean.js';
import { bytes, count, fit, plural } from '../terminal/format.js';
import { createLiveLine } from '../terminal/live-line.js';
import type { Terminal } from '../terminal/terminal.js';
import { shortVersion } from '../which-dataset.js';
import { openWorkFolder } from '../work-folders.js';

interface ImportFlags {
  readonly name?: string;
  readonly label?: string;
  readonly split?: string;
  readonly inOrder?: boolean;
  readonly oneSeries?: boolean;
  readonly seed?: number;
  readonly missing?: string;
  readonly column: readonly string[];
  readonly format?: string;
  readonly evalFile?: string;
  readonly testFile?: string;
  readonly module?: string;
  /** Undefined: found out. */
  readonly header?: boolean;
  readonly decimal?: string;
  readonly delimiter?: string;
}

const MAX_SOURCE_CHARACTERS = 500;

export async function importData(context: CommandContext, command: Command, given: readonly string[]): Promise<number> {
  const { terminal } = context;
  const flags = command.opts<ImportFlags>();
  const options = optionsOf(given, flags);
  const name = nameOf(given, flags);
  const client = context.connect();
  const interrupt = interruptSignal();
  const line = createLiveLine(terminal.stderr);
  const workFolder = openWorkFolder(path.join(userDirectories(context.env).cache, 'imports'));
  let warnings: readonly string[] = [];
  let done: ImportProgress | undefined;
  try {
    const version = await client.datasets.import(
      name,
      async (sink) => {
        const result = await importDataset(options, sink, {
          workFolder,
          signal: interrupt.signal,
          onProgress: (progress) => line.update(progressText((done = progress), terminal)),
        });
        warnings = result.warnings;
        line.update('checking');
        return result;
      },
      { source: sourceText(given) },
    );
    line.finish();
    if (done && done.shardsKept > 0) terminal.note(`${plural(done.shardsKept, 'shard')} of ${count(done.shards)} already stored`);
    for (const warning of warnings) terminal.note(`${terminal.style('yellow', 'warning', 'stderr')} ${clean(warning, 500)}`);
    await tell(terminal, client, version);
    return EXIT.ok;
  } catch (error) {
    line.finish();
    throw error instanceof IngestError ? asUserError(error) : error;
  } finally {
    interrupt.dispose();
    rmSync(workFolder, { recursive: true, force: true });
    await client.close();
  }
}

async function tell(terminal: Terminal, client: PacelineClient, { name, version, rows, bytes: size }: CommittedVersion): Promise<void> {
  const shown = await client.datasets.show(`${name}@${version}`);
  const schema = shown?.version?.schema;
  if (terminal.json) return terminal.document({ name, version, rows, bytes: size, schema: schema ?? null });
  terminal.print(`${terminal.style('bold', name)}@${shortVersion(version)}  ${plural(rows, 'row')}  ${bytes(size)}`);
  if (schema) printSchema(terminal, schema);
  if (schema?.label === null)
    terminal.note(
      'No column is the label. Import it with --label COLUMN, or say in the run spec what is to be predicted (features.targets).',
    );
  if (schema?.splits.length === 1)
    terminal.note('All rows are for training, so a run is measured on rows that it has seen. To keep some apart: --split 0.8/0.2');
  terminal.note(`Train on it: ${terminal.program} train --dataset ${name}`);
}

function progressText(
  { rows, bytesRead, bytesTotal, shards, shardsKept, shardBytes }: ImportProgress,
  { stderr, unicode }: Terminal,
): string {
  const share = bytesTotal ? Math.min(1, bytesRead / bytesTotal) : undefined;
  const width = 24;
  const filled = Math.round((share ?? 0) * width);
  const [full, empty] = unicode ? ['█', '░'] : ['#', '-'];
  const bar = share === undefined ? 'reading' : `${full.repeat(filled)}${empty.repeat(width - filled)} ${Math.floor(share * 100)}%`;
  const sent =
    shards > 0 ? `  ${plural(shards, 'shard')}, ${bytes(shardBytes)}${shardsKept > 0 ? `, ${count(shardsKept)} there already` : ''}` : '';
  return fit(`${bar}  ${plural(rows, 'row')}  ${bytes(bytesRead)}${sent}`, stderr.isTTY ? stderr.columns() : 200);
}

/** @throws UserError FLAG_INVALID */
function optionsOf(given: readonly string[], flags: ImportFlags): ImportOptions {
  const sources: Source[] = [...given];
  if (flags.evalFile !== undefined) sources.push({ location: flags.evalFile, split: 'validation' });
  if (flags.testFile !== undefined) sources.push({ location: flags.testFile, split: 'test' });
  const isOne = (flags.module === undefined) === sources.length > 0;
  if (!isOne)
    throw new UserError('FLAG_INVALID', 'Name the sources, or a module with --module.', {
      hint: 'For example data import flowers.csv, or data import --module rows.mjs.',
      exit: 'usage',
    });
  const hasSplits = sources.length > given.length;
  const options = {
    // Beside files that are splits of their own, the others are for training.
    sources:
      flags.module === undefined
        ? sources.map((source) => (hasSplits && typeof source === 'string' ? trainOf(source, flags) : source))
        : [flags.module],
    format: flags.module === undefined ? flags.format : 'module',
    label: flags.label,
    columns: columnsOf(flags.column),
    split: flags.split === undefined ? undefined : splitOf(flags.split),
    inOrder: flags.inOrder,
    oneSeries: flags.oneSeries,
    seed: flags.seed,
    missing: flags.missing,
    header: flags.header,
    decimal: flags.decimal,
    delimiter: flags.delimiter,
    policy: 'user',
  };
  // The importer checks the words among them, and says what there is.
  return options as ImportOptions;
}

const trainOf = (location: string, { split }: ImportFlags): Source => (split === undefined ? { location, split: 'train' } : location);

/** `0.8/0.1/0.1`, or `80/10/10`. @throws UserError FLAG_INVALID */
export function splitOf(text: string): { readonly train: number; readonly validation?: number; readonly test?: number } {
  const shares = text.split('/').map((part) => (/^\d+(?:\.\d+)?$/.test(part) ? Number(part) : Number.NaN));
  const sum = shares.reduce((total, share) => total + share, 0);
  const of = Math.abs(sum - 100) < 1e-6 ? 100 : 1;
  if ((shares.length !== 2 && shares.length !== 3) || !(Math.abs(sum / of - 1) < 1e-6))
    throw new UserError('FLAG_INVALID', `--split ${JSON.stringify(text.slice(0, 40))} is not two or three shares that add up to 1.`, {
      hint: 'Train, validation and test as 0.8/0.1/0.1, or train and test as 0.8/0.2.',
      exit: 'usage',
    });
  const [train = 1, second = 0, third] = shares.map((share) => share / of);
  return third === undefined ? { train, test: second } : { train, validation: second, test: third };
}

/** @throws UserError FLAG_INVALID */
function columnsOf(given: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    given.map((text) => {
      const at = text.lastIndexOf('=');
      if (at > 0) return [text.slice(0, at), text.slice(at + 1)];
      throw new UserError('FLAG_INVALID', `--column ${JSON.stringify(text.slice(0, 60))} is not NAME=TYPE.`, {
        hint: 'For example --column zip=category; a type is number, category, text, array, sequence, image or ignore.',
        exit: 'usage',
      });
    }),
  );
}

/** @throws UserError FLAG_INVALID */
function nameOf(given: readonly string[], { name, module }: ImportFlags): string {
  const builtIn: readonly string[] = BUILT_IN_DATASETS;
  if (name !== undefined) {
    if (DATASET_NAME.test(name) && !builtIn.includes(name)) return name;
    throw new UserError(
      'FLAG_INVALID',
      builtIn.includes(name)
        ? `${name} is a built-in dataset; choose another name.`
        : `--name ${JSON.stringify(name.slice(0, 80))} is not a name of 1 to 64 lower-case letters, digits, dots, dashes and underscores.`,
      { exit: 'usage' },
    );
  }
  const base = path.basename((module ?? given[0] ?? '').replace(/[?#].*$/, '').replace(/[\\/]+$/, ''));
  const made = base
    .replace(/\.(?:gz|zst|bz2|zip|tar|tgz)$/i, '')
    .replace(/\.[^.]*$/, '')
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, '-')
    .replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, '')
    .slice(0, 64);
  if (DATASET_NAME.test(made) && !builtIn.includes(made)) return made;
  throw new UserError('FLAG_INVALID', 'The name of the file makes no name for the dataset.', {
    hint: 'Name it: --name flowers',
    exit: 'usage',
  });
}

/** For people who look at the version later: no passwords, no signatures. */
function sourceText(given: readonly string[]): string {
  const words = given.map((source) => {
    if (!/^https?:\/\//i.test(source) || !URL.canParse(source)) return source;
    const url = new URL(source);
    return `${url.protocol}//${url.host}${url.pathname}`;
  });
  return clean(words.join(', '), MAX_SOURCE_CHARACTERS);
}

const EXITS: Partial<Record<IngestError['code'], ExitName>> = {
  OPTIONS_INVALID: 'usage',
  FORMAT_UNKNOWN: 'usage',
  SOURCE_NOT_FOUND: 'notFound',
  SOURCE_UNREADABLE: 'unavailable',
  DISK_FULL: 'unavailable',
  ABORTED: 'interrupted',
};

/** @param hint in place of the advice of an import, whose flags other commands do not have */
export function asUserError(error: IngestError, hint: string = error.advice): UserError {
  const place = [
    error.file,
    error.row === undefined ? undefined : `row ${error.row}`,
    error.column === undefined ? undefined : `column ${JSON.stringify(error.column)}`,
  ]
    .filter((part) => part !== undefined)
    .join(', ');
  return new UserError(error.code, clean(place === '' ? error.detail : `${place}: ${error.detail}`, 2000), {
    hint,
    exit: EXITS[error.code] ?? 'badSpec',
    cause: error,
  });
}
