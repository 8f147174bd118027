/** The strategies over parameter servers: the program coordinates, workers compute, and the parameters live in processes of their own. */
import {
  ClusterError,
  type ClusterResolver,
  type MemberAddress,
  nodesOf,
  replicasOf,
  rosterOf,
  type Roster,
  TfConfigResolver,
} from '@paceline/collectives';
import { LIMITS } from '@paceline/spec';
import { ArgumentError, ClusterConfigError } from './errors.js';
import { checkKeys, checkTransport } from './known-options.js';
import { FEEDBACK_CODECS, SUM_CODECS } from './members/packed-sums.js';
import { resolverOf } from './resolved-by.js';
import { asRun, type RunStrategy } from './run-options.js';
import { secretOf } from './secret.js';
import type { About } from './servers/messages.js';
import { ServerExchange } from './servers/server-exchange.js';
import { ServerLink } from './servers/server-link.js';
import { reasonAgainstGroups } from './servers/worker-groups.js';
import { Strategy } from './strategy.js';
import type { HybridOptions, ParameterServerOptions } from './strategy-options.js';
import { LONGEST_MS, THREADS_MAX } from './thread-strategies.js';

/** A process that serves, as it is now. */
export interface ServerState extends About {
  readonly task: { readonly type: string; readonly index: number };
}

const KNOWN = ['seed', 'secret', 'deadlineMs', 'joinDeadlineMs', 'transport', 'codec'];
const HYBRID_KNOWN = [...KNOWN, 'replicasPerWorker', 'workersPerGroup'];
const CODECS: readonly unknown[] = ['none', ...SUM_CODECS, ...FEEDBACK_CODECS];

interface Groups {
  readonly replicasPerWorker: number;
  readonly workersPerGroup: number;
}

/** What a ClusterCoordinator takes. */
export abstract class ServedStrategy extends Strategy {
  protected readonly link: ServerLink;
  readonly workers: number;
  /** @internal Workers that are one group. */
  readonly workersPerGroup: number;
  protected readonly serverCount: number;
  private readonly ending: (() => void)[] = [];

  protected constructor(
    name: string,
    resolver: ClusterResolver,
    options: ParameterServerOptions,
    { replicasPerWorker, workersPerGroup }: Groups,
  ) {
    const { link, shares, replicas, servers } = linked(name, resolver, options, { replicasPerWorker, workersPerGroup });
    super(new ServerExchange(link, shares), options);
    this.link = link;
    this.workers = replicas / replicasPerWorker;
    this.workersPerGroup = workersPerGroup;
    this.serverCount = servers;
  }

  /** @internal Functions in workers. */
  get coordinated(): Pick<ServerLink, 'call' | 'revive' | 'workerTask'> {
    return this.link;
  }

  /** @internal How the servers know a model. @throws ArgumentError for a model of somebody else */
  served(model: unknown): { readonly model: number; readonly rate: number } {
    const served = this.distributedModel(model)?.served();
    if (served) return served;
    throw new ArgumentError('a model among the arguments must be one that this strategy distributes');
  }

  /** @internal A function that got a model under this number has ended. */
  ended(model: unknown, served: number): void {
    this.distributedModel(model)?.ended(served);
  }

  /** @internal Reads what workers have learned. */
  takeUp(model: unknown): void {
    this.distributedModel(model)?.takeUp();
  }

  /** @internal */
  onDispose(act: () => void): void {
    this.ending.push(act);
  }

  /** As many servers as the cluster has. */
  override toRun(): RunStrategy {
    const strategy = { kind: 'parameter-server', servers: this.serverCount } as const;
    return asRun('ParameterServerStrategy', this.options, { strategy, replicas: this.numReplicasInSync });
  }

  override async dispose(): Promise<void> {
    for (const act of this.ending.splice(0)) act();
    await super.dispose();
  }

  /** The processes that serve: who they are, what they keep, and what they have sent. */
  servers(): readonly ServerState[] {
    const all = this.link.ask({ kind: 'about' }) as readonly { readonly place: number; readonly about: About }[];
    return all.map(({ place, about }) => ({ task: this.link.taskOf(place), ...about }));
  }
}

/**
 * Parameters and optimizer state live in the parameter servers, each has a range of them; workers compute one replica each. This process has the
 * program: it gives out the rows of every batch. Servers and workers run `paceline server`.
 */
export class ParameterServerStrategy extends ServedStrategy {
  /**
   * @throws ClusterConfigError for a cluster, a task or a secret that has no meaning
   * @throws ArgumentError for an option that has none
   */
  constructor(resolver: ClusterResolver = new TfConfigResolver(), options: ParameterServerOptions = {}) {
    super('ParameterServerStrategy', resolver, checked('ParameterServerStrategy', options, KNOWN), {
      replicasPerWorker: 1,
      workersPerGroup: 1,
    });
  }
}

/**
 * As ParameterServerStrategy, with several replicas in the threads of each worker: what leaves a worker is the sum of their gradients. With groups of several workers
 * what leaves a group is one sum too, and the parameters come to it once.
 */
export class HybridStrategy extends ServedStrategy {
  private readonly replicasPerWorker: number;

