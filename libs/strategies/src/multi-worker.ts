/** The strategy over several processes, on one host or on many: each computes its replicas, and an all-reduce adds their gradients up. */
import { availableParallelism } from 'node:os';
import {
  ClusterError,
  groupId,
  memberIndex,
  nodesOf,
  replicasOf,
  TfConfigResolver,
  TOPOLOGIES,
  type MemberAddress,
  type Timing,
  type Topology,
} from '@paceline/collectives';
import { DEFAULT_RANK, LIMITS } from '@paceline/spec';
import { ArgumentError, ClusterConfigError } from './errors.js';
import { listenHostOf } from './known-options.js';
import { GroupThread, type LostMember, type ModelCommunication } from './members/group-link.js';
import { LOW_RANK, SUM_CODECS, type MemberCodec } from './members/packed-sums.js';
import { resolverOf } from './resolved-by.js';
import { asRun, type RunStrategy } from './run-options.js';
import { secretOf } from './secret.js';
import { isCatchingUpIn, Strategy } from './strategy.js';
import type { MultiWorkerOptions, ThreadStrategyOptions } from './strategy-options.js';
import { countsOf, LONGEST_MS, THREADS_MAX } from './thread-strategies.js';
import type { ThreadExchangeOptions } from './threads/exchange-options.js';
import { ThreadExchange } from './threads/thread-exchange.js';

const JOIN_DEADLINE_MS = 300_000;
const TRANSPORTS = ['auto', 'tcp', 'unix'] as const;
const LOSSES = ['stop', 'continue'] as const;
const SHARDINGS = ['replicated', 'sharded'] as const;
const CODECS: readonly MemberCodec[] = ['none', ...SUM_CODECS, LOW_RANK];
const COMMUNICATIONS: readonly (Topology | 'auto')[] = [...TOPOLOGIES, 'auto'];
const OWN = [
  'cluster',
  'secret',
  'joinDeadlineMs',
  'transport',
  'listenHost',
  'communication',
  'hosts',
  'optimizerSharding',
  'codec',
  'codecRank',
  'onMemberLoss',
] as const;
const COUNTED: readonly string[] = ['threads', 'replicas', 'seed', 'deadlineMs'];
const KNOWN = [...COUNTED, ...OWN];
const NAME = 'MultiWorkerMirroredStrategy';

/**
 * Every process runs the same program with the same data, builds the same models, and calls `fit` with the same arguments. Each computes its
 * share of every batch; weights, optimizer state and History are the same in all. Without a cluster it is a MirroredStrategy.
 */
export class MultiWorkerMirroredStrategy extends Strategy {
  /** Type and index of this process's task. */
  readonly task: { readonly type: string; readonly index: number };
  private readonly processes: number;
  private readonly group: GroupThread | undefined;
  private readonly asked: Pick<Communication, Asked>;

  /**
   * @throws ClusterConfigError for a cluster, a task or a secret that has no meaning
   * @throws ArgumentError for an option that has none
   */
  constructor(options: MultiWorkerOptions = {}) {
    const { exchange, task, processes, ...asked } = planned(options);
    super(new ThreadExchange(exchange), options);
    this.processes = processes;
    this.task = task;
    this.group = exchange.group;
    this.asked = asked;
  }

  /** As many workers as there are processes here, with the threads that were given. */
  override toRun(): RunStrategy {
    const strategy = { kind: 'multi-worker-mirrored', workers: this.processes } as const;
    return asRun(NAME, this.options, { strategy, replicas: this.numReplicasInSync });
  }

  /** The processes that are there, those that were lost while others went on (`onMemberLoss: 'continue'`), and those that came again, as they happened. */
  get members(): Members {
    const { tasks = [this.task], lostMembers = [], joinedMembers = [] } = this.group ?? {};
    return { tasks, lost: [...lostMembers], joined: [...joinedMembers] };
  }

  /**
   * This process was started again while the others train on (`onMemberLoss: 'continue'`), and goes through what they did meanwhile, with all callbacks: a
   * callback must not read weights then, nor write them to a file. It waits until the processes have come together.
   */
  get isCatchingUp(): boolean {
    return isCatchingUpIn(this);
  }

