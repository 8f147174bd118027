/**
 * The command tree. Only the command that was typed is loaded, the others are known by name and one line of help: `paceline runs` is to answer in
 * a blink and needs neither the schema of the run spec nor what starts databases. Measured on two busy cores, of a processor: Node alone 60 ms,
 * `runs` 118, with everything loaded 480. Bundling was left out: these are 40 small files, and half a millisecond each is not worth a second form
 * of the program. test/cli/start.test.ts names what may be loaded. docs/reference/cli.md is made from the whole tree; a test compares.
 */
import { EXIT } from '@paceline/runtime/exit-codes';
import { Command, CommanderError } from 'commander';
import { createContext, type Act, type OnStack } from './command.js';
import { reportFailure } from './failure.js';
import { createTerminal, type Terminal } from './terminal/terminal.js';

export const VERSION = '0.1.0';

type AddCommands = (program: Command, act: Act) => void;

interface CommandGroup {
  /** Above its commands in the help. */
  readonly heading: string;
  /** One line for each command, in the order of the help. */
  readonly commands: Readonly<Record<string, { readonly summary: string; readonly load: () => Promise<AddCommands> }>>;
}

const loadTrain = async (): Promise<AddCommands> => (await import('./commands/train.js')).addTrain;
const loadRuns = async (): Promise<AddCommands> => (await import('./commands/run.js')).addRunCommands;
const loadMetrics = async (): Promise<AddCommands> => (await import('./commands/metrics.js')).addMetrics;
const loadTrace = async (): Promise<AddCommands> => (await import('./commands/trace.js')).addTrace;
const loadChanges = async (): Promise<AddCommands> => (await import('./commands/change.js')).addChangeCommands;
const loadResults = async (): Promise<AddCommands> => (await import('./commands/results.js')).addResultCommands;
const loadExport = async (): Promise<AddCommands> => (await import('./commands/export.js')).addExport;
const loadAliases = async (): Promise<AddCommands> => (await import('./commands/alias.js')).addAliasCommands;
const loadModels = async (): Promise<AddCommands> => (await import('./commands/model.js')).addModelCommands;
const loadPredict = async (): Promise<AddCommands> => (await import('./commands/predict.js')).addPredictCommands;
const loadGenerate = async (): Promise<AddCommands> => (await import('./commands/generate.js')).addGenerateCommand;
const loadVerify = async (): Promise<AddCommands> => (await import('./commands/verify.js')).addVerify;
const loadStack = async (): Promise<AddCommands> => (await import('./commands/up.js')).addStackCommands;
const loadDemo = async (): Promise<AddCommands> => (await import('./commands/demo.js')).addDemo;
const loadLogs = async (): Promise<AddCommands> => (await import('./commands/logs.js')).addLogs;
const loadTeams = async (): Promise<AddCommands> => (await import('./commands/team.js')).addTeamCommands;
const loadDoctor = async (): Promise<AddCommands> => (await import('./commands/doctor.js')).addDoctor;
const loadServer = async (): Promise<AddCommands> => (await import('./commands/server.js')).addServer;
const loadData = async (): Promise<AddCommands> => (await import('./commands/data.js')).addDataCommands;
const loadEngine = async (): Promise<AddCommands> => (await import('./commands/engine.js')).addEngineCommands;

