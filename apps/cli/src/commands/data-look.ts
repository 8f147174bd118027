/**
 * `paceline data list`, `show`, `preview`, `verify` and `remove`: what the team has, and what is in it. Texts from datasets are cleaned and cut,
 * as they come from files of anybody.
 */
import type { DatasetSchema } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Command } from 'commander';
import { cleanUpOnInterrupt, type CommandContext } from '../command.js';
import { printSchema } from '../show-dataset.js';
import { clean } from '../terminal/clean.js';
import { ago, bytes, count, float32Text, plural } from '../terminal/format.js';
import { createLiveLine } from '../terminal/live-line.js';
import { printTable } from '../terminal/print-table.js';
import type { Terminal } from '../terminal/terminal.js';
import { shortVersion, whichDataset } from '../which-dataset.js';
import { shortId } from '../which-run.js';

const MAX_CELL = 40;
const MAX_NAMED = 10;

export async function listData({ terminal, connect }: CommandContext): Promise<number> {
  const datasets = await connect().datasets.list();
  if (terminal.json) {
    terminal.document({ datasets });
    return EXIT.ok;
  }
  const columns = [
    { title: 'NAME' },
    { title: 'VERSION' },
    { title: 'TRAIN', align: 'right' },
    { title: 'EVALUATE', align: 'right', drop: 2 },
    { title: 'SIZE', align: 'right', drop: 3 },
    { title: 'IMPORTED', drop: 1 },
    { title: 'SOURCE', drop: 4, least: 12 },
  ] as const;
  const now = Date.now();
  const rows = datasets.map(({ name, newest, trainExamples, evalExamples, source, isBuiltIn }) => [
    clean(name, 64),
    isBuiltIn ? 'built in' : shortVersion(newest?.version ?? ''),
    count(trainExamples),
    count(evalExamples),
    newest ? bytes(newest.bytes) : '–',
    newest ? ago(newest.createdAt, now) : '–',
    clean(source, 60),
  ]);
  printTable(terminal, columns, rows);
  if (!datasets.some(({ isBuiltIn }) => !isBuiltIn)) terminal.note(`Import your own: ${terminal.program} data import FILE --name NAME`);
  return EXIT.ok;
}

export async function showData({ terminal, connect }: CommandContext, _command: Command, reference: string): Promise<number> {
  const client = connect();
  const dataset = await whichDataset(client, reference);
  if (terminal.json) {
    terminal.document({ dataset });
    return EXIT.ok;
  }
  const { name, version, versions, runs, source, trainExamples, evalExamples } = dataset;
  if (!version) {
    terminal.print(`${terminal.style('bold', name)}  ${clean(dataset.title, 80)}`);
    terminal.print(`train ${count(trainExamples)}  test ${count(evalExamples)}`);
    terminal.print(`${clean(dataset.license ?? '', 80)}  ${clean(source, 200)}`);
    return EXIT.ok;
  }
  const now = Date.now();
  terminal.print(
    `${terminal.style('bold', name)}@${shortVersion(version.version)}  ${plural(version.rows, 'row')}  ${bytes(version.bytes)}`,
  );
  terminal.print(`imported ${ago(version.createdAt, now)} from ${clean(version.source, 200) || '–'}`);
  printSchema(terminal, version.schema);
  noteUntrained(terminal, version.schema);
  if (version.columnCount > version.schema.columns.length)
    terminal.note(`${count(version.columnCount - version.schema.columns.length)} more columns are not shown.`);
  if (versions.length > 1) {
    terminal.print();
    const rows = versions.map((row) => [
      shortVersion(row.version),
      count(row.rows),
      bytes(row.bytes),
      ago(row.createdAt, now),
      clean(row.source, 60),
    ]);
    printTable(
      terminal,
      [
        { title: 'VERSION' },
        { title: 'ROWS', align: 'right' },
        { title: 'SIZE', align: 'right' },
        { title: 'IMPORTED' },
        { title: 'SOURCE', drop: 1 },
      ],
      rows,
    );
  }
  if (runs.length > 0) {
    terminal.print();
    const rows = runs.map((run) => [shortId(run.id), clean(run.name, 60), run.status, ago(run.createdAt, now)]);
    printTable(terminal, [{ title: 'RUN' }, { title: 'NAME' }, { title: 'STATUS' }, { title: 'CREATED', drop: 1 }], rows);
  }
  terminal.note(`Train on it: ${terminal.program} train --dataset ${name}`);
  return EXIT.ok;
}

