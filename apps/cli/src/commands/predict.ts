/** `paceline evaluate` and `predict`: a trained model at work in the process of the command line. */
import path from 'node:path';
import type { PacelineClient } from '@paceline/client';
import type { Evaluation, EvaluationData, ModelFolder, Prediction, ShardSource } from '@paceline/models';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import { BUILT_IN_DATASETS, MEASURED_NAMES } from '@paceline/spec';
import { type Command, Option } from 'commander';
import type { Act, CommandContext } from '../command.js';
import { exampleRows, inputRows, type TableFlags } from '../model-rows.js';
import { intoFile } from '../output-file.js';
import { decimalOption, delimiterOption } from '../table-options.js';
import { clean } from '../terminal/clean.js';
import { printClasses, printMatrix, valuesLine } from '../show-predictions.js';
import { decimals } from '../terminal/format.js';
import { isThere, TRAINED_MODEL_ARGUMENT, withModel } from '../trained-model.js';
import { whichDataset } from '../which-dataset.js';

const SHARD_CACHE_BYTES = 10 * 2 ** 30;

export function addPredictCommands(program: Command, act: Act): void {
  program
    .command('evaluate')
    .description(
      'Measures a trained model on rows whose targets are known: the loss and the metrics of its run, which classes it takes for which, and how far its numbers are off in the units of the data.\n' +
        'On the evaluation split of a dataset, or on all rows of a file that has the target among its columns.',
    )
    .argument('<model>', TRAINED_MODEL_ARGUMENT)
    .requiredOption('--data <data>', 'a dataset: NAME or NAME@VERSION; or a file, or a folder of images with a folder for each class')
    .addOption(decimalOption())
    .addOption(delimiterOption())
    .action(act(evaluate));
  program
    .command('predict')
    .description(
      'Predicts rows with a trained model: the label with the probability of each class, or the values in the units of the data.\n' +
        'Columns are found by their names: CSV with a header, JSON objects, Parquet and what else an import reads; images, and folders of them.\n' +
        'For a model of plain numbers: a JSON list of lists, or lines of numbers with commas between.',
    )
    .argument('<model>', TRAINED_MODEL_ARGUMENT)
    .requiredOption('-i, --input <files...>', 'rows: tables, images, folders of images')
    .option('-o, --out <file>', 'where to write the predictions: .csv or .json (default: CSV on stdout)')
    .addOption(new Option('--force', 'replace an existing file'))
    .addOption(decimalOption())
    .addOption(delimiterOption())
    .action(act(predict));
}

async function evaluate(context: CommandContext, command: Command, reference: string): Promise<number> {
  const { data, ...flags } = command.opts<{ data: string } & TableFlags>();
  const { evaluateModel } = await import('@paceline/models');
  const clients: PacelineClient[] = [];
  try {
    const result = await withModel(context, reference, async (model) =>
      evaluateModel(model, await dataOf(context, model, { data, flags }, clients)),
    );
    show(context, result, data);
    return EXIT.ok;
  } finally {
    for (const client of clients) await client.close();
  }
}

/** A built-in dataset, or else what is there as a file, or else a dataset of the team. */
async function dataOf(
  context: CommandContext,
  model: ModelFolder,
  { data, flags }: { readonly data: string; readonly flags: TableFlags },
  clients: PacelineClient[],
): Promise<EvaluationData> {
  if ((BUILT_IN_DATASETS as readonly string[]).includes(data)) return { kind: 'built-in', name: data };
  const { userDirectories } = await import('@paceline/runtime');
  const { cache } = userDirectories(context.env);
  if (await isThere(data)) return { kind: 'rows', rows: exampleRows(model, data, cache, flags) };
  const client = context.connect();
  clients.push(client);
  await whichDataset(client, data);
  const { manifest } = await client.datasets.manifest(data);
  const folder = path.join(cache, 'datasets');
  return { kind: 'prepared', name: data, manifest, shards: shardsOf(client), cache: { folder, maxBytes: SHARD_CACHE_BYTES } };
}

