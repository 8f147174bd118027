/** `paceline team` and `paceline key`: teams and the keys with which people and programs speak for them. */
import type { ApiKey, PacelineClient, Team } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Command } from 'commander';
import type { Act, CommandContext } from '../command.js';
import { describeFailure } from '../failure.js';
import { clean } from '../terminal/clean.js';
import { ago } from '../terminal/format.js';
import { printTable } from '../terminal/print-table.js';

const TEAM_OPTION = ['--team <id>', "id of the team; without it your key's own"] as const;
/** What `paceline team create` calls the first key of a team. */
const FIRST_KEY = 'first';
const DAY_MS = 86_400_000;

export function addTeamCommands(program: Command, act: Act): void {
  const team = program.command('team').description('Teams own runs, keys and cluster specs. Only the administrator makes them.');
  team
    .command('create')
    .description("Makes a team and its first key, which is shown once. Needs the administrator's key.")
    .argument('<name>', 'name of the team')
    .action(act(createTeam));
  team
    .command('show')
    .description('Shows your team, or another one for the administrator.')
    .option(...TEAM_OPTION)
    .action(act(showTeam));
  const key = program.command('key').description('Keys of a team. Programs use one as PACELINE_API_KEY, people sign in with one.');
  key
    .command('create')
    .description('Makes a key. It is shown once; the api keeps only its hash.')
    .argument('<name>', 'whose or what it is for')
    .option('--expires <when>', 'when it ends by itself: in days, like 30d, or a date, like 2030-01-31', (text) => expiry(text))
    .option('--read-only', 'it may look at everything of its team and change nothing')
    .option(...TEAM_OPTION)
    .action(act(createKey));
  key
    .command('list')
    .description('Lists the keys of a team.')
    .option(...TEAM_OPTION)
    .action(act(listKeys));
  key
    .command('revoke')
    .description('Ends a key: it is refused from now on.')
    .argument('<key>', 'its prefix or id, as `paceline key list` shows them')
    .option(...TEAM_OPTION)
    .action(act(revokeKey));
}

async function createTeam(context: CommandContext, _command: Command, name: string): Promise<number> {
  const { terminal } = context;
  const client = context.connect();
  const team = await client.createTeam(name);
  // Before the key: without its id the team could not be named when the second request fails.
  if (!terminal.json) terminal.print(`team  ${clean(team.name)}  ${team.id}`);
  const { secret } = await client.createApiKey(team.id, FIRST_KEY).catch((cause: unknown) => {
    const { message, exit } = describeFailure(cause);
    const hint = `Make it with: paceline key create ${FIRST_KEY} --team ${team.id}`;
    const said = `The team ${clean(team.name)} (${team.id}) is made, and its first key is not: ${message}`;
    throw new UserError('TEAM_WITHOUT_KEY', said, { hint, exit, cause });
  });
  if (terminal.json) terminal.document({ team: { id: team.id, name: team.name }, key: secret });
  else printSecret(context, secret);
  return EXIT.ok;
}

async function showTeam(context: CommandContext, command: Command): Promise<number> {
  const team = await teamOf(context.connect(), command);
  if (context.terminal.json) context.terminal.document(team);
  else context.terminal.print(`team  ${clean(team.name)}  ${team.id}  ${ago(team.createdAt, Date.now())}`);
  return EXIT.ok;
}

async function createKey(context: CommandContext, command: Command, name: string): Promise<number> {
  const { expires: expiresAt, readOnly } = command.opts<{ expires?: Date; readOnly?: boolean }>();
  const client = context.connect();
  const { apiKey, secret } = await client.createApiKey((await teamOf(client, command)).id, name, { expiresAt, readOnly });
  if (context.terminal.json) context.terminal.document({ id: apiKey.id, name: apiKey.name, prefix: apiKey.prefix, key: secret });
  else printSecret(context, secret);
  return EXIT.ok;
}

async function listKeys(context: CommandContext, command: Command): Promise<number> {
  const { apiKeys } = await teamOf(context.connect(), command);
  if (context.terminal.json) context.terminal.document({ keys: apiKeys });
  else {
    const now = Date.now();
    const rows = apiKeys.map((key) => [
      key.prefix,
      clean(key.name),
      stateOf(key, now),
      key.expiresAt ? key.expiresAt.slice(0, 16).replace('T', ' ') : '–',
      ago(key.createdAt, now),
      key.lastUsedAt ? ago(key.lastUsedAt, now) : 'never',
    ]);
    const { terminal } = context;
    const columns = ['PREFIX', 'NAME', 'STATE', 'UNTIL (UTC)', 'MADE', 'LAST USED'].map((title) => ({ title }));
    printTable(terminal, columns, rows);
  }
  return EXIT.ok;
}

function stateOf({ revokedAt, expiresAt, isReadOnly }: ApiKey, nowMs: number): string {
  if (revokedAt) return 'revoked';
  if (expiresAt && Date.parse(expiresAt) <= nowMs) return 'expired';
  return isReadOnly ? 'read-only' : 'in use';
}

/** Date.parse takes 31 February for 3 March. */
function isInCalendar(day: string): boolean {
  const atMs = Date.parse(day);
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(day);
}

/** @throws UserError FLAG_INVALID */
export function expiry(text: string, nowMs: number = Date.now()): Date {
  const days = /^(\d{1,5})d$/.exec(text)?.[1];
  const isDate = /^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?$/.test(text) && isInCalendar(text.slice(0, 10));
  const atMs = days === undefined ? (isDate ? Date.parse(text) : Number.NaN) : nowMs + Number(days) * DAY_MS;
  if (atMs > nowMs) return new Date(atMs);
  throw new UserError('FLAG_INVALID', `--expires ${JSON.stringify(text.slice(0, 40))} is no time to come.`, {
    hint: 'Give days, like 30d; a date, like 2030-01-31, of which the key sees nothing; or a time, like 2030-01-31T18:00:00Z.',
    exit: 'usage',
  });
}

async function revokeKey(context: CommandContext, command: Command, reference: string): Promise<number> {
  const client = context.connect();
  const { apiKeys } = await teamOf(client, command);
  const meant = apiKeys.find(({ id, prefix }) => id === reference || prefix === reference);
  if (!meant)
    throw new UserError('KEY_UNKNOWN', `The team has no key ${JSON.stringify(reference.slice(0, 60))}.`, {
      exit: 'notFound',
      hint: 'See its keys with: paceline key list',
    });
  const revoked = await client.revokeApiKey(meant.id);
  if (context.terminal.json) context.terminal.document(revoked);
  else context.terminal.print(`revoked  ${revoked.prefix}  ${clean(revoked.name)}`);
  return EXIT.ok;
}

async function teamOf(client: PacelineClient, command: Command): Promise<Team> {
  const { team: id } = command.opts<{ team?: string }>();
  if (id === undefined) return (await client.viewer()).team;
  const team = await client.team(id);
  if (team) return team;
  throw new UserError('TEAM_UNKNOWN', `There is no team ${JSON.stringify(id.slice(0, 60))} that this key may see.`, {
    exit: 'notFound',
    hint: 'A team is named by its id, as `paceline team create` has shown it.',
  });
}

function printSecret({ terminal }: CommandContext, secret: string): void {
  terminal.print(`key   ${secret}`);
  terminal.note('It is shown this once. Use it with: export PACELINE_API_KEY=KEY');
}
