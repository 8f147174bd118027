/** The model that a command names: a run, one of its checkpoints, or the folder of an export. */
import { rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { PacelineApiError, type PacelineClient } from '@paceline/client';
import type { ModelFolder } from '@paceline/models';
import { UserError } from '@paceline/runtime/user-error';
import type { CommandContext } from './command.js';
import { checkpointReference, shortId, whichCheckpoint } from './which-run.js';
import { openWorkFolder } from './work-folders.js';

export const TRAINED_MODEL_ARGUMENT =
  'a run, RUN@ROUND for one of its checkpoints, an alias, or the folder of an export (tfjs or safetensors)';

export const isFolder = (name: string): Promise<boolean> =>
  stat(name).then(
    (found) => found.isDirectory(),
    () => false,
  );

export const isThere = (name: string): Promise<boolean> =>
  stat(name).then(
    () => true,
    () => false,
  );

/** @throws UserError NOT_FOUND when the run has no such weights; PacelineApiError */
export async function downloadModel(
  client: PacelineClient,
  runId: string,
  what: { readonly format: string; readonly round?: number | undefined },
): Promise<AsyncIterable<Uint8Array>> {
  try {
    return (await client.exportModel(runId, what)).body;
  } catch (error) {
    if (!(error instanceof PacelineApiError) || error.code !== 'NOT_FOUND') throw error;
    const hint = `\`paceline checkpoints ${shortId(runId)}\` lists what the run has; its result is there when it has SUCCEEDED.`;
    throw new UserError('NOT_FOUND', error.message, { hint, exit: 'notFound', cause: error });
  }
}

/** Downloads the model of a run into a temporary folder. @throws UserError with the code of what is wrong with model or rows */
export async function withModel<T>(
  { connect, env }: CommandContext,
  reference: string,
  use: (model: ModelFolder) => Promise<T>,
): Promise<T> {
  const { ExportError, openModelFolder, unpack } = await import('@paceline/models');
  let temporary: string | undefined;
  try {
    let folder = reference;
    if (!(await isFolder(reference))) {
      const asked = checkpointReference(reference);
      if (!asked)
        throw new UserError('REFERENCE_INVALID', `${JSON.stringify(reference)} is neither a folder nor RUN nor RUN@ROUND.`, {
          exit: 'usage',
        });
      const client = connect();
      const { runId, round } = await whichCheckpoint(client, asked);
      const body = await downloadModel(client, runId, { format: 'safetensors', round });
      const { userDirectories } = await import('@paceline/runtime');
      temporary = openWorkFolder(path.join(userDirectories(env).cache, 'models'));
      folder = path.join(temporary, 'model');
      await unpack(body, folder, false);
    }
    const model = await openModelFolder(folder);
    try {
      return await use(model);
    } finally {
      model.predictor.dispose();
    }
  } catch (error) {
    if (!(error instanceof ExportError)) throw error;
    throw new UserError(error.code, `${error.message}.`, { exit: 'usage', cause: error });
  } finally {
    if (temporary !== undefined) await rm(temporary, { recursive: true, force: true });
  }
}
