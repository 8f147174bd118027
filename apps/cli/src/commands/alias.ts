/** `paceline alias`: names of the team for trained models, which move on to better ones. */
import { PacelineApiError } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Command } from 'commander';
import type { Act, CommandContext } from '../command.js';
import { clean } from '../terminal/clean.js';
import { ago } from '../terminal/format.js';
import { printTable } from '../terminal/print-table.js';
import { checkpointReference, shortId, whichCheckpoint } from '../which-run.js';
import { MODEL_ARGUMENT } from './export.js';

const NAME_ARGUMENT = 'two names with a colon between, such as flowers:best';

export function addAliasCommands(program: Command, act: Act): void {
  const alias = program
    .command('alias')
    .description('Names for trained models. A command that takes a model as RUN or RUN@ROUND takes an alias too.');
  alias
    .command('set')
    .description('Gives a trained model a name; an existing alias is moved to it.')
    .argument('<name>', NAME_ARGUMENT)
    .argument('<run>', MODEL_ARGUMENT)
    .action(act(setAlias));
  alias.command('list').description('Lists the aliases of your team.').action(act(listAliases));
  alias
    .command('remove')
    .description('Removes an alias; the model is as it was.')
    .argument('<name>', NAME_ARGUMENT)
    .action(act(removeAlias));
}

async function setAlias({ terminal, connect }: CommandContext, _command: Command, name: string, reference: string): Promise<number> {
  const client = connect();
  const asked = checkpointReference(reference);
  if (!asked) throw new UserError('REFERENCE_INVALID', `${JSON.stringify(reference)} is neither RUN nor RUN@ROUND.`, { exit: 'usage' });
  const { runId, round } = await whichCheckpoint(client, asked);
  const alias = await client.setModelAlias(name, runId, round);
  if (terminal.json) terminal.document({ alias });
  else terminal.print(`${clean(alias.name)}  ${shortId(alias.runId)}${alias.round === null ? '' : `@${alias.round}`}`);
  return EXIT.ok;
}

async function listAliases({ terminal, connect }: CommandContext): Promise<number> {
  const aliases = await connect().modelAliases();
  if (terminal.json) {
    terminal.document({ aliases });
    return EXIT.ok;
  }
  const now = Date.now();
  const rows = aliases.map(({ name, runId, round, updatedAt }) => [
    clean(name, 130),
    shortId(runId),
    round === null ? 'result' : `round ${round}`,
    ago(updatedAt, now),
  ]);
  const columns = [{ title: 'NAME', least: 16 }, { title: 'RUN' }, { title: 'MODEL' }, { title: 'SET', drop: 1 }];
  printTable(terminal, columns, rows);
  if (rows.length === 0) terminal.note(`Name a model: ${terminal.program} alias set flowers:best RUN`);
  return EXIT.ok;
}

async function removeAlias({ terminal, connect }: CommandContext, _command: Command, name: string): Promise<number> {
  await connect()
    .removeModelAlias(name)
    .catch((error: unknown) => {
      if (!(error instanceof PacelineApiError) || error.code !== 'NOT_FOUND') throw error;
      throw new UserError('NOT_FOUND', error.message, {
        hint: '`paceline alias list` lists the aliases of your team.',
        exit: 'notFound',
        cause: error,
      });
    });
  if (terminal.json) terminal.document({ name });
  else terminal.print(`${clean(name)} removed`);
  return EXIT.ok;
}
