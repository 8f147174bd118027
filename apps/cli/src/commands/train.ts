/** `paceline train`: a spec from a file and flags becomes a run; its progress is shown until it is over or Ctrl-C detaches. */
import { PacelineApiError, type PacelineClient, type Run } from '@paceline/client';
import { EXIT, UserError } from '@paceline/runtime';
import { parseRunSpec, type RunSpec, type RunSpecInput, type SpecIssue } from '@paceline/spec';
import type { Command, Option } from 'commander';
import { interruptSignal, type CommandContext } from '../command.js';
import { SpecError, type LocatedIssue } from '../failure.js';
import { readSpecFile, type SpecFile } from '../spec/spec-file.js';
import { mergeFlags, specFlags, specOptions, type SpecFlag } from '../spec/spec-flags.js';
import { clean } from '../terminal/clean.js';
import { finishWatching } from '../watch-run.js';
import { isThere } from '../trained-model.js';
import { checkpointReference, noRun, shortId, whichCheckpoint, whichRun } from '../which-run.js';

export interface TrainOptions {
  readonly detach?: boolean;
  readonly clusterSpec?: string;
  readonly resumeFrom?: ResumeFrom;
  readonly from?: string;
}

/** A checkpoint of another run: its newest, or that of a round. The run as it was typed: `whichRun` finds its id. */
interface ResumeFrom {
  readonly runId: string;
  readonly round?: number;
}

export function addTrain(
  program: Command,
  act: (
    action: (context: CommandContext, command: Command, file: string | undefined) => Promise<number>,
  ) => (...args: unknown[]) => Promise<void>,
): void {
  const flags = specFlags();
  const command = program
    .command('train')
    .description(
      'Starts a run from a spec file, flags, or both (flags win), and shows its progress until it is over.\n' +
        'Ctrl-C detaches: the run goes on, and `paceline run ID --watch` returns to it.',
    )
    .argument('[spec]', 'a run spec in YAML or JSON; without it the defaults train an MLP on MNIST')
    .option('--detach', 'return as soon as the run is created')
    .option('--cluster-spec <id>', 'at most as many servers as this cluster spec names; which of the fleet they are is not said by it')
    .option(
      '--resume-from <run>',
      'begin with the newest checkpoint of another run, or with that of a round: RUN@ROUND; what no flag and no file says is as in that run',
      resumePoint,
    )
    .option(
      '--from <run|file>',
      'fine-tune: begin a new run with the weights of another one, or of its checkpoint RUN@ROUND, or of a file or folder of TensorFlow.js, Keras or an export, and with its model where none is given',
    );
  for (const flag of flags) for (const option of specOptions([flag])) command.addOption(grouped(option, headingOf(flag.field.path)));
  command.addHelpText('after', EXAMPLES);
  command.action(act((context, self, file) => train(context, self, file, flags)));
}

/** Headings of the help, by the first words of fields: every field has one. */
export const HEADINGS: readonly (readonly [heading: string, fields: readonly string[]])[] = [
  ['The run, how long, and with which rows:', ['name', 'length', 'globalBatch', 'dropRemainder', 'shuffle', 'seed']],
  ['Data:', ['dataset', 'features']],
  ['Augmentation of images:', ['augmentation']],
  ['Model:', ['model', 'modelTopology', 'weights', 'freeze', 'embeddings']],
  ['Losses and metrics:', ['loss', 'lossOptions', 'losses', 'lossWeights', 'lossFromLogits', 'metrics', 'metricOptions']],
  ['Optimizer, learning rate and gradients:', ['optimizer', 'learningRate', 'gradient']],
  ['Validation while training:', ['validation', 'earlyStopping', 'reduceLROnPlateau']],
  ['Over many processes:', ['replicas', 'strategy', 'codec', 'engine', 'stepDeadlineMs', 'link', 'restarts']],
  ['Checkpoints:', ['checkpoint']],
];

/** The heading of the help under which a field of the run spec stands. */
export const headingOf = (path: string): string | undefined => HEADINGS.find(([, fields]) => fields.includes(path.split('.')[0]!))?.[0];

const grouped = (option: Option, heading: string | undefined): Option => (heading === undefined ? option : option.helpGroup(heading));

const EXAMPLES = `
Examples:
  paceline train                                           an MLP on MNIST, with the defaults
  paceline train --model cnn --epochs 3 --name first-cnn   another model, for longer
  paceline train --optimizer adam --learning-rate 0.001 --seed 7
  paceline train spec.yaml --replicas 8                    a file, with one field changed
  paceline train --resume-from first-cnn@400               from a checkpoint of another run
  paceline train --from first-cnn --freeze 'conv*'         fine-tune what another run has learned
  paceline train --from my-model.keras --dataset flowers   train a model of Keras further`;

async function train(context: CommandContext, command: Command, file: string | undefined, flags: readonly SpecFlag[]): Promise<number> {
  const { terminal } = context;
  const options = command.opts<TrainOptions>();
  const specFile = file === undefined ? undefined : readSpecFile(file);
  const given = givenFlags(command, flags);
  const spec = options.resumeFrom ? differences(specFile, given, flags) : readSpec(specFile, given, flags);
  const client = context.connect();
  try {
    const tuned = options.from === undefined ? spec : await withStart(client, spec, options.from, differences(specFile, given, flags));
    const run = await createRun(client, tuned, options, specFile, given, flags);
    if (options.detach) {
      if (terminal.json) terminal.document({ runId: run.id, name: run.name, status: run.status });
      terminal.print(`${run.id}`);
      terminal.note(`The run goes on. See it with: ${terminal.program} run ${shortId(run.id)} --watch`);
      return EXIT.ok;
    }
    terminal.note(`run ${terminal.style('bold', run.id, 'stderr')}  ${clean(run.name)}`);
    const interrupt = interruptSignal();
    try {
      return await finishWatching(client, run.id, terminal, interrupt.signal, 0);
    } finally {
      interrupt.dispose();
    }
  } finally {
    await client.close();
  }
}

