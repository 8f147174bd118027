/** `paceline data`: datasets of the team, from a file to what runs train on. */
import type { Command } from 'commander';
import { wholeNumber, type Act } from '../command.js';
import { decimalOption, delimiterOption } from '../table-options.js';
import { DATASET_ARGUMENT } from '../which-dataset.js';
import { importData } from './data-import.js';
import { listData, previewData, removeData, showData, verifyData } from './data-look.js';

const MOST_ROWS = 50;
const MANY = 4_000_000_000;

export function addDataCommands(program: Command, act: Act): void {
  const data = program.command('data').description('Datasets that your team can train on: made from files, and looked at.');
  data
    .command('import')
    .description(
      'Reads files on this machine, converts them and uploads what the api does not have yet. CSV, JSON Lines, Parquet, NumPy, folders of images and\n' +
        'more; the format is found by itself. Given again after an interruption, it goes on. The same data is the same version.',
    )
    .argument('[source...]', 'files, folders, patterns like "data/*.csv", or addresses (https://, s3://); none with --module')
    .option('--name <name>', 'what the dataset is called; by default the name of the file')
    .option('--label <column>', 'the column that is predicted when a run says nothing else')
    .option('--split <shares>', 'train, validation and test as 0.8/0.1/0.1, or train and test as 0.8/0.2')
    .option('--in-order', 'keep the order of the rows, and split in this order: for data over time')
    .option('--one-series', 'the files follow one another: windows over time go on from one into the next')
    .option('--seed <n>', 'decides which rows go into which split', wholeNumber('--seed', 0, MANY))
    .option('--missing <how>', 'rows with missing values: refuse, drop or fill')
    .option('--column <name=type>', 'type of a column that is taken for another: number, category, text, ignore, …', collect, [])
    .option('--format <format>', 'when it is not found by itself: csv, tsv, jsonl, parquet, images, npy, idx, …')
    .option('--eval-file <source>', 'a file that is the validation split')
    .option('--test-file <source>', 'a file that is the test split')
    .option('--module <file>', 'a JavaScript module that yields rows; it runs on this machine only')
    .addOption(decimalOption())
    .addOption(delimiterOption())
    .option('--header', 'CSV: the first row is names, also where these are numbers')
    .option('--no-header', 'CSV: the first row is data')
    .addHelpText('after', EXAMPLES)
    .action(act(importData));
  data.command('list').description('Lists the datasets of the release and of your team.').action(act(listData));
  data
    .command('show')
    .description('Shows columns with statistics, splits, versions, and the runs that use a dataset.')
    .argument('<dataset>', DATASET_ARGUMENT)
    .action(act(showData));
  data
    .command('preview')
    .description('Shows a few rows.')
    .argument('<dataset>', DATASET_ARGUMENT)
    .option('-n, --rows <n>', 'how many', wholeNumber('--rows', 1, MOST_ROWS), 10)
    .option('--from <row>', 'the first row, from 0', wholeNumber('--from', 0, MANY), 0)
    .option('--split <split>', 'train, validation or test', 'train')
    .action(act(previewData));
  data
    .command('verify')
    .description('Downloads every shard and compares it with its hash.')
    .argument('<dataset>', DATASET_ARGUMENT)
    .action(act(verifyData));
  data
    .command('remove')
    .description('Removes a dataset, or one version of it. Refused while a run uses it.')
    .argument('<dataset>', DATASET_ARGUMENT)
    .option('--force', 'also when runs that are over were trained on it')
    .action(act(removeData));
}

const collect = (value: string, before: readonly string[]): string[] => [...before, value];

const EXAMPLES = `
Examples:
  paceline data import flowers.csv --label species --split 0.8/0.1/0.1
  paceline data import photos/ --name flowers              a folder of images for each class
  paceline data import prices.parquet --in-order --split 0.7/0.15/0.15
  paceline data import train.csv --test-file test.csv --name wine --column zip=category
  paceline train --dataset flowers`;
