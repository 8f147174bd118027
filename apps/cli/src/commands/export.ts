/** `paceline export`: a trained model in a form that other programs load. */
import { rmSync } from 'node:fs';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import { type Command, Option } from 'commander';
import { cleanUpOnInterrupt, type Act, type CommandContext } from '../command.js';
import { bytes } from '../terminal/format.js';
import { downloadModel } from '../trained-model.js';
import { checkpointReference, noRun, shortId, whichCheckpoint } from '../which-run.js';

export const MODEL_ARGUMENT =
  'a run, or RUN@ROUND for one of its checkpoints: id or a part of it, name, or @last; or an alias such as flowers:best';

/** Those of libs/models, which is loaded when it is needed. */
const FORMATS = ['tfjs', 'safetensors', 'npz', 'keras'] as const;
type Format = (typeof FORMATS)[number];

export function addExport(program: Command, act: Act): void {
  program
    .command('export')
    .description(
      'Downloads the trained model of a run with its card and its preprocessing into a folder, in a form that other programs load.\n' +
        'For a run that has not succeeded, and with @ROUND, these are the weights of a checkpoint. The folder appears when it is complete.',
    )
    .argument('<run>', MODEL_ARGUMENT)
    .addOption(new Option('-f, --format <format>', 'form of the files').choices(FORMATS).default('tfjs'))
    .option('-o, --out <folder>', 'where to write it (default: NAME-ID-FORMAT here, with the last 8 characters of the id)')
    .option('--force', 'replace an existing export')
    .action(act(exportRun));
}

async function exportRun({ terminal, connect }: CommandContext, command: Command, reference: string): Promise<number> {
  const { format, out, force } = command.opts<{ format: Format; out?: string; force?: boolean }>();
  const client = connect();
  const asked = checkpointReference(reference);
  if (!asked) throw new UserError('REFERENCE_INVALID', `${JSON.stringify(reference)} is neither RUN nor RUN@ROUND.`, { exit: 'usage' });
  const { runId: id, round } = await whichCheckpoint(client, asked);
  const run = await client.runProgress(id);
  if (!run) throw noRun(id);
  const name = run.name.replaceAll(/[^\w.-]+/g, '-').replace(/^[.-]+/, '') || 'run';
  const folder = out ?? `${name}-${shortId(id)}${round === undefined ? '' : `-${round}`}-${format}`;
  const { ExportError, leftoversOf, unpack } = await import('@paceline/models');
  const body = await downloadModel(client, id, { format, round });
  const interrupt = cleanUpOnInterrupt(() => {
    for (const leftover of leftoversOf(folder)) rmSync(leftover, { recursive: true, force: true });
  });
  const files = await unpack(body, folder, force === true)
    .catch((error: unknown) => {
      if (!(error instanceof ExportError)) throw error;
      throw new UserError(`EXPORT_${error.code}`, `${error.message}.`, {
        hint: error.code !== 'FOLDER_TAKEN' ? 'Try again.' : `Choose another one with --out${force ? '' : ', or replace it with --force'}.`,
        exit: error.code === 'FOLDER_TAKEN' ? 'usage' : 'unsuccessful',
        cause: error,
      });
    })
    .finally(() => interrupt.dispose());
  if (terminal.json) terminal.document({ folder, format, files });
  terminal.print(`${folder}  ${bytes(files.reduce((sum, file) => sum + file.bytes, 0))} in ${files.length} files`);
  terminal.note(
    `Load it with:\n${HOW_TO_LOAD[format](folder)
      .map((line) => `  ${line}`)
      .join('\n')}`,
  );
  return EXIT.ok;
}

const HOW_TO_LOAD: Readonly<Record<Format, (folder: string) => readonly string[]>> = {
  tfjs: (folder) => [
    `import * as tf from '@tensorflow/tfjs';  // in Node, serve the folder or use tfjs-node with file://`,
    `const model = await tf.loadLayersModel('${folder}/model.json');`,
  ],
  safetensors: (folder) => ['from safetensors.numpy import load_file', `weights = load_file('${folder}/model.safetensors')`],
  npz: (folder) => ['import numpy as np', `weights = np.load('${folder}/weights.npz')`],
  keras: (folder) => ['import keras', `model = keras.saving.load_model('${folder}/model.keras')`],
};
