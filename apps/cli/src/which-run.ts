/**
 * How people name a run: by its id, `@last` for the newest, its name, or the first or last characters of its id (four or more). Tables show the last
 * eight: ids begin with the time (UUIDv7), so those of one minute begin alike and end at random.
 */
import type { PacelineClient } from '@paceline/client';
import { UserError } from '@paceline/runtime/user-error';
import { clean } from './terminal/clean.js';
import { ago } from './terminal/format.js';

/** For the help of every command that takes a run. */
export const RUN_ARGUMENT = 'a run: its id or a part of it, its name, or @last';

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const SHORT_CHARACTERS = 8;
const MAX_REFERENCE_CHARACTERS = 100;

export const shortId = (id: string): string => id.slice(-SHORT_CHARACTERS);

/** A run that was named by its whole id. */
export const noRun = (id: string): UserError =>
  new UserError('NOT_FOUND', `There is no run ${id}.`, { hint: '`paceline runs` lists the runs of your team.', exit: 'notFound' });

/** @returns the whole id. @throws UserError NOT_FOUND, RUN_AMBIGUOUS; PacelineApiError */
export async function whichRun(client: PacelineClient, reference: string, nowMs: number = Date.now()): Promise<string> {
  if (UUID.test(reference)) return reference;
  const said = clean(reference, 60);
  const meant = reference.length > MAX_REFERENCE_CHARACTERS ? [] : await client.runsMeant(reference);
  if (meant.length === 1) return meant[0]!.id;
  if (meant.length === 0) {
    throw new UserError('NOT_FOUND', reference === '@last' ? 'Your team has no run yet.' : `There is no run ${said}.`, {
      hint: '`paceline runs` lists the runs of your team. A run is named by its id or at least 4 characters of one end of it, by its name, or by @last.',
      exit: 'notFound',
    });
  }
  const lines = meant.map((run) => `  ${shortId(run.id)}  ${clean(run.name, 60)}  ${run.status}  ${ago(run.createdAt, nowMs)}`);
  throw new UserError('RUN_AMBIGUOUS', `${said} fits several runs, newest first:\n${lines.join('\n')}`, {
    hint: 'Name one by the id in front.',
    exit: 'usage',
  });
}

/** `RUN` or `RUN@ROUND`, where RUN is `@last` or has no @ in it. @returns undefined for what is neither */
export function checkpointReference(text: string): { readonly run: string; readonly round?: number } | undefined {
  const [, run, round] = /^(@last|[^@\s][^@]*)(?:@(\d{1,10}))?$/.exec(text) ?? [];
  if (run === undefined) return undefined;
  return round === undefined ? { run } : { run, round: Number(round) };
}

const ALIAS = /^[a-z0-9][a-z0-9._-]{0,63}:[a-z0-9][a-z0-9._-]{0,63}$/;

/** The model that RUN, RUN@ROUND or an alias such as flowers:best names; an alias goes before a run of the same name. @throws UserError NOT_FOUND, RUN_AMBIGUOUS */
export async function whichCheckpoint(
  client: PacelineClient,
  { run, round }: { readonly run: string; readonly round?: number | undefined },
): Promise<{ readonly runId: string; readonly round: number | undefined }> {
  const [alias] = round === undefined && ALIAS.test(run) ? await client.modelAliases(run) : [];
  if (alias) return { runId: alias.runId, round: alias.round ?? undefined };
  return { runId: await whichRun(client, run), round };
}
