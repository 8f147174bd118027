/** `paceline verify`: replays what TensorFlow has recorded, and says the largest difference. */
import type { PacelineClient } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Recording, TrainingRecording } from '@paceline/models';
import { type Command, Option } from 'commander';
import { interruptSignal, wholeNumber, type Act, type CommandContext } from '../command.js';
import { withTemporaryStack } from '../stack/temporary-stack.js';
import { clean } from '../terminal/clean.js';
import { printTable } from '../terminal/print-table.js';
import type { Terminal } from '../terminal/terminal.js';
import type { PlannedTraining, TrainingResult } from '../verify/training.js';
import type { RowResult } from '../verify/updates.js';
import { watchRun } from '../watch-run.js';

const UPDATES_TOLERANCE = 1e-5;
const TRAINING_TOLERANCE = 2e-4;

interface VerifyOptions {
  readonly workers: number;
  readonly servers: number;
  readonly onApi?: boolean;
  readonly tolerance?: number;
  readonly dataset?: string;
  readonly engine?: string;
}

type FileResult =
  | {
      readonly file: string;
      readonly kind: 'updates';
      readonly ok: boolean;
      readonly tolerance: number;
      readonly rows: readonly RowResult[];
      readonly unknownFields: readonly string[];
    }
  | ({
      readonly file: string;
      readonly kind: 'training';
      readonly tolerance: number;
      readonly workers: number;
      readonly servers: number;
      readonly unknownFields: readonly string[];
    } & TrainingResult);

export function addVerify(program: Command, act: Act): void {
  program
    .command('verify')
    .description(
      'Replays recordings of TensorFlow and reports the largest difference. A recording of optimizers goes through the kernels of the\n' +
        'servers; a recorded training becomes a run on a temporary cluster on this machine, with the recorded initial weights and order of examples.\n' +
        'Exits with 1 when a difference is above the tolerance, or a row cannot be replayed. docs/verify.md has the forms of recordings.',
    )
    .argument('<file...>', 'recordings: optimizers.json, or NAME.json with NAME.initial.safetensors and NAME.final.safetensors beside it')
    .option('--workers <n>', 'worker processes for recorded trainings', wholeNumber('--workers', 1, 64), 1)
    .option('--servers <n>', 'parameter-server processes for recorded trainings', wholeNumber('--servers', 1, 64), 1)
    .option('--on-api', 'replay recorded trainings on the configured api and its fleet, not on a temporary cluster')
    .option(
      '--tolerance <x>',
      `largest relative difference that passes (default: ${UPDATES_TOLERANCE} for optimizers, ${TRAINING_TOLERANCE} for trainings)`,
      positiveNumber,
    )
    .option('--dataset <name>', 'what recorded trainings were trained on, when the recording names nothing that is known')
    .addOption(
      new Option('--engine <name>', 'what computes on the workers').choices(['wasm', 'wasm-relaxed', 'cpu', 'tensorflow', 'webgpu']),
    )
    .action(act(verify));
}

function positiveNumber(text: string): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new UserError('FLAG_INVALID', `--tolerance ${JSON.stringify(text.slice(0, 40))} is not a number above 0.`, { exit: 'usage' });
}

async function verify(context: CommandContext, command: Command, files: string[]): Promise<number> {
  const { terminal } = context;
  const options = command.opts<VerifyOptions>();
  // All are read before anything is started: what cannot be used is known in a second.
  const recordings = await read(files);
  const trainings = new Map<TrainingRecording, PlannedTraining>();
  const { planTraining } = await import('../verify/training.js');
  for (const recording of recordings) if (recording.kind === 'training') trainings.set(recording, await planTraining(recording, options));
  const results: FileResult[] = [];
  for (const recording of recordings) if (recording.kind === 'updates') results.push(await updates(recording, options, terminal));
  if (trainings.size > 0) {
    const interrupt = interruptSignal();
    try {
      const done = await replayed([...trainings.values()], options, context, interrupt.signal);
      if (!done) return EXIT.interrupted;
      results.push(...done);
    } finally {
      interrupt.dispose();
    }
  }
  const isHeld = results.every(({ ok }) => ok);
  if (terminal.json) terminal.document({ ok: isHeld, files: results });
  return isHeld ? EXIT.ok : EXIT.unsuccessful;
}

async function read(files: readonly string[]): Promise<Recording[]> {
  const { readRecording, RecordingError } = await import('@paceline/models');
  try {
    return await Promise.all(files.map((file) => readRecording(file)));
  } catch (error) {
    if (!(error instanceof RecordingError)) throw error;
    throw new UserError('RECORDING_UNUSABLE', `${error.message}.`, {
      exit: 'badSpec',
      hint: 'docs/verify.md has the forms of recordings.',
      cause: error,
    });
  }
}

