/** How people name a dataset: `flowers`, or `flowers@1a2b3c4d` for one version of it. */
import type { DatasetDetail, PacelineClient } from '@paceline/client';
import { UserError } from '@paceline/runtime/user-error';
import { suggestion } from './did-you-mean.js';
import { clean } from './terminal/clean.js';

/** For the help of every command that takes one. */
export const DATASET_ARGUMENT = 'a dataset by its name, or NAME@VERSION for one version: 8 or more digits of its hash';
const REFERENCE = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?(?:@[0-9a-f]{8,64})?$/;
const SHORT_DIGITS = 12;

export const shortVersion = (version: string): string => version.slice(0, SHORT_DIGITS);

/** @throws UserError NOT_FOUND; PacelineApiError */
export async function whichDataset(client: PacelineClient, reference: string): Promise<DatasetDetail> {
  const found = REFERENCE.test(reference) ? await client.datasets.show(reference) : null;
  const [name = '', version] = reference.split('@');
  if (found && (found.version || found.isBuiltIn)) return found;
  if (found)
    throw new UserError('NOT_FOUND', `${name} has no version that begins with ${clean(version ?? '', 64)}.`, {
      hint: `\`paceline data show ${name}\` lists its versions.`,
      exit: 'notFound',
    });
  const names = (await client.datasets.list()).map((dataset) => dataset.name);
  throw new UserError('NOT_FOUND', `There is no dataset ${clean(reference, 60)}${suggestion(name, names) || '.'}`, {
    hint: '`paceline data list` lists what your team can train on; `paceline data import` adds to it.',
    exit: 'notFound',
  });
}