  /** How the processes exchange what they have computed, for the models that have been trained so far, and what was measured for it. */
  get communication(): Communication {
    return Object.assign({}, this.asked, communicationOf(this.group));
  }
}

export interface Members {
  readonly tasks: readonly { readonly type: string; readonly index: number }[];
  readonly lost: readonly LostMember[];
  readonly joined: readonly LostMember[];
}

/** What the program has asked for. */
type Asked = 'requested' | 'optimizerSharding' | 'codec' | 'codecRank';

export interface Communication {
  readonly requested: Topology | 'auto';
  readonly optimizerSharding: 'replicated' | 'sharded';
  readonly codec: MemberCodec;
  /** With the codec power-sgd. */
  readonly codecRank: number | undefined;
  /** With `auto`: how long all-reduces took when all had joined. */
  readonly timings: readonly Timing[];
  readonly models: readonly ModelCommunication[];
  /** Bytes of vectors and rows that this process has sent to others so far, without headers. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
}

export function communicationOf(group: GroupThread | undefined): Omit<Communication, Asked> {
  const { sentBytes, receivedBytes } = group?.traffic ?? { sentBytes: 0, receivedBytes: 0 };
  return { timings: group?.timings ?? [], models: [...(group?.communications ?? [])], sentBytes, receivedBytes };
}

/** Where a strategy over several processes is. */
export interface Planned extends Pick<Communication, Asked> {
  readonly exchange: ThreadExchangeOptions;
  readonly task: MemberAddress['task'];
  readonly processes: number;
}

/**
 * @param agreed what all processes have to have in common beside the cluster; it may refuse what it is made of, before anything starts
 * @throws ClusterConfigError, ArgumentError
 */
export function planned(
  options: MultiWorkerOptions,
  name = NAME,
  known: readonly string[] = KNOWN,
  agreed: (replicas: number) => readonly unknown[] = () => [],
): Planned {
  countsOf(options, name, known); // it refuses what is no options at all
  const joinDeadlineMs = joinDeadlineOf(options, name);
  const found = clusterOf(options, name);
  const { members, self, listenHost } = found ?? { members: [], self: 0, listenHost: undefined };
  const count = Math.max(1, members.length);
  const requested = oneOf(name, 'communication', options.communication ?? 'direct', COMMUNICATIONS);
  const optimizerSharding = oneOf(name, 'optimizerSharding', options.optimizerSharding ?? 'replicated', SHARDINGS);
  const codec = oneOf(name, 'codec', options.codec ?? 'none', CODECS);
  const codecRank = rankOf(options, name, codec);
  if (codec === LOW_RANK && optimizerSharding === 'sharded')
    throw new ArgumentError(
      `${name}: with the codec power-sgd every process gets the whole sum, and with optimizerSharding "sharded" parameters come back as float32: leave one of them out`,
    );
  const onMemberLoss = lossOf(options, name, optimizerSharding, codec);
  const hosts = hostsOf(options, members, name);
  const counted = Object.fromEntries(Object.entries(options).filter(([key]) => COUNTED.includes(key)));
  const counts = countsOf(withDefaults(counted, count), name, known);
  const { replicas, deadlineMs } = counts;
  if (replicas < count)
    throw new ArgumentError(
      `${name}: ${replicas} replicas for ${count} processes would leave processes without work: use at least as many`,
    );
  const common = agreed(replicas);
  const { from, to } = replicasOf(replicas, count, self);
  const threads = Math.min(counts.threads, to - from);
  const exchange = { threads, replicas, deadlineMs, updaters: threads, loadsEarly: true };
  const task = members[self]?.task ?? { type: 'worker' as const, index: 0 };
  const asked = { requested, optimizerSharding, codec, codecRank, processes: count };
  if (count === 1) return { exchange, task, ...asked };
  const group = new GroupThread({
    members,
    self,
    group: groupId([
      members,
      replicas,
      options.seed ?? 0,
      requested,
      optimizerSharding,
      codec,
      codecRank ?? 0,
      hosts,
      onMemberLoss,
      ...common,
    ]),
    secret: secretOf(name, options.secret),
    share: { replicas, from, to, nodes: nodesOf(replicas, count, self) },
    transport: oneOf(name, 'transport', options.transport ?? 'auto', TRANSPORTS),
    listenHost: listenHostOf(name, options.listenHost) ?? listenHost,
    communication: requested,
    onMemberLoss,
    isSharded: optimizerSharding === 'sharded',
    codec,
    rank: codecRank ?? DEFAULT_RANK,
    seed: options.seed ?? 0,
    hosts,
    joinDeadlineMs,
    deadlineMs,
  });
  return { exchange: { ...exchange, group }, task, ...asked };
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

function clusterOf({ cluster = new TfConfigResolver() }: MultiWorkerOptions, name: string) {
  const resolver = resolverOf(name, 'cluster takes', cluster);
  try {
    const found = resolver.resolve();
    return found && { members: found.cluster.members, self: memberIndex(found.cluster, found.task), listenHost: found.listenHost };
  } catch (cause) {
    if (cause instanceof ClusterError) throw new ClusterConfigError(cause.message, { cause });
    throw cause;
  }
}

function oneOf<T extends string>(name: string, option: string, value: T, known: readonly T[]): T {
  if (known.includes(value)) return value;
  throw new ArgumentError(`${name}: ${option} must be ${known.slice(0, -1).join(', ')} or ${known.at(-1)!}, not ${String(value)}`);
}

/** @throws ArgumentError where what a lost process kept cannot be had from the others */
function lossOf({ onMemberLoss = 'stop' }: MultiWorkerOptions, name: string, sharding: string, codec: MemberCodec): 'stop' | 'continue' {
  const asked = oneOf(name, 'onMemberLoss', onMemberLoss, LOSSES);
  if (asked === 'stop') return asked;
  if (sharding === 'sharded')
    throw new ArgumentError(
      `${name}: with onMemberLoss "continue" every process must have the whole state of the optimizer, and with optimizerSharding "sharded" a part of it is lost with its process: leave one of them out`,
    );
  if (codec === LOW_RANK)
    throw new ArgumentError(
      `${name}: with the codec power-sgd each process keeps what its factors leave out, which is lost with it: leave the codec out, or take another one, to set onMemberLoss to "continue"`,
    );
  return asked;
}

function rankOf({ codecRank }: MultiWorkerOptions, name: string, codec: MemberCodec): number | undefined {
  if (codec === LOW_RANK && codecRank === undefined) return DEFAULT_RANK;
  if (codecRank === undefined) return undefined;
  if (codec !== LOW_RANK)
    throw new ArgumentError(`${name}: codecRank belongs to the codec power-sgd, and the codec is ${codec}: leave it out`);
  if (Number.isInteger(codecRank) && codecRank >= 1 && codecRank <= LIMITS.codecRank) return codecRank;
  throw new ArgumentError(`${name}: codecRank must be a whole number from 1 to ${LIMITS.codecRank}, not ${String(codecRank)}`);
}

function hostsOf({ hosts }: MultiWorkerOptions, members: readonly MemberAddress[], name: string): readonly string[] {
  if (hosts === undefined) return members.map(({ host }) => host);
  const isList = Array.isArray(hosts) && hosts.every((host: unknown) => typeof host === 'string');
  if (isList && hosts.length === Math.max(1, members.length)) return hosts;
  throw new ArgumentError(`${name}: hosts must be a list of names, one for each of the ${members.length} chief and workers in their order`);
}

function joinDeadlineOf({ joinDeadlineMs = JOIN_DEADLINE_MS }: MultiWorkerOptions, name: string): number {
  if (Number.isInteger(joinDeadlineMs) && joinDeadlineMs >= 1 && joinDeadlineMs <= LONGEST_MS) return joinDeadlineMs;
  throw new ArgumentError(
    `${name}: joinDeadlineMs must be a whole number of milliseconds from 1 to ${LONGEST_MS}, not ${String(joinDeadlineMs)}`,
  );
}
