/** `paceline model show`: the layers of a model, its parameters, and what it takes on workers and servers. */
import { PacelineApiError } from '@paceline/client';
import type { ModelSummary } from '@paceline/models';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import {
  appliedByServers,
  BUILT_IN_DATASETS,
  MODEL_ZOO,
  optimizerSlots,
  parseRunSpec,
  type RowFormat,
  type RunSpec,
  serverBytes,
  shardCount,
  workerBytes,
} from '@paceline/spec';
import type { Command } from 'commander';
import type { Act, CommandContext } from '../command.js';
import { clean } from '../terminal/clean.js';
import { bytes } from '../terminal/format.js';
import { printTable } from '../terminal/print-table.js';
import { isThere } from '../trained-model.js';
import { checkpointReference, noRun, whichCheckpoint } from '../which-run.js';

const FLOAT_BYTES = 4;

export function addModelCommands(program: Command, act: Act): void {
  program
    .command('model')
    .description('Shows what models are made of.')
    .command('show')
    .description(
      'Lists the layers of a model with their outputs and parameters, and the memory that it needs on workers and servers.\n' +
        'A model of the zoo is shown as built for MNIST, or for the dataset of --dataset.',
    )
    .argument(
      '<model>',
      'mlp, mlp-dropout, cnn or another model of the zoo (docs/models.md); a file or folder of TensorFlow.js, Keras or an export, or a topology in JSON; a run or an alias',
    )
    .option('--dataset <name>', 'a built-in dataset, from whose rows a model of the zoo takes its shapes', 'mnist')
    .action(act(showModel));
}

async function showModel({ terminal, connect }: CommandContext, command: Command, reference: string): Promise<number> {
  const { ModelError, summarizeModel } = await import('@paceline/models');
  const { spec, format } = await specOf(reference, command.opts<{ dataset: string }>().dataset, connect);
  let summary: ModelSummary;
  try {
    summary = summarizeModel(spec, format);
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    throw new UserError('INVALID_MODEL', `${error.path}: ${error.message}.`, {
      exit: 'badSpec',
      cause: error,
      hint: format && `--dataset chooses other rows: ${BUILT_IN_DATASETS.join(', ')}. With rows of your own, show a run that has them.`,
    });
  }
  const memory = memoryOf(spec, summary);
  if (terminal.json) {
    terminal.document({ summary, memory });
    return EXIT.ok;
  }
  const rows = summary.layers.map(({ name, className, outputShapes, parameters, frozen, connectedTo }) => [
    `${clean(name, 60)} (${clean(className)})`,
    [...new Set(outputShapes.map(shown))].join(' '),
    exact(parameters) + (frozen > 0 ? ' frozen' : ''),
    connectedTo.map((one) => clean(one, 40)).join(', '),
  ]);
  const columns = [
    { title: 'LAYER', least: 20 },
    { title: 'OUTPUT SHAPE', least: 12 },
    { title: 'PARAMETERS', align: 'right' as const },
    { title: 'CONNECTED TO', drop: 1, least: 12 },
  ];
  printTable(terminal, columns, rows);
  terminal.print('');
  for (const line of totals(summary, memory, spec)) terminal.print(line);
  return EXIT.ok;
}

const exact = (value: number): string => value.toLocaleString('en-US');
const shown = (shape: readonly (number | null)[]): string => `(${shape.map((size) => size ?? 'batch').join(', ')})`;

type Shown = Pick<
  RunSpec,
  'model' | 'freeze' | 'optimizer' | 'gradient' | 'replicas' | 'strategy' | 'codec' | 'checkpoint' | 'earlyStopping'
>;

