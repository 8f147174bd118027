/** The strategy over several processes, on one host or on many: each computes its replicas, and an all-reduce adds their gradients up. */
import { availableParallelism } from 'node:os';
import {
  ClusterError,
  groupId,
  LEAST_SECRET_CHARACTERS,
  memberIndex,
  nodesOf,
  replicasOf,
  TfConfigResolver,
  type ClusterResolver,
  type MemberAddress,
} from '@paceline/collectives';
import { LIMITS } from '@paceline/spec';
import { ArgumentError, ClusterConfigError } from './errors.js';
import { GroupThread } from './members/group-link.js';
import { Strategy } from './strategy.js';
import { countsOf, LONGEST_MS, THREADS_MAX, type ThreadStrategyOptions } from './thread-strategies.js';
import { ThreadExchange, type ThreadExchangeOptions } from './threads/thread-exchange.js';

export interface MultiWorkerOptions extends ThreadStrategyOptions {
  /** Who takes part, and which of them this process is; from the environment variable TF_CONFIG by default. */
  readonly cluster?: ClusterResolver;
  /** What all processes know, and nobody else: who shows it may join. From the environment variable PACELINE_CLUSTER_SECRET by default. */
  readonly secret?: string;
  /** Copies of the model over all processes, the same number in each; as many as all processes have threads by default. */
  readonly replicas?: number;
  /** All processes have to join within so long, in milliseconds; 300,000 by default. */
  readonly joinDeadlineMs?: number;
  /** How members reach each other: `auto` takes a Unix socket where both are on one host, else TCP. */
  readonly transport?: 'auto' | 'tcp' | 'unix';
}

const JOIN_DEADLINE_MS = 300_000;
const SECRET_VARIABLE = 'PACELINE_CLUSTER_SECRET';
const TRANSPORTS: readonly unknown[] = ['auto', 'tcp', 'unix'];
const KNOWN = ['cluster', 'secret', 'threads', 'replicas', 'seed', 'deadlineMs', 'joinDeadlineMs', 'transport'];
const NAME = 'MultiWorkerMirroredStrategy';

/**
 * Every process runs the same program with the same data, builds the same models, and calls `fit` with the same arguments. Each computes its
 * share of every batch; weights, optimizer state and History are the same in all. Without a cluster it is a MirroredStrategy.
 */
export class MultiWorkerMirroredStrategy extends Strategy {
  /** Type and index of this process's task. */
  readonly task: { readonly type: string; readonly index: number };

  /**
   * @throws ClusterConfigError for a cluster, a task or a secret that has no meaning
   * @throws ArgumentError for an option that has none
   */
  constructor(options: MultiWorkerOptions = {}) {
    const { exchange, task } = planned(options);
    super(new ThreadExchange(exchange), options);
    this.task = task;
  }
}

function planned(options: MultiWorkerOptions): { exchange: ThreadExchangeOptions; task: MemberAddress['task'] } {
  countsOf(options, NAME, KNOWN); // it refuses what is no options at all
  const joinDeadlineMs = joinDeadlineOf(options);
  const found = clusterOf(options);
  const { members, self } = found ?? { members: [], self: 0 };
  const count = Math.max(1, members.length);
  const { cluster: _cluster, secret: _secret, joinDeadlineMs: _join, transport: _transport, ...known } = options;
  const counts = countsOf(withDefaults(known, count), NAME, KNOWN);
  const { replicas, deadlineMs } = counts;
  if (replicas < count)
    throw new ArgumentError(
      `${NAME}: ${replicas} replicas for ${count} processes would leave processes without work: use at least as many`,
    );
  const { from, to } = replicasOf(replicas, count, self);
  const threads = Math.min(counts.threads, to - from);
  const exchange = { threads, replicas, deadlineMs, updaters: threads, loadsEarly: true };
  const task = members[self]?.task ?? { type: 'worker' as const, index: 0 };
  if (count === 1) return { exchange, task };
  const group = new GroupThread({
    members,
    self,
    group: groupId([members, replicas, options.seed ?? 0]),
    secret: secretOf(options),
    share: { replicas, from, to, nodes: nodesOf(replicas, count, self) },
    transport: transportOf(options),
    joinDeadlineMs,
    deadlineMs,
  });
  return { exchange: { ...exchange, group }, task };
}

/** Replicas are those of all processes, threads those of this one. */
export function withDefaults(
  options: ThreadStrategyOptions,
  processes: number,
  cores = availableParallelism(),
): ThreadStrategyOptions & { readonly threads: number; readonly replicas: number } {
  const { replicas } = options;
  // Replicas that are given are shared out; without them every process has as many as threads.
  const share = replicas === undefined ? Math.floor(LIMITS.replicas / processes) : Math.ceil(replicas / processes);
  const threads = options.threads ?? Math.max(1, Math.min(cores, THREADS_MAX, share));
  return { ...options, threads, replicas: replicas ?? threads * processes };
}

function clusterOf({ cluster = new TfConfigResolver() }: MultiWorkerOptions) {
  if (typeof (cluster as ClusterResolver | null)?.resolve !== 'function')
    throw new ArgumentError(
      `${NAME}: cluster takes a resolver, such as new GivenResolver({ worker: ['10.0.0.1:4600'] }, { type: 'worker', index: 0 })`,
    );
  try {
    const found = cluster.resolve();
    return found && { members: found.cluster.members, self: memberIndex(found.cluster, found.task) };
  } catch (cause) {
    if (cause instanceof ClusterError) throw new ClusterConfigError(cause.message, { cause });
    throw cause;
  }
}

function secretOf({ secret = process.env[SECRET_VARIABLE] }: MultiWorkerOptions): string {
  if (typeof secret === 'string' && secret.length >= LEAST_SECRET_CHARACTERS) return secret;
  throw new ClusterConfigError(
    `${NAME}: ${secret === undefined ? 'a cluster needs a shared secret' : `the shared secret must be a text of at least ${LEAST_SECRET_CHARACTERS} characters`}: set ${SECRET_VARIABLE}, or the option secret, to the same text in every process (openssl rand -hex 32 makes one)`,
  );
}

function transportOf({ transport = 'auto' }: MultiWorkerOptions): 'auto' | 'tcp' | 'unix' {
  if (TRANSPORTS.includes(transport)) return transport;
  throw new ArgumentError(`${NAME}: transport must be auto, tcp or unix, not ${String(transport)}`);
}

function joinDeadlineOf({ joinDeadlineMs = JOIN_DEADLINE_MS }: MultiWorkerOptions): number {
  if (Number.isInteger(joinDeadlineMs) && joinDeadlineMs >= 1 && joinDeadlineMs <= LONGEST_MS) return joinDeadlineMs;
  throw new ArgumentError(
    `${NAME}: joinDeadlineMs must be a whole number of milliseconds from 1 to ${LONGEST_MS}, not ${String(joinDeadlineMs)}`,
  );
}