/** An import by the api has nobody to tell it to. */
function noteUntrained(terminal: Terminal, { label, untrainedClasses }: DatasetSchema): void {
  if (untrainedClasses.length === 0) return;
  const named = untrainedClasses.slice(0, MAX_NAMED).map((name) => JSON.stringify(clean(name, MAX_CELL)));
  const more = untrainedClasses.length > MAX_NAMED ? ', …' : '';
  terminal.note(
    `${terminal.style('yellow', 'warning', 'stderr')} No row of the training split has these classes of ${clean(label ?? '', MAX_CELL)}, so nothing can learn them: ${named.join(', ')}${more}. Are the words right?`,
  );
}

export async function previewData({ terminal, connect }: CommandContext, command: Command, reference: string): Promise<number> {
  const { rows: size, from, split } = command.opts<{ rows: number; from: number; split: string }>();
  const client = connect();
  const dataset = await whichDataset(client, reference);
  if (!dataset.version)
    throw new UserError('NO_PREVIEW', `${dataset.name} is a built-in dataset, which has no rows to show.`, { exit: 'unsuccessful' });
  const { columns, rows } = await client.datasets.preview(`${dataset.name}@${dataset.version.version}`, { rows: size, from, split });
  if (terminal.json) {
    terminal.document({ dataset: dataset.name, version: dataset.version.version, split, from, columns, rows });
    return EXIT.ok;
  }
  const titles = columns.map((name, i) => Object.assign({ title: clean(name, MAX_CELL) }, i === 0 ? {} : { drop: i }));
  printTable(
    terminal,
    titles,
    rows.map((row) => row.map(cellText)),
  );
  return EXIT.ok;
}

function cellText(value: unknown): string {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'string') {
    const image = /^data:(image\/\w+);base64,/.exec(value);
    return image ? `${image[1]}, ${bytes(Math.floor(((value.length - image[0].length) * 3) / 4))}` : clean(value, MAX_CELL);
  }
  return clean(typeof value === 'number' ? float32Text(value) : JSON.stringify(value), MAX_CELL);
}

export async function verifyData({ terminal, connect }: CommandContext, _command: Command, reference: string): Promise<number> {
  const client = connect();
  const dataset = await whichDataset(client, reference);
  if (!dataset.version)
    throw new UserError('NO_SHARDS', `${dataset.name} is a built-in dataset, which has no shards.`, { exit: 'unsuccessful' });
  const line = createLiveLine(terminal.stderr);
  const interrupt = cleanUpOnInterrupt(() => line.finish());
  const found = await client.datasets
    .verify(`${dataset.name}@${dataset.version.version}`, (done, total) => line.update(`${bytes(done)} of ${bytes(total)}`))
    .finally(() => {
      interrupt.dispose();
      line.finish();
    });
  const isWhole = found.broken.length === 0 && found.version === dataset.version.version;
  if (terminal.json) terminal.document(Object.assign({ dataset: dataset.name, isWhole }, found));
  else if (isWhole)
    terminal.print(`${dataset.name}@${shortVersion(found.version)}  whole: ${plural(found.shards, 'shard')}, ${bytes(found.bytes)}`);
  else for (const { sha256, split, why } of found.broken) terminal.print(`shard ${shortVersion(sha256)} of ${split} ${why}`);
  if (!isWhole) terminal.note('Import the data again under the same name: what is missing is uploaded.');
  return isWhole ? EXIT.ok : EXIT.unsuccessful;
}

export async function removeData({ terminal, connect }: CommandContext, command: Command, reference: string): Promise<number> {
  const { force } = command.opts<{ force?: boolean }>();
  const client = connect();
  const { isBuiltIn, name } = await whichDataset(client, reference);
  if (isBuiltIn) throw new UserError('BUILT_IN', `${name} is a built-in dataset, which comes with the release.`, { exit: 'unsuccessful' });
  const removed = await client.datasets.remove(reference, { force: force === true });
  if (terminal.json) terminal.document(removed);
  else terminal.print(`removed  ${removed.name}  ${removed.versions.map(shortVersion).join(', ')}`);
  return EXIT.ok;
}