/** With the defaults of a run where the reference is no run. */
async function specOf(
  reference: string,
  dataset: string,
  connect: CommandContext['connect'],
): Promise<{ readonly spec: Shown; readonly format: RowFormat | undefined }> {
  const defaults = parseRunSpec({});
  if (!defaults.ok) throw new Error('the defaults of a run are no run spec');
  if ((MODEL_ZOO as readonly string[]).includes(reference)) {
    return { spec: Object.assign({}, defaults.spec, { model: reference as RunSpec['model'] }), format: await rowsOf(dataset) };
  }
  if (await isThere(reference)) {
    const { ExportError, readTopology } = await import('@paceline/models');
    const model = await readTopology(reference).catch((error: unknown) => {
      if (!(error instanceof ExportError)) throw error;
      throw new UserError(error.code, `${error.message}.`, { exit: 'usage', cause: error });
    });
    return { spec: Object.assign({}, defaults.spec, { model }), format: undefined };
  }
  const asked = checkpointReference(reference);
  if (!asked)
    throw new UserError(
      'REFERENCE_INVALID',
      `${JSON.stringify(reference.slice(0, 80))} is no model of the zoo (${MODEL_ZOO.join(', ')}), no file and no run.`,
      {
        exit: 'usage',
      },
    );
  const client = connect();
  const { runId } = await whichCheckpoint(client, asked);
  const run = await client.run(runId);
  if (!run) throw noRun(runId);
  const spec = run.spec as RunSpec;
  if (typeof spec.model !== 'string') return { spec, format: undefined };
  // A run without weights yet has no export: then the rows of its dataset say the shapes.
  const exported = await client.exportModel(runId, { format: 'safetensors' }).catch((error: unknown) => {
    if (error instanceof PacelineApiError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  });
  if (exported) return { spec: Object.assign({}, spec, { model: await topologyIn(exported.body) }), format: undefined };
  return { spec, format: await rowsOf(spec.dataset) };
}

/** @throws UserError ROW_INVALID */
async function rowsOf(dataset: string): Promise<RowFormat> {
  const { ExportError, rowsOfDataset } = await import('@paceline/models');
  try {
    return rowsOfDataset(dataset);
  } catch (error) {
    if (!(error instanceof ExportError)) throw error;
    throw new UserError(error.code, `${error.message}.`, { exit: 'usage', cause: error });
  }
}

/** The export of a run says the topology that a model of the zoo became with its rows. */
async function topologyIn(body: AsyncIterable<Uint8Array>): Promise<RunSpec['model']> {
  const { unzip } = await import('@paceline/models');
  const files = await unzip(body);
  return JSON.parse(Buffer.from(files.find(({ path }) => path === 'topology.json')!.bytes).toString('utf8')) as RunSpec['model'];
}

interface Memory {
  readonly parameterBytes: number;
  /** One worker that has all replicas: parameters and gradients, those of its engine too, without batches and what layers keep. */
  readonly workerBytes: number;
  /** All servers together, with gradients that wait and what is kept of a checkpoint that is written; standbys as much again. */
  readonly serverBytes: number;
  /** The part of `serverBytes` that the optimizer keeps, without a checkpoint. */
  readonly optimizerBytes: number;
}

/** docs/ARCHITECTURE.md, Memory. */
export function memoryOf(
  spec: Pick<RunSpec, 'optimizer' | 'gradient' | 'replicas' | 'strategy'> & Parameters<typeof serverBytes>[0],
  { parameters, state }: Pick<ModelSummary, 'parameters' | 'state'>,
): Memory {
  const whole = (parameters + state) * FLOAT_BYTES;
  const slots = optimizerSlots(appliedByServers(spec).optimizer).length;
  return {
    parameterBytes: whole,
    workerBytes: workerBytes(spec, parameters + state),
    serverBytes: shardCount(spec.strategy) * serverBytes(spec, slots, parameters + state),
    optimizerBytes: slots * parameters * FLOAT_BYTES,
  };
}

function totals({ parameters, frozen, state }: ModelSummary, memory: Memory, { optimizer, replicas }: Shown): string[] {
  return [
    `Parameters  ${exact(parameters + state)} (${bytes(memory.parameterBytes)})`,
    `  trained   ${exact(parameters - frozen)}`,
    `  frozen    ${exact(frozen)}`,
    `  state     ${exact(state)}`,
    `A worker    ${bytes(memory.workerBytes)} with all ${replicas} replicas, without batches and what layers keep`,
    `Servers     ${bytes(memory.serverBytes)} together, ${bytes(memory.optimizerBytes)} of them for the state of ${optimizer.name}`,
  ];
}