/** Shards of the api. A part is cut out of the whole, of which the last is kept. */
function shardsOf(client: PacelineClient): ShardSource {
  let last: { readonly sha256: string; readonly bytes: Promise<Uint8Array> } | undefined;
  const whole: ShardSource['whole'] = ({ sha256, bytes }) => {
    if (last?.sha256 !== sha256) last = { sha256, bytes: download(client, sha256, bytes) };
    return last.bytes;
  };
  return { place: 'the api', whole, range: async (shard, from, to) => (await whole(shard)).slice(from, to) };
}

async function download(client: PacelineClient, sha256: string, bytes: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of (await client.datasets.shard(sha256)).body) {
    length += part.length;
    if (length > bytes) break;
    parts.push(part);
  }
  if (length === bytes) return Buffer.concat(parts);
  throw new UserError('DATASET_UNREADABLE', `Shard ${sha256.slice(0, 12)} does not have the ${bytes} bytes that its manifest says.`, {
    hint: '`paceline data verify` compares every shard with its hash.',
    exit: 'unsuccessful',
  });
}

function show({ terminal }: CommandContext, result: Evaluation, data: string): void {
  if (terminal.json) return terminal.document(result);
  const said = [...MEASURED_NAMES.filter((name) => name !== 'confusionMatrix'), 'loss' as const].flatMap((name) => {
    const value = result[name];
    return typeof value === 'number' ? [`${inWords(name)}  ${decimals(value, 4)}`] : [];
  });
  terminal.print(`${said.join('   ')}   over ${result.examples} examples of ${clean(data, 60)}`);
  for (const output of result.outputs) if (output.kind === 'values') terminal.print(valuesLine(output));
  const { labels, confusion } = result;
  if (!labels || !confusion) return;
  printMatrix(labels, confusion, terminal);
  for (const output of result.outputs) if (output.kind === 'classes') printClasses(output, terminal);
}

/** `meanAbsoluteError` is mean absolute error. */
const inWords = (name: string): string => name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

async function predict(context: CommandContext, command: Command, reference: string): Promise<number> {
  const { input, out, force, ...flags } = command.opts<{ input: string[]; out?: string; force?: boolean } & TableFlags>();
  const { terminal } = context;
  const ending = out === undefined ? '.csv' : path.extname(out).toLowerCase();
  if (ending !== '.csv' && ending !== '.json')
    throw new UserError('OUTPUT_UNUSABLE', `${out} ends neither in .csv nor in .json, which says what is written.`, {
      hint: 'Choose another one with --out.',
      exit: 'usage',
    });
  const { predictionsCsv, predictRows } = await import('@paceline/models');
  const { userDirectories } = await import('@paceline/runtime');
  const { cache } = userDirectories(context.env);
  const compute = async (): Promise<readonly Prediction[]> => {
    const predictions = await withModel(context, reference, async (model) => {
      const found: Prediction[] = [];
      for await (const one of predictRows(model, inputRows(model, input, cache, flags))) found.push(one);
      return found;
    });
    if (predictions.length > 0) return predictions;
    throw new UserError('INPUT_UNREADABLE', 'The input has no rows, or fewer than the window of the model.', { exit: 'usage' });
  };
  const textOf = (made: readonly Prediction[]): string =>
    ending === '.json' ? `${JSON.stringify(made, null, 2)}\n` : predictionsCsv(made);
  const predictions = out === undefined ? await compute() : await intoFile(out, { mayReplace: force === true, textOf }, compute);
  if (terminal.json) terminal.document(out === undefined ? { predictions } : { file: out, rows: predictions.length });
  else if (out === undefined) terminal.print(textOf(predictions).trimEnd());
  else terminal.print(`${out}  ${predictions.length} predictions`);
  return EXIT.ok;
}
