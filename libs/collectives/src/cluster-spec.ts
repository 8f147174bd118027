/**
 * A cluster spec lists the tasks that take part; TF_CONFIG adds which of them this process is. Both have TensorFlow's form.
 *
 *     TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:4600", "10.0.0.2:4600"]}, "task": {"type": "worker", "index": 0}}'
 *
 * Members of a group are the chief and the workers, in this order; the first one is member 0, whose initial weights all others take.
 */
import { ClusterError } from './errors.js';

export const TASK_TYPES = ['chief', 'worker', 'ps', 'evaluator'] as const;
export type TaskType = (typeof TASK_TYPES)[number];

/** Addresses by task type, each HOST:PORT, in the order of their index. */
export type ClusterAddresses = Readonly<Partial<Record<TaskType, readonly string[]>>>;

export interface Task {
  readonly type: TaskType;
  readonly index: number;
}

export interface MemberAddress {
  readonly task: Task;
  readonly host: string;
  readonly port: number;
}

/** The cluster as `tf.train.ClusterSpec` has it. */
export class ClusterSpec {
  readonly cluster: ClusterAddresses;

  /** @throws ClusterError naming the field */
  constructor(cluster: unknown) {
    this.cluster = checkedCluster(cluster, 'cluster');
  }

  /** Addresses of a type; none if the cluster has none. */
  tasks(type: TaskType): readonly string[] {
    return this.cluster[type] ?? [];
  }

  /** The chief and the workers: who adds up gradients, in order. */
  get members(): readonly MemberAddress[] {
    return this.addressesOf(['chief', 'worker']);
  }

  /** The workers and the parameter servers: who serves a coordinator, in order. */
  get servers(): readonly MemberAddress[] {
    return this.addressesOf(['worker', 'ps']);
  }

  private addressesOf(types: readonly TaskType[]): readonly MemberAddress[] {
    return types.flatMap((type) =>
      this.tasks(type).map((address, index) => ({ task: { type, index }, ...addressOf(address, `cluster.${type}[${index}]`) })),
    );
  }
}

export interface Resolved {
  readonly cluster: ClusterSpec;
  /** Missing in a process that is none of the tasks: the program of parameter servers may be one. */
  readonly task?: Task;
  /** Where this process listens, if not at its address in the cluster. */
  readonly listenHost?: string;
}

/** Which cluster, and which of its tasks this process is. */
export interface ClusterResolver {
  /** Undefined where nothing says that there is a cluster: this process trains alone. @throws ClusterError */
  resolve(): Resolved | undefined;
}

/** A cluster that the program knows. */
export class GivenResolver implements ClusterResolver {
  constructor(
    private readonly cluster: unknown,
    private readonly task: unknown,
  ) {}

  resolve(): Resolved & { readonly task: Task } {
    const cluster = this.cluster instanceof ClusterSpec ? this.cluster : new ClusterSpec(this.cluster);
    return { cluster, task: checkedTask(this.task, cluster, 'task') };
  }
}

/** The JSON of an environment variable, `TF_CONFIG` by default, as TensorFlow's TFConfigClusterResolver reads it: an index may be a text, a task may be missing, and an evaluator need not be in the cluster. */
export class TfConfigResolver implements ClusterResolver {
  constructor(
    private readonly environment: Readonly<Record<string, string | undefined>> = process.env,
    private readonly variable = 'TF_CONFIG',
  ) {}

  resolve(): Resolved | undefined {
    const text = this.environment[this.variable];
    if (text === undefined || text.trim() === '') return undefined;
    let config: unknown;
    try {
      config = JSON.parse(text);
    } catch (cause) {
      throw new ClusterError(`${this.variable} is not JSON: ${(cause as Error).message}. It looks like ${EXAMPLE}`, { cause });
    }
    const { cluster, task } = checkedObject(config, this.variable);
    if (cluster === undefined) return undefined; // as in TensorFlow, whose own managers leave it out for one task
    const spec = new ClusterSpec(cluster);
    if (TASK_TYPES.every((type) => spec.tasks(type).length === 0)) return undefined; // one without tasks says the same
    return { cluster: spec, ...(hasTask(task) ? { task: checkedTask(task, spec, `${this.variable}.task`) } : {}) };
  }
}

const EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:4600", "10.0.0.2:4600"]}, "task": {"type": "worker", "index": 0}}';

function checkedObject(value: unknown, what: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new ClusterError(`${what} must be an object, not ${JSON.stringify(value) ?? 'undefined'}. It looks like ${EXAMPLE}`);
}