async function updates(recording: Recording & { kind: 'updates' }, options: VerifyOptions, terminal: Terminal): Promise<FileResult> {
  const { verifyUpdates } = await import('../verify/updates.js');
  const tolerance = options.tolerance ?? UPDATES_TOLERANCE;
  const rows = await verifyUpdates(recording, tolerance);
  const held = rows.filter(({ ok }) => ok).length;
  heading(terminal, recording);
  const shown = rows.map((row) => [
    mark(terminal, row.ok),
    clean(row.name, 40),
    clean(row.class, 20),
    small(row.absolute),
    small(row.relative),
    row.reasons.length > 0 ? clean(row.reasons.join('; '), 200) : stepText(row.step),
  ]);
  const columns = [
    { title: '' },
    { title: 'ROW', least: 12 },
    { title: 'CLASS', drop: 2 },
    { title: 'ABSOLUTE', align: 'right', drop: 1 },
    { title: 'RELATIVE', align: 'right' },
    { title: 'LARGEST AT', least: 12 },
  ] as const;
  printTable(terminal, columns, shown);
  terminal.print(`${held} of ${rows.length} rows within ${tolerance} over ${recording.gradients.length} steps`);
  return { file: recording.file, kind: 'updates', ok: held === rows.length, tolerance, rows, unknownFields: recording.unknown };
}

async function replayed(
  plans: readonly PlannedTraining[],
  options: VerifyOptions,
  { terminal, connect }: CommandContext,
  signal: AbortSignal,
): Promise<FileResult[] | undefined> {
  const { workers, servers } = options;
  const all = async (client: PacelineClient, either: AbortSignal): Promise<FileResult[] | undefined> => {
    const results: FileResult[] = [];
    for (const plan of plans) {
      const result = await one(client, plan, options, terminal, either);
      if (!result) return undefined;
      results.push(result);
    }
    return results;
  };
  if (!options.onApi) return withTemporaryStack({ name: 'verify', workers, servers }, terminal, signal, all);
  const client = connect();
  try {
    return await all(client, signal);
  } finally {
    await client.close();
  }
}

/** @returns undefined when it was interrupted */
async function one(
  client: PacelineClient,
  plan: PlannedTraining,
  options: VerifyOptions,
  terminal: Terminal,
  signal: AbortSignal,
): Promise<FileResult | undefined> {
  const { startTraining, compareTraining } = await import('../verify/training.js');
  const { recording } = plan;
  const { workers, servers, tolerance = TRAINING_TOLERANCE } = options;
  const watched = await watchRun(client, await startTraining(client, plan), terminal, { signal });
  if (!watched) return undefined;
  const { status, statusReason } = watched.run;
  if (status !== 'SUCCEEDED')
    throw new UserError('RUN_NOT_SUCCEEDED', `${recording.file}: the run is ${status}: ${statusReason ?? 'no reason'}`, {
      exit: 'unsuccessful',
    });
  const result = await compareTraining(client, watched.run, plan, tolerance);
  heading(terminal, recording);
  show(terminal, result, { workers, servers, tolerance });
  return { file: recording.file, kind: 'training', tolerance, workers, servers, unknownFields: recording.unknown, ...result };
}

function show(
  terminal: Terminal,
  result: TrainingResult,
  { workers, servers, tolerance }: { workers: number; servers: number; tolerance: number },
): void {
  const { loss, tensors } = result;
  const rows = [
    [mark(terminal, loss.relative <= tolerance), 'loss', small(loss.absolute), small(loss.relative), stepText(loss.step)],
    ...tensors.map((one) => [
      mark(terminal, one.relative <= tolerance),
      clean(one.path, 60),
      small(one.absolute),
      small(one.relative),
      'at the end',
    ]),
  ];
  const columns = [
    { title: '' },
    { title: 'WHAT', least: 16 },
    { title: 'ABSOLUTE', align: 'right', drop: 1 },
    { title: 'RELATIVE', align: 'right' },
    { title: 'LARGEST', drop: 2 },
  ] as const;
  printTable(terminal, columns, rows);
  terminal.print(
    `${result.ok ? 'within' : 'above'} ${tolerance} after ${result.steps} steps: ${result.replicas} replicas, ${workers} worker${workers === 1 ? '' : 's'}, ${servers} server${servers === 1 ? '' : 's'}, weights ${result.weightsSha256}`,
  );
}

function heading(terminal: Terminal, { file, unknown }: Recording): void {
  terminal.print(terminal.style('bold', clean(file, 300)));
  if (unknown.length > 0)
    terminal.note(
      `${terminal.style('yellow', 'warning', 'stderr')} fields that are not known here and were not used: ${clean(unknown.join(', '), 300)}`,
    );
}

/** Steps count from 1; where nothing differs, no step differs most. */
const stepText = (step: number): string => (step === 0 ? '–' : `step ${step}`);
const mark = (terminal: Terminal, ok: boolean): string => (ok ? terminal.style('green', 'ok') : terminal.style('red', 'FAILED'));
const small = (value: number): string => (value === 0 ? '0' : Number.isFinite(value) ? value.toExponential(2) : '–');
