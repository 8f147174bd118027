/**
 * The process in which the model of a run is asked about its evaluation split: `fork`ed for one run, with a limit on its memory and its time, no
 * access to PostgreSQL and none of the secrets of the api. The api itself computes nothing: it hands over the folder with the exported
 * model and stores the document that comes back.
 */
import { setPriority } from 'node:os';
import { openRunRows, openRunTable } from '@paceline/data';
import { openModelFolder, runPredictions } from '@paceline/models';
import type { RunData, RunSpec } from '@paceline/spec';

export interface BeginPredictions {
  readonly kind: 'begin';
  /** With the model in the safetensors form. */
  readonly folder: string;
  readonly spec: RunSpec;
  readonly data: RunData;
  readonly dataStore: string | undefined;
  /** Bound on the memory of the whole process. */
  readonly memoryBytes: number;
}
export type FromPredictions =
  | { readonly kind: 'done'; readonly report: string }
  | { readonly kind: 'failed'; readonly message: string; readonly isOfUser: boolean };

/** Behind what trains on this machine. */
const LOW_PRIORITY = 10;
const ROWS_BYTES = 256 << 20;
const TOLD = ['DatasetError', 'ExportError', 'ModelError', 'StorageError', 'TooMuchMemory'];

class TooMuchMemory extends Error {
  override readonly name = 'TooMuchMemory';
}

const tell = (message: FromPredictions): Promise<void> =>
  new Promise((resolve, reject) => process.send!(message, undefined, {}, (error) => (error ? reject(error) : resolve())));

async function run({ folder, spec, data, dataStore, memoryBytes }: BeginPredictions): Promise<void> {
  setPriority(LOW_PRIORITY);
  const model = await openModelFolder(folder);
  const settings = { dataStore, memoryBytes: ROWS_BYTES };
  const { format, evaluation } = await openRunRows(data, spec, settings);
  const table = await openRunTable(data, spec, settings);
  const report = await runPredictions(model, { format, evaluation, split: data.evaluateOn, table }, () => {
    if (process.memoryUsage.rss() > memoryBytes)
      throw new TooMuchMemory(`the model takes more than ${Math.round(memoryBytes / 2 ** 20)} MB of memory`);
  });
  await tell({ kind: 'done', report: JSON.stringify(report) });
}

process.on('message', (message: BeginPredictions) => {
  run(message)
    .catch((error: Error) => tell({ kind: 'failed', message: error.message ?? String(error), isOfUser: TOLD.includes(error.name) }))
    .then(() => process.disconnect())
    .catch(() => process.exit(1)); // the api is gone
});
process.on('disconnect', () => process.exit(0));