/** @param from a file or folder that is there, or else a run */
async function withStart(client: PacelineClient, spec: RunSpecInput, from: string, given: RunSpecInput): Promise<RunSpecInput> {
  return (await isThere(from)) ? withFile(client, spec, from, given) : withWeights(client, spec, resumePoint(from, '--from'), given);
}

async function withFile(client: PacelineClient, spec: RunSpecInput, file: string, given: RunSpecInput): Promise<RunSpecInput> {
  const { ExportError, importModel } = await import('@paceline/models');
  const imported = await importModel(file, given.model as RunSpec['model']).catch((error: unknown) => {
    if (!(error instanceof ExportError)) throw error;
    throw new UserError(error.code, `${error.message}.`, { exit: 'usage', cause: error });
  });
  const { sha256 } = await client.models.upload(imported.safetensors());
  const weights = Object.assign({}, given.weights, { upload: sha256 });
  return Object.assign({}, spec, given.model === undefined ? { model: imported.model } : {}, { weights });
}

/** @param given what the file and the flags say; the model is that of the other run where they say none */
async function withWeights(client: PacelineClient, spec: RunSpecInput, from: ResumeFrom, given: RunSpecInput): Promise<RunSpecInput> {
  const { runId: id, round } = await whichCheckpoint(client, { run: from.runId, round: from.round });
  const source = await client.run(id);
  if (!source) throw noRun(id);
  const { model } = source.spec as Pick<RunSpec, 'model'>;
  const weights = Object.assign({}, given.weights, { run: id }, round === undefined ? {} : { round });
  return Object.assign({}, spec, given.model === undefined ? { model } : {}, { weights });
}

/** @throws UserError FLAG_INVALID */
export function resumePoint(text: string, flag: unknown = '--resume-from'): ResumeFrom {
  const reference = checkpointReference(text);
  if (reference !== undefined) return { runId: reference.run, ...(reference.round === undefined ? {} : { round: reference.round }) };
  const said = JSON.stringify(text.slice(0, 80));
  throw new UserError('FLAG_INVALID', `${flag === '--from' ? flag : '--resume-from'} ${said} is not a run, or RUN@ROUND.`, {
    hint: 'A run is its id or a part of it, its name, or @last. `paceline checkpoints RUN` lists the checkpoints of a run.',
    exit: 'usage',
  });
}

/** Values of the flags that stand on the command line, by flag name. */
function givenFlags(command: Command, flags: readonly SpecFlag[]): Map<string, unknown> {
  const values = new Map<string, unknown>();
  for (const { name } of flags) {
    const attribute = name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
    if (command.getOptionValueSource(attribute) === 'cli') values.set(name, command.getOptionValue(attribute));
  }
  return values;
}

/** What a run that begins with another's checkpoint says itself; the api lays it over the spec of that run, and checks the whole. */
export function differences(file: SpecFile | undefined, given: ReadonlyMap<string, unknown>, flags: readonly SpecFlag[]): RunSpecInput {
  return mergeFlags(file?.value ?? {}, given, flags, { inherits: true }) as RunSpecInput;
}

/** @throws SpecError with every wrong field and where it was written */
export function readSpec(file: SpecFile | undefined, given: ReadonlyMap<string, unknown>, flags: readonly SpecFlag[]): RunSpec {
  const result = parseRunSpec(mergeFlags(file?.value ?? {}, given, flags));
  if (result.ok) return result.spec;
  throw new SpecError('The run spec is wrong.', locate(result.issues, file, given, flags));
}

function locate(
  issues: readonly SpecIssue[],
  file: SpecFile | undefined,
  given: ReadonlyMap<string, unknown>,
  flags: readonly SpecFlag[],
): LocatedIssue[] {
  return issues.map((issue) => {
    const flag = flags.find(({ field, name }) => given.has(name) && (field.path === issue.path || field.specPath === issue.path));
    return { ...issue, at: flag ? `--${flag.name}` : file?.at(issue.path) };
  });
}

/** What the api has against the spec; or Graphql against `spec`, the variable: fields of what is not checked here first. */
export function specIssues({ code, issues }: PacelineApiError): readonly SpecIssue[] | undefined {
  if (code === 'INVALID_INPUT') return issues;
  if (code !== 'BAD_USER_INPUT' || issues.length === 0 || !issues.every(({ path }) => /^spec(\.|$)/.test(path))) return undefined;
  return issues.map(({ path, message }) => ({ path: path.slice('spec.'.length) || '(spec)', message }));
}

/** The client sends it again after a lost answer, under one idempotency key. */
async function createRun(
  client: PacelineClient,
  spec: RunSpecInput,
  { clusterSpec: clusterSpecId, resumeFrom: typed }: TrainOptions,
  file: SpecFile | undefined,
  given: ReadonlyMap<string, unknown>,
  flags: readonly SpecFlag[],
): Promise<Run> {
  const resumeFrom = typed && { ...typed, runId: await whichRun(client, typed.runId) };
  try {
    return await client.createRun(spec, { clusterSpecId, resumeFrom });
  } catch (error) {
    if (!(error instanceof PacelineApiError)) throw error;
    const issues = specIssues(error);
    if (issues) throw new SpecError('The run spec is wrong.', locate(issues, file, given, flags));
    if (error.code === 'NOT_FOUND') throw new UserError('NOT_FOUND', error.message, { exit: 'notFound', cause: error });
    throw error;
  }
}