export const COMMAND_GROUPS: readonly CommandGroup[] = [
  {
    heading: 'Train and look:',
    commands: {
      train: { summary: 'start a run and show its progress', load: loadTrain },
      runs: { summary: 'list runs, newest first', load: loadRuns },
      run: { summary: 'show one run', load: loadRuns },
      metrics: { summary: 'print the metrics of a run as CSV or JSON', load: loadMetrics },
      trace: { summary: 'record where the time of the next rounds of a run goes', load: loadTrace },
      checkpoints: { summary: 'list the checkpoints of a run', load: loadResults },
      weights: { summary: 'download the trained weights', load: loadResults },
      export: { summary: 'download the trained model in a form of other programs', load: loadExport },
      alias: { summary: 'names for trained models: set, list, remove', load: loadAliases },
      model: { summary: 'the layers, parameters and memory of a model', load: loadModels },
      evaluate: { summary: 'measure a trained model', load: loadPredict },
      predict: { summary: 'predict rows with a trained model', load: loadPredict },
      generate: { summary: 'generate text with a trained language model', load: loadGenerate },
      open: { summary: 'open the dashboard in the browser', load: loadResults },
    },
  },
  {
    heading: 'Change a run:',
    commands: {
      pause: { summary: 'pause a run', load: loadChanges },
      resume: { summary: 'resume a paused run', load: loadChanges },
      scale: { summary: 'set how many workers a run may have', load: loadChanges },
      extend: { summary: 'train a run for longer', load: loadChanges },
      cancel: { summary: 'end a run for good', load: loadChanges },
    },
  },
  {
    heading: 'Data:',
    commands: {
      data: { summary: 'datasets: import, list, show, preview, verify, remove', load: loadData },
    },
  },
  {
    heading: 'People:',
    commands: {
      team: { summary: 'teams: create, show', load: loadTeams },
      key: { summary: 'api keys: create, list, revoke', load: loadTeams },
    },
  },
  {
    heading: 'Machines:',
    commands: {
      demo: { summary: 'train MNIST on a cluster of its own, and stop', load: loadDemo },
      up: { summary: 'run everything on this machine', load: loadStack },
      down: { summary: 'stop what `up` started', load: loadStack },
      logs: { summary: 'logs of the local stack', load: loadLogs },
      workers: { summary: 'list workers and parameter servers', load: loadRuns },
      server: { summary: 'serve a program of the library: parameter server or worker', load: loadServer },
      engine: { summary: 'engines of this machine: list, install, test, remove', load: loadEngine },
      doctor: { summary: 'check this machine', load: loadDoctor },
      verify: { summary: 'replay what TensorFlow has recorded', load: loadVerify },
    },
  },
];

const AFTER_HELP = `
Examples:
  paceline up                        start everything on this machine
  paceline train --epochs 2          train, and look on
  paceline data import flowers.csv   make a dataset of a file, to train on
  paceline runs --status RUNNING     what is going on
  paceline run @last --watch         return to the newest run
  paceline weights @last             its weights as a file

A run is named by its id or a part of it, by its name, or by @last.
Exit codes, files and variables: docs/reference/cli.md`;

export interface ProgramEnvironment {
  readonly env: NodeJS.ProcessEnv;
  readonly terminal: (options: { json: boolean; debug: boolean }) => Terminal;
  readonly setExitCode: (code: number) => void;
  readonly onStack?: OnStack | undefined;
  /** The help of a group of commands that was named without one of them. */
  readonly onIncomplete?: ((help: string) => void) | undefined;
}

/** @param loaded names of the commands that are there with everything; all of them when not given */
export async function buildProgram(environment: ProgramEnvironment, loaded?: readonly string[]): Promise<Command> {
  const program = new Command('paceline')
    .description('Distributed training of TensorFlow.js models.')
    .version(VERSION, '-V, --version', 'print the version')
    .commandsGroup('Help:')
    .helpCommand('help [command]', 'show help for a command')
    .configureHelp({ showGlobalOptions: true, sortSubcommands: false })
    .addHelpText('after', AFTER_HELP);
  program.option('--json', 'print one JSON document on stdout').option('--debug', 'show stacks of errors (also PACELINE_DEBUG=1)');
  await addCommands(program, actWith(environment), loaded);
  for (const command of [program, ...program.commands, ...program.commands.flatMap(({ commands }) => commands)]) {
    command.exitOverride();
    command.configureOutput({
      writeOut: (text) => {
        const terminal = environment.terminal({ json: false, debug: false });
        terminal.stdout.write(terminal.typed(text));
      },
      writeErr: (help) => environment.onIncomplete?.(help),
      outputError: () => undefined,
    });
    command.showSuggestionAfterError();
  }
  return program;
}

