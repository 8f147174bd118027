/** The tasks of a Slurm job step, as `srun` describes them in the environment of each (srun(1), "Output environment variables"). */
import { ClusterSpec, TASK_TYPES, type ClusterResolver, type Resolved, type TaskType } from './cluster-spec.js';
import { ClusterError } from './errors.js';

export interface SlurmOptions {
  /** Tasks by type, in the order of their ranks; all are workers by default. */
  readonly jobs?: Readonly<Partial<Record<TaskType, number>>>;
  /** Port of the first task of a node; the next ones have the next ports. 8888 by default, as in TensorFlow. */
  readonly portBase?: number;
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

/** A step has at most so many tasks. */
const MOST_TASKS = 4096;

/** As `tf.distribute.cluster_resolver.SlurmClusterResolver`: ranks of a step become tasks, nodes their hosts. */
export class SlurmClusterResolver implements ClusterResolver {
  constructor(private readonly options: SlurmOptions = {}) {}

  /** Undefined outside of Slurm. @throws ClusterError naming the variable */
  resolve(): Resolved | undefined {
    const { environment = process.env, portBase = 8888 } = this.options;
    if (environment['SLURM_JOB_ID'] === undefined && environment['SLURM_STEP_NODELIST'] === undefined) return undefined;
    const given = (name: string): string => {
      const value = environment[name];
      if (value !== undefined && value !== '') return value;
      throw new ClusterError(`${name} is not set: start the processes by srun, as a job step`);
    };
    const rank = whole('SLURM_PROCID', given('SLURM_PROCID'));
    const nodes = expandHostlist(given('SLURM_STEP_NODELIST'));
    const perNode = tasksPerNode(given('SLURM_STEP_TASKS_PER_NODE'));
    if (perNode.length !== nodes.length)
      throw new ClusterError(`SLURM_STEP_TASKS_PER_NODE speaks of ${perNode.length} nodes, and SLURM_STEP_NODELIST of ${nodes.length}`);
    const placed = placedTasks(perNode, environment['SLURM_DISTRIBUTION']);
    const count = whole('SLURM_STEP_NUM_TASKS', given('SLURM_STEP_NUM_TASKS'));
    if (placed.length !== count)
      throw new ClusterError(`SLURM_STEP_NUM_TASKS is ${count}, and SLURM_STEP_TASKS_PER_NODE says ${placed.length}`);
    if (rank >= count) throw new ClusterError(`SLURM_PROCID is ${rank}, and there are ${count} tasks`);
    const node = environment['SLURM_NODEID'];
    if (node !== undefined && placed[rank]!.node !== whole('SLURM_NODEID', node))
      throw new ClusterError(`rank ${rank} is on node ${node}, and should be on node ${placed[rank]!.node}: use srun --distribution=block`);
    const addresses = placed.map(({ node: at, local }) => `${nodes[at]!}:${portBase + local}`);
    return this.resolved(addresses, rank);
  }

  private resolved(addresses: readonly string[], rank: number): Resolved {
    const jobs = Object.entries(this.options.jobs ?? { worker: addresses.length }) as [TaskType, number][];
    const cluster: Partial<Record<TaskType, readonly string[]>> = {};
    let task: Resolved['task'] | undefined;
    let first = 0;
    for (const [type, count] of jobs) {
      if (!TASK_TYPES.includes(type) || !Number.isInteger(count) || count < 0)
        throw new ClusterError(`jobs.${type} must be the number of tasks of a type (${TASK_TYPES.join(', ')}), not ${String(count)}`);
      cluster[type] = addresses.slice(first, first + count);
      if (rank >= first && rank < first + count) task = { type, index: rank - first };
      first += count;
    }
    if (first !== addresses.length || !task)
      throw new ClusterError(`jobs has ${first} tasks, and the step has ${addresses.length} (SLURM_STEP_NUM_TASKS)`);
    // The name of a node may be a loopback address on the node itself.
    return { cluster: new ClusterSpec(cluster), task, listenHost: '0.0.0.0' };
  }
}

function whole(name: string, text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new ClusterError(`${name} must be a whole number, not ${JSON.stringify(text)}`);
}

/** `2(x3),1` is 2, 2, 2, 1. */
function tasksPerNode(text: string): number[] {
  const counts = text.split(',').flatMap((part) => {
    const [, count, times = '1'] = /^(\d{1,5})(?:\(x(\d{1,5})\))?$/.exec(part) ?? [];
    if (count === undefined) throw new ClusterError(`SLURM_STEP_TASKS_PER_NODE must look like "2(x3),1", not ${JSON.stringify(text)}`);
    return Array.from({ length: Math.min(Number(times), MOST_TASKS + 1) }, () => Number(count));
  });
  const sum = counts.reduce((a, b) => a + b, 0);
  if (sum > MOST_TASKS || counts.length > MOST_TASKS)
    throw new ClusterError(`SLURM_STEP_TASKS_PER_NODE has ${sum} tasks; the most is ${MOST_TASKS}`);
  return counts;
}

/** Node, and place on it, of each rank. */
function placedTasks(perNode: readonly number[], distribution = 'block'): { readonly node: number; readonly local: number }[] {
  const all = perNode.flatMap((count, node) => Array.from({ length: count }, (_, local) => ({ node, local })));
  const [kind] = distribution.split(/[:,]/);
  if (kind === 'block' || kind === '*' || kind === '') return all;
  if (kind === 'cyclic') return all.sort((a, b) => a.local - b.local || a.node - b.node);
  throw new ClusterError(`SLURM_DISTRIBUTION is ${distribution}: use srun --distribution=block or cyclic`);
}

/**
 * The hosts of a Slurm hostlist: `node[01-03,07],login` is node01, node02, node03, node07, login.
 * @throws ClusterError
 */
export function expandHostlist(text: string): string[] {
  const wrong = (why: string): ClusterError =>
    new ClusterError(`SLURM_STEP_NODELIST must look like "node[01-03,07]", not ${JSON.stringify(text)}: ${why}`);
  if (!/^(?:[^[\],\s]|\[[\d,-]+\]|,)+$/.test(text)) throw wrong('brackets hold numbers and ranges');
  const hosts = text.split(/,(?![^[]*\])/).flatMap((name) => {
    if (name === '') throw wrong('a name is empty');
    return name.split(/(\[[^\]]*\])/).reduce<string[]>(
      (starts, part) => {
        const ends = part.startsWith('[') ? rangesOf(part.slice(1, -1), wrong) : [part];
        if (starts.length * ends.length > MOST_TASKS) throw wrong(`it has more than ${MOST_TASKS} hosts`);
        return starts.flatMap((start) => ends.map((end) => start + end));
      },
      [''],
    );
  });
  if (hosts.length > MOST_TASKS) throw wrong(`it has more than ${MOST_TASKS} hosts`);
  return hosts;
}

function rangesOf(text: string, wrong: (why: string) => ClusterError): string[] {
  return text.split(',').flatMap((part) => {
    const [, from, to = from] = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(part) ?? [];
    if (from === undefined || to === undefined || Number(to) < Number(from)) throw wrong(`${JSON.stringify(part)} is no range`);
    const count = Number(to) - Number(from) + 1;
    if (count > MOST_TASKS) throw wrong(`it has more than ${MOST_TASKS} hosts`);
    return Array.from({ length: count }, (_, i) => String(Number(from) + i).padStart(from.length, '0'));
  });
}