  /**
   * @throws ClusterConfigError for a cluster, a task or a secret that has no meaning
   * @throws ArgumentError for an option that has none
   */
  constructor(resolver: ClusterResolver = new TfConfigResolver(), options: HybridOptions = {}) {
    checkLoss(options);
    const { replicasPerWorker = 2, ...rest } = checked('HybridStrategy', options, HYBRID_KNOWN);
    const { workersPerGroup = 1 } = rest;
    if (!Number.isInteger(replicasPerWorker) || replicasPerWorker < 1 || replicasPerWorker > THREADS_MAX)
      throw new ArgumentError(
        `HybridStrategy: replicasPerWorker must be a whole number from 1 to ${THREADS_MAX}, not ${String(replicasPerWorker)}`,
      );
    if (!Number.isInteger(workersPerGroup) || workersPerGroup < 1 || workersPerGroup > LIMITS.replicas)
      throw new ArgumentError(
        `HybridStrategy: workersPerGroup must be a whole number from 1 to ${LIMITS.replicas}, not ${String(workersPerGroup)}`,
      );
    super('HybridStrategy', resolver, rest, { replicasPerWorker, workersPerGroup });
    this.replicasPerWorker = replicasPerWorker;
  }

  /** As many servers as the cluster has, and a compute thread for each replica of a worker. */
  override toRun(): RunStrategy {
    const { serverCount: servers, numReplicasInSync: replicas, replicasPerWorker: threads } = this;
    const strategy = replicas === 1 ? ({ kind: 'parameter-server', servers } as const) : ({ kind: 'hybrid', servers, threads } as const);
    return asRun('HybridStrategy', this.options, { strategy, replicas });
  }
}

/** The option is one of MultiWorkerMirroredStrategy, whose processes are equal. @throws ArgumentError */
function checkLoss(options: object | null): void {
  if ((options as { readonly onMemberLoss?: unknown } | null)?.onMemberLoss === 'continue')
    throw new ArgumentError(
      'HybridStrategy: onMemberLoss cannot be "continue": the rows of a step are with the workers that compute it, and a group waits for the sums of all of its workers; leave it out, and begin again with what was saved last',
    );
}

function checked<T extends ParameterServerOptions>(name: string, options: T, known: readonly string[]): T {
  checkKeys(name, options, known);
  const { seed = 0, transport = 'auto', codec = 'none' } = options;
  if (!Number.isInteger(seed) || seed < 0 || seed > LIMITS.seedMax)
    throw new ArgumentError(`${name}: seed must be a whole number from 0 to ${LIMITS.seedMax}, not ${String(seed)}`);
  checkTransport(name, transport);
  if (!CODECS.includes(codec))
    throw new ArgumentError(`${name}: codec must be ${CODECS.slice(0, -1).join(', ')} or ${String(CODECS.at(-1))}, not ${String(codec)}`);
  return options;
}

function linked(name: string, resolver: ClusterResolver, options: ParameterServerOptions, { replicasPerWorker, workersPerGroup }: Groups) {
  const { roster, workers } = clusterOf(name, resolver);
  const replicas = workers * replicasPerWorker;
  if (replicas > LIMITS.replicas)
    throw new ArgumentError(`${name}: ${replicas} replicas are more than ${LIMITS.replicas}: start fewer workers`);
  const shares = Array.from({ length: workers }, (_, worker) => ({
    replicas,
    ...replicasOf(replicas, workers, worker),
    nodes: nodesOf(replicas, workers, worker),
  }));
  if (workersPerGroup > workers)
    throw new ArgumentError(
      `${name}: workersPerGroup is ${workersPerGroup}, and the cluster has ${workers} worker${workers === 1 ? '' : 's'}`,
    );
  const reason = reasonAgainstGroups(shares, workersPerGroup);
  if (reason !== undefined) throw new ArgumentError(`${name}: workersPerGroup cannot be ${workersPerGroup}: ${reason}`);
  const link = new ServerLink({
    ...roster,
    secret: secretOf(name, options.secret),
    transport: options.transport ?? 'auto',
    shares,
    threads: replicasPerWorker,
    workersPerGroup,
    codec: { kind: options.codec ?? 'none', seed: options.seed ?? 0 },
    deadlineMs: durationOf(name, 'deadlineMs', options.deadlineMs ?? 60_000),
    joinDeadlineMs: durationOf(name, 'joinDeadlineMs', options.joinDeadlineMs ?? 300_000),
  });
  return { link, shares, replicas, servers: roster.tasks.filter(({ task }) => task.type === 'ps').length };
}

function durationOf(name: string, option: string, value: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= LONGEST_MS) return value;
  throw new ArgumentError(`${name}: ${option} must be a whole number of milliseconds from 1 to ${LONGEST_MS}, not ${String(value)}`);
}

function clusterOf(name: string, given: ClusterResolver): { readonly roster: Roster; readonly workers: number } {
  const resolver = resolverOf(name, 'the first argument is', given);
  try {
    const found = resolver.resolve();
    if (!found) throw new ClusterError('no cluster is given: set TF_CONFIG, with tasks of the types chief, worker and ps');
    const { cluster, task } = found;
    if (task && task.type !== 'chief')
      throw new ClusterError(
        `the task of this process is ${task.type} ${task.index}: the program runs as chief, and \`paceline server\` runs workers and parameter servers`,
      );
    const roster = rosterOf(cluster);
    const count = (type: MemberAddress['task']['type']): number => cluster.tasks(type).length;
    if (count('worker') === 0 || count('ps') === 0) throw new ClusterError('the cluster needs at least one worker and one ps');
    return { roster, workers: count('worker') };
  } catch (cause) {
    if (cause instanceof ClusterError) throw new ClusterConfigError(`${name}: ${cause.message}`, { cause });
    throw cause;
  }
}
