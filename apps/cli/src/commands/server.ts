/** `paceline server`: a parameter server or a worker for a program with ParameterServerStrategy. It needs neither an api nor a stack. */
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import { GivenResolver, Server, TfConfigResolver, type ClusterResolver } from '@paceline/strategies/server';
import type { Command } from 'commander';
import { interruptSignal, wholeNumber, type Act, type CommandContext } from '../command.js';

interface Options {
  readonly job?: string;
  readonly index?: number;
  readonly cluster?: string;
  readonly listenHost?: string;
  readonly transport: 'auto' | 'tcp' | 'unix';
}

const MOST_TASKS = 65_535;
/** What keeps a process from listening at its address. */
const LISTENING: ReadonlySet<string> = new Set(['PORT_IN_USE', 'PATH_IN_USE', 'NO_PERMISSION', 'BAD_ADDRESS']);

export function addServer(program: Command, act: Act): void {
  program
    .command('server')
    .description(
      'Serves a program that trains with ParameterServerStrategy or HybridStrategy (docs/library.md): as a parameter server or as a worker, until it is ended. ' +
        'The cluster and the task come from TF_CONFIG, the shared secret from PACELINE_CLUSTER_SECRET.',
    )
    .option('--job <type>', 'ps or worker, before the task of TF_CONFIG')
    .option('--index <n>', 'which one of them, from 0', wholeNumber('--index', 0, MOST_TASKS))
    .option('--cluster <json>', 'lists of addresses, before those of TF_CONFIG: {"ps": ["HOST:PORT"], "worker": ["HOST:PORT"]}')
    .option('--listen-host <address>', 'where to listen, if not at the address in the cluster: 0.0.0.0 for all interfaces')
    .option('--transport <kind>', 'auto, tcp or unix', 'auto')
    .action(act(serve));
}

async function serve({ terminal, env }: CommandContext, command: Command): Promise<number> {
  const options = command.opts<Options>();
  const { listenHost, transport } = options;
  if (!['auto', 'tcp', 'unix'].includes(transport))
    throw new UserError('USAGE', `--transport must be auto, tcp or unix, not ${JSON.stringify(transport)}.`, { exit: 'usage' });
  const secret = env['PACELINE_CLUSTER_SECRET'];
  const server = await started(() =>
    Server.start(resolverOf(options, env), {
      transport,
      ...(listenHost === undefined ? {} : { listenHost }),
      ...(secret === undefined ? {} : { secret }),
    }),
  );
  const { task, address } = server;
  if (terminal.json) terminal.document({ task, address, pid: process.pid });
  else terminal.print(`${task.type} ${task.index} serves at ${address}`);
  const interrupt = interruptSignal();
  interrupt.signal.addEventListener('abort', () => void server.close(), { once: true });
  await server.join();
  interrupt.dispose();
  return EXIT.ok;
}

/** TF_CONFIG, with what the flags say instead. */
function resolverOf({ job, index, cluster }: Options, env: NodeJS.ProcessEnv): ClusterResolver {
  const configured = new TfConfigResolver(env);
  if (job === undefined && index === undefined && cluster === undefined) return configured;
  const found =
    env['TF_CONFIG'] === undefined
      ? {}
      : (JSON.parse(env['TF_CONFIG']) as { cluster?: unknown; task?: { type?: unknown; index?: unknown } });
  const given: unknown = cluster === undefined ? found.cluster : JSON.parse(cluster);
  return new GivenResolver(given, { type: job ?? found.task?.type, index: index ?? found.task?.index ?? 0 });
}

/** What is wrong with the cluster is a mistake of the command line or of the environment, and not a fault. */
async function started(start: () => Promise<Server>): Promise<Server> {
  try {
    return await start();
  } catch (cause) {
    const { code, message } = cause as { readonly code?: unknown; readonly message: string };
    if (LISTENING.has(String(code))) throw new UserError(String(code), message, { exit: 'configuration', cause });
    const isConfiguration = cause instanceof SyntaxError || String(code).startsWith('STRATEGY_');
    if (!isConfiguration) throw cause;
    const hint =
      'TF_CONFIG looks like {"cluster": {"chief": ["HOST:PORT"], "worker": ["HOST:PORT"], "ps": ["HOST:PORT"]}, "task": {"type": "ps", "index": 0}}';
    throw new UserError('STRATEGY_CLUSTER', message, { hint, exit: 'configuration', cause });
  }
}
