/** The command tree. docs/reference/cli.md is made from it; a test compares. */
import { EXIT } from '@paceline/runtime';
import { Command, CommanderError } from 'commander';
import { createContext, type CommandContext } from './command.js';
import { addChangeCommands } from './commands/change.js';
import { addDoctor } from './commands/doctor.js';
import { addEngineCommands } from './commands/engine.js';
import { addRunCommands } from './commands/run.js';
import { addTrain } from './commands/train.js';
import { addStackCommands } from './commands/up.js';
import { reportFailure } from './failure.js';
import { createTerminal, type Terminal } from './terminal/terminal.js';

export const VERSION = '0.1.0';

type Action = (context: CommandContext, command: Command, ...args: never[]) => Promise<number>;

export interface ProgramEnvironment {
  readonly env: NodeJS.ProcessEnv;
  readonly terminal: (options: { json: boolean; debug: boolean }) => Terminal;
  readonly setExitCode: (code: number) => void;
}

export function buildProgram(environment: ProgramEnvironment): Command {
  const { env, setExitCode } = environment;
  const program = new Command('paceline')
    .description('Distributed training of TensorFlow.js models.')
    .version(VERSION, '-V, --version', 'print the version')
    .helpCommand('help [command]', 'show help for a command')
    .configureHelp({ showGlobalOptions: true, sortSubcommands: false })
    .addHelpText('after', '\nExit codes, files and variables: docs/reference/cli.md');
  program.option('--json', 'print one JSON document on stdout').option('--debug', 'show stacks of errors (also PACELINE_DEBUG=1)');

  /** Commander calls an action with its arguments, its options and itself; the last one knows everything. */
  const act =
    (action: Action) =>
    async (...args: unknown[]): Promise<void> => {
      const command = args.at(-1) as Command;
      const terminal = environment.terminal(terminalOptions(command.optsWithGlobals(), env));
      try {
        setExitCode(await action(createContext(terminal, env), command, ...(args.slice(0, -2) as never[])));
      } catch (error) {
        setExitCode(reportFailure(error, terminal));
      }
    };
  addStackCommands(program, act);
  addTrain(program, act);
  addRunCommands(program, act);
  addChangeCommands(program, act);
  addDoctor(program, act);
  addEngineCommands(program, act);
  for (const command of [program, ...program.commands, ...program.commands.flatMap(({ commands }) => commands)]) {
    command.exitOverride();
    command.configureOutput({ writeErr: () => undefined, outputError: () => undefined });
    command.showSuggestionAfterError();
  }
  return program;
}

function terminalOptions(options: { json?: boolean; debug?: boolean }, env: NodeJS.ProcessEnv): { json: boolean; debug: boolean } {
  return { json: options.json === true, debug: options.debug === true || (env['PACELINE_DEBUG'] ?? '') !== '' };
}

/** Runs a command line. @returns the exit code */
export async function runProgram(argv: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<number> {
  let exitCode: number = EXIT.ok;
  const program = buildProgram({ env, terminal: (options) => createTerminal(options, env), setExitCode: (code) => (exitCode = code) });
  try {
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    const terminal = createTerminal(
      { json: argv.includes('--json'), debug: argv.includes('--debug') || (env['PACELINE_DEBUG'] ?? '') !== '' },
      env,
    );
    if (!(error instanceof CommanderError)) return reportFailure(error, terminal); // a flag's value, refused while parsing
    if (error.exitCode === 0) return EXIT.ok; // --help and --version
    if (error.code === 'commander.help') {
      terminal.note(program.helpInformation());
      return EXIT.usage;
    }
    const message = error.message.replace(/^error: /, '').replace(/\n\(Did you mean (.+)\?\)/, ' – did you mean $1?');
    if (terminal.json) terminal.document({ error: { code: 'USAGE', message } });
    else terminal.note(`${terminal.style('red', 'error', 'stderr')} ${message}\nSee: paceline --help`);
    return EXIT.usage;
  }
}
