/** docs/reference/cli.md, made from the command tree, the exit codes and the variables. A test compares the file with this. */
import { EXIT, EXIT_MEANINGS, VARIABLES, type ExitName } from '@paceline/runtime';
import type { Command, Option } from 'commander';
import { buildProgram } from './program.js';
import { createTerminal } from './terminal/terminal.js';

/** Variables that only the command line reads. */
const CLI_VARIABLES: Readonly<Record<string, string>> = {
  PACELINE_URL: 'address of the api, before the configuration file',
  PACELINE_API_KEY: 'api key, before that of the configuration file for this address',
  PACELINE_HOME: 'one folder for data, cache and configuration',
  PACELINE_REDIS_SOURCE: 'takes Redis from path, npm, pip, apt or docker only',
  PACELINE_DEBUG: 'shows stacks of errors',
  PACELINE_RETRY_SECONDS: 'how long a command goes on trying when nobody listens at the address of the api, 15 when not set; 0: not at all',
  NO_COLOR: 'prints without colours',
};

export async function cliReference(): Promise<string> {
  const program = await buildProgram({
    env: {},
    terminal: (options) => createTerminal(options, {}),
    setExitCode: () => {
      throw new Error('the reference runs no command');
    },
  });
  return [
    '# The command line',
    '',
    '<!-- Made from the command tree by apps/cli/src/reference.ts: npx vitest run apps/cli/src/reference -u -->',
    '',
    '`npx paceline` in this repository, or `npm start` for `paceline up`. Results go to stdout, progress and errors to stderr.',
    'A run is named by its id, the first or last characters of it (4 or more; tables show the last 8, as ids of one minute begin alike), its name, or',
    '`@last`, the newest; a checkpoint of it by `RUN@ROUND`. A name that fits several runs is refused with a list of them.',
    '`--json` prints one JSON document on stdout instead of text, also for errors: `{"error": {"code", "message", "hint", "issues"}}`.',
    '',
    ...section(program, 'Every command'),
    ...program.commands
      .filter((command) => command.name() !== 'help')
      .flatMap((command) => [command, ...command.commands.filter((inner) => inner.name() !== 'help')])
      .flatMap((command) => ['', ...section(command)]),
    '',
    '## Exit codes',
    '',
    ...rows(
      ['code', 'name', 'meaning'],
      Object.entries(EXIT).map(([name, code]) => [String(code), name, EXIT_MEANINGS[name as ExitName]]),
    ),
    '',
    '## Files',
    '',
    '| what | where |',
    '|---|---|',
    '| configuration: `{"url", "apiKey", "otherKeys"}`, mode 0600; a key goes only to the address that it stands beside | `$XDG_CONFIG_HOME/paceline/config.json`, else `~/.config/paceline/config.json` |',
    '| local stack: databases, weights, logs | `$XDG_DATA_HOME/paceline`, else `~/.local/share/paceline`; for root outside of Linux `/var/lib/paceline` |',
    '| downloads | `$XDG_CACHE_HOME/paceline`, else `~/.cache/paceline` |',
    '',
    'With `PACELINE_HOME` all three are below that folder.',
    '',
    '## Variables',
    '',
    '`paceline up` and its processes read those of the shell that starts it, with these exceptions. Its processes are all on one host, so they get no `PACELINE_DATA_HOST`,',
    '`PACELINE_DATA_BIND` and `PACELINE_DATA_PORT`. `--host` and `--port` take the place of `PACELINE_HOST` and `PACELINE_PORT`. It chooses folders, secrets and certificates itself:',
    '`PACELINE_DATA_DIR`, `PACELINE_DASHBOARD_DIR`, `PACELINE_SOCKET_DIR`, `PACELINE_STOP_MS`, `PACELINE_TOKEN_SECRET`, `PACELINE_BOOTSTRAP_KEY` and the files of `PACELINE_TLS_`. Credentials (`AWS_`) go to them where',
    '`PACELINE_DATA_STORE` or `PACELINE_CHECKPOINT_STORE` is set.',
    '',
    ...rows(
      ['variable', 'what for'],
      [
        ...Object.entries(CLI_VARIABLES).map(([name, description]) => [`\`${name}\``, description]),
        ...Object.entries(VARIABLES).map(([name, schema]) => [`\`${name}\``, schema.description ?? '']),
      ],
    ),
    '',
  ].join('\n');
}

function section(command: Command, title?: string): string[] {
  const args = command.registeredArguments
    .map((argument) => (argument.required ? `<${argument.name()}>` : `[${argument.name()}]`))
    .join(' ');
  const options = command.options.filter((option) => !option.hidden);
  const names = command.parent?.parent ? `${command.parent.name()} ${command.name()}` : command.name();
  return [
    `## ${title ?? `paceline ${names}${args ? ` ${args}` : ''}`}`,
    '',
    command.description(),
    '',
    ...(options.length > 0
      ? rows(
          ['flag', 'what'],
          options.map((option) => [`\`${option.flags}\``, describe(option)]),
        )
      : []),
  ];
}

function describe(option: Option): string {
  // One that is of this machine is described.
  const otherwise = option.defaultValueDescription ?? (option.defaultValue as unknown);
  return otherwise === undefined ? option.description : `${option.description} (default: ${String(otherwise)})`;
}

function rows(titles: readonly string[], cells: readonly (readonly string[])[]): string[] {
  const line = (texts: readonly string[]): string =>
    `| ${texts.map((text) => text.replace(/\|/g, '\\|').replace(/\n/g, ' ')).join(' | ')} |`;
  return [line(titles), `|${titles.map(() => '---').join('|')}|`, ...cells.map(line)];
}