function checkedCluster(value: unknown, what: string): ClusterAddresses {
  const cluster = checkedObject(value, what);
  const seen = new Map<string, string>();
  const checked: Partial<Record<TaskType, readonly string[]>> = {};
  for (const [type, addresses] of Object.entries(cluster)) {
    const at = `${what}.${type}`;
    if (!(TASK_TYPES as readonly string[]).includes(type))
      throw new ClusterError(`${at}: there is no task type "${type}"; the types are ${TASK_TYPES.join(', ')}`);
    const listed = listOf(addresses, at);
    if (type === 'chief' && listed.length > 1) throw new ClusterError(`${at} has ${listed.length} addresses: there is one chief at most`);
    for (const [index, address] of listed.entries()) {
      const name = `${at}[${index}]`;
      addressOf(address, name);
      const other = seen.get(address as string);
      if (other !== undefined)
        throw new ClusterError(`${name} and ${other} are both ${String(address)}: every task has an address of its own`);
      seen.set(address as string, name);
    }
    checked[type as TaskType] = listed as string[];
  }
  return checked;
}

/** The addresses of a task type: a list, or a map from indices as `tf.train.ClusterSpec` takes it too. Every task from 0 on has to be there. */
function listOf(addresses: unknown, what: string): unknown[] {
  if (Array.isArray(addresses)) return addresses;
  if (typeof addresses !== 'object' || addresses === null)
    throw new ClusterError(`${what} must be a list of HOST:PORT, or a map from indices to these, not ${JSON.stringify(addresses)}`);
  const byIndex = new Map(Object.entries(addresses).map(([index, address]) => [indexOf(index), address as unknown]));
  return Array.from({ length: Object.keys(addresses).length }, (_, index) => {
    if (byIndex.has(index)) return byIndex.get(index);
    throw new ClusterError(`${what} has no task ${index}: its indices must be whole numbers from 0 on, without gaps`);
  });
}

/** A whole number, also as a text, as Python's int() takes it. */
const indexOf = (value: unknown): unknown => (typeof value === 'string' && /^\s*\d{1,9}\s*$/.test(value) ? Number(value) : value);

/** `{}` says nothing of a task, as in TensorFlow. */
const hasTask = (task: unknown): boolean =>
  task !== undefined && task !== null && !(typeof task === 'object' && !Array.isArray(task) && Object.keys(task).length === 0);

function addressOf(address: unknown, what: string): { host: string; port: number } {
  const [, bracketed, plain, digits] =
    (typeof address === 'string' && /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s/]+)):(\d{1,5})$/.exec(address)) || [];
  const port = Number(digits);
  if (digits === undefined || port < 1 || port > 65_535)
    throw new ClusterError(`${what} must be HOST:PORT with a port of 1 to 65535, such as "10.0.0.1:4600", not ${JSON.stringify(address)}`);
  return { host: (bracketed ?? plain)!, port };
}

function checkedTask(value: unknown, cluster: ClusterSpec, what: string): Task {
  const { type, index: given } = checkedObject(value, what);
  const index = indexOf(given ?? (type === 'chief' ? 0 : undefined)); // there is one chief
  if (!(TASK_TYPES as readonly unknown[]).includes(type))
    throw new ClusterError(`${what}.type must be one of ${TASK_TYPES.join(', ')}, not ${JSON.stringify(type)}`);
  const count = cluster.tasks(type as TaskType).length;
  // As in TensorFlow, an evaluator need not be in the cluster: nobody calls it.
  const isBeside = type === 'evaluator' && count === 0;
  const range = isBeside ? 'from 0 on' : `below ${count}, the number of tasks of type ${String(type)} in the cluster`;
  if (!Number.isInteger(index) || Number(index) < 0 || (!isBeside && Number(index) >= count))
    throw new ClusterError(`${what}.index must be a whole number ${range}, not ${JSON.stringify(given) ?? 'missing'}`);
  return { type: type as TaskType, index: Number(index) };
}

/** As people and messages name a member: `worker 1 (10.0.0.2:4600)`. */
export const memberName = ({ task, host, port }: MemberAddress): string => `${task.type} ${task.index} (${host}:${port})`;

/** Place of a task among the members. @throws ClusterError for a task that adds up no gradients, and where there is none */
export function memberIndex(cluster: ClusterSpec, task: Task | undefined): number {
  if (!task) throw new ClusterError(`task is missing: say which task of the cluster this process is, as in ${EXAMPLE}`);
  const index = cluster.members.findIndex((member) => member.task.type === task.type && member.task.index === task.index);
  if (index >= 0) return index;
  throw new ClusterError(`task.type: a task of type ${task.type} takes no part in the training; chief and worker do`);
}
