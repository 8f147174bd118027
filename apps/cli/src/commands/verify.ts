/** `paceline verify`: replays what TensorFlow has recorded, and says the largest difference. */
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Recording } from '@paceline/models';
import { type Command, Option } from 'commander';
import { TRAINING_TOLERANCE } from '../verify/tolerance.js';
import { interruptSignal, wholeNumber, type Act, type CommandContext } from '../command.js';
import { clean } from '../terminal/clean.js';
import { printTable } from '../terminal/print-table.js';
import type { Terminal } from '../terminal/terminal.js';
import type { ReplayOptions } from '../verify/replay.js';
import type { TrainingFile } from '../verify/results.js';
import { heading, mark, small, stepText } from '../verify/show.js';
import type { Target } from '../verify/targets.js';
import type { PlannedTraining } from '../verify/training.js';
import type { RowResult } from '../verify/updates.js';

const UPDATES_TOLERANCE = 1e-5;

interface VerifyOptions extends ReplayOptions {
  readonly strategy?: readonly string[];
  readonly all?: boolean;
  readonly as?: 'library' | 'service';
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
  | TrainingFile;

export function addVerify(program: Command, act: Act): void {
  program
    .command('verify')
    .description(
      'Replays recordings of TensorFlow and reports the largest difference. A recording of optimizers goes through the kernels of the\n' +
        'servers; a recorded training is replayed under the strategies that are named, with the recorded initial weights and order of examples: those of\n' +
        'the library in processes of this machine, those of the service as runs on a temporary cluster. Exits with 1 when a difference is above the\n' +
        'tolerance, a row cannot be replayed, or a strategy that is named cannot follow the recording. docs/verify.md has the forms of recordings.',
    )
    .argument('<file...>', 'recordings: optimizers.json, or NAME.json with NAME.initial.safetensors and NAME.final.safetensors beside it')
    .option(
      '--strategy <names>',
      'strategies for recorded trainings: one-device, mirrored, central-storage, model-parallel, tpu, multi-worker-mirrored (with :direct, :ring, :tree or :hierarchical for one topology\n' +
        'of the library), parameter-server, hybrid (with :groups for groups of worker processes, in the library), local-update; several with commas between them (default: parameter-server)',
      (text: string, before: readonly string[] = []) => [...before, ...text.split(',')],
    )
    .option('--all', 'every strategy and topology; those that cannot follow a recording are listed with the reason, and do not count')
    .addOption(new Option('--as <what>', 'strategies of the library or of the service alone').choices(['library', 'service']))
    .option(
      '--workers <n>',
      'worker processes for recorded trainings, at most one per replica (default: 1; with --strategy or --all 2, and 4 processes of the library)',
      wholeNumber('--workers', 1, 64),
    )
    .option('--servers <n>', 'parameter-server processes for recorded trainings', wholeNumber('--servers', 1, 64), 1)
    .option('--on-api', 'replay recorded trainings on the configured api and its fleet, not on a temporary cluster')
    .option(
      '--tolerance <x>',
      `largest relative difference that passes (default: ${UPDATES_TOLERANCE} for optimizers, ${TRAINING_TOLERANCE} for trainings)`,
      positiveNumber,
    )
    .option('--dataset <name>', 'what recorded trainings were trained on, when the recording names nothing that is known')
    .addOption(
      new Option('--engine <name>', 'what computes on the workers; tensorflow also in processes of mirrored of the library').choices([
        'wasm',
        'wasm-relaxed',
        'cpu',
        'tensorflow',
        'webgpu',
      ]),
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
  const targets = await targetsOf(options);
  const recordings = await read(files);
  const plans: PlannedTraining[] = [];
  const { planTraining } = await import('../verify/training.js');
  for (const recording of recordings) if (recording.kind === 'training') plans.push(await planTraining(recording, options));
  const results: FileResult[] = [];
  for (const recording of recordings) if (recording.kind === 'updates') results.push(await updates(recording, options, terminal));
  if (plans.length > 0) {
    const interrupt = interruptSignal();
    try {
      const { replay } = await import('../verify/replay.js');
      const done = await replay(plans, targets, options, context, interrupt.signal);
      if (!done) return EXIT.interrupted;
      results.push(...done);
    } finally {
      interrupt.dispose();
    }
  }
  const isHeld = results.every((result) => result.ok || (options.all === true && 'notServed' in result));
  if (terminal.json) terminal.document({ ok: isHeld, files: results });
  return isHeld ? EXIT.ok : EXIT.unsuccessful;
}

/** @returns undefined for the one that is taken where none is named @throws UserError FLAG_INVALID */
async function targetsOf({ strategy, all, as, onApi }: VerifyOptions): Promise<readonly Target[] | undefined> {
  if (strategy === undefined && all !== true && as === undefined) return undefined;
  if (strategy !== undefined && all === true)
    throw new UserError('FLAG_INVALID', '--strategy and --all do not go together.', { exit: 'usage' });
  const { TARGETS, targetsNamed } = await import('../verify/targets.js');
  const asked = onApi === true ? (as ?? 'service') : as;
  if (asked === 'library' && onApi === true)
    throw new UserError('FLAG_INVALID', '--as library and --on-api do not go together: the library needs no api.', { exit: 'usage' });
  if (strategy !== undefined) return targetsNamed(strategy, asked);
  return TARGETS.filter((target) => asked === undefined || target.as === asked);
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