async function addCommands(program: Command, act: Act, loaded: readonly string[] | undefined): Promise<void> {
  const whole = new Set<AddCommands>();
  const listed = COMMAND_GROUPS.flatMap(({ heading, commands }) =>
    Object.entries(commands).map(([name, rest]) => ({ heading, name, ...rest })),
  );
  for (const { name, load } of listed) if (!loaded || loaded.includes(name)) whole.add(await load());
  for (const add of whole) add(program, act);
  for (const { heading, name, summary } of listed) {
    const command = program.commands.find((candidate) => candidate.name() === name) ?? program.command(name);
    command.summary(summary).helpGroup(heading);
  }
  const order = listed.map(({ name }) => name);
  (program.commands as Command[]).sort((a, b) => order.indexOf(a.name()) - order.indexOf(b.name()));
}

/** Commander calls an action with its arguments, its options and itself; the last one knows everything. */
function actWith({ env, terminal: makeTerminal, setExitCode, onStack }: ProgramEnvironment): Act {
  return (action) =>
    async (...args: unknown[]): Promise<void> => {
      const command = args.at(-1) as Command;
      const terminal = makeTerminal(terminalOptions(command.optsWithGlobals(), env));
      try {
        setExitCode(await action(createContext(terminal, env, onStack), command, ...(args.slice(0, -2) as never[])));
      } catch (error) {
        setExitCode(reportFailure(error, terminal));
      }
    };
}

function terminalOptions(options: { json?: boolean; debug?: boolean }, env: NodeJS.ProcessEnv): { json: boolean; debug: boolean } {
  return { json: options.json === true, debug: options.debug === true || (env['PACELINE_DEBUG'] ?? '') !== '' };
}

/** The command that a command line names, also after `help`: what has to be loaded. */
function namedCommands(argv: readonly string[]): readonly string[] {
  return argv.filter((word) => !word.startsWith('-')).slice(0, argv.includes('help') ? 2 : 1);
}

/** What a command line lacks that names a group of commands and none of them, or asks for the help of one that is not there. */
function lacking(program: Command, argv: readonly string[]): { readonly message: string; readonly isUnknown: boolean } {
  let group = program;
  for (const word of argv.filter((each) => !each.startsWith('-') && each !== 'help')) {
    const named = group.commands.find((command) => command.name() === word);
    if (!named) return { message: `unknown command '${word.slice(0, 60)}'`, isUnknown: true };
    group = named;
  }
  const names = group.commands.map((command) => command.name()).join(', ');
  return { message: `${group === program ? 'a command' : `the command after ${group.name()}`} is missing: ${names}`, isUnknown: false };
}

/** Runs a command line. @returns the exit code */
export async function runProgram(
  argv: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  onStack?: OnStack,
  makeTerminal: ProgramEnvironment['terminal'] = (options) => createTerminal(options, env),
): Promise<number> {
  let exitCode: number = EXIT.ok;
  let help = '';
  const setExitCode = (code: number): void => void (exitCode = code);
  const onIncomplete = (text: string): void => void (help += text);
  const program = await buildProgram({ env, terminal: makeTerminal, setExitCode, onStack, onIncomplete }, namedCommands(argv));
  try {
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    const terminal = makeTerminal(terminalOptions({ json: argv.includes('--json'), debug: argv.includes('--debug') }, env));
    if (!(error instanceof CommanderError)) return reportFailure(error, terminal); // a flag's value, refused while parsing
    if (error.exitCode === 0) return EXIT.ok; // --help and --version
    const lack = error.code === 'commander.help' ? lacking(program, argv) : undefined;
    if (lack && !lack.isUnknown && !terminal.json) {
      terminal.note(terminal.typed(help.trimEnd()));
      return EXIT.usage;
    }
    const message = lack?.message ?? error.message.replace(/^error: /, '').replace(/\n\(Did you mean (.+)\?\)/, ' – did you mean $1?');
    if (terminal.json) terminal.document({ error: { code: 'USAGE', message } });
    else terminal.note(`${terminal.style('red', 'error', 'stderr')} ${message}\nSee: ${terminal.program} --help`);
    return EXIT.usage;
  }
}
