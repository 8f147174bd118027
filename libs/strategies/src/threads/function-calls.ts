/** Calls of functions in the replicas of this process, seen from the main thread, which waits for them as for a step. */
import { replicaRows } from '@paceline/learning';
import { FunctionError, ReplicaError, ThreadError } from '../errors.js';
import type { GroupThread } from '../members/group-link.js';
import type { Encoded } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import { pointsBytes } from './meeting.js';
import type { FromThread, MeetingMemory, Share } from './protocol.js';
import type { ThreadPool } from './thread-pool.js';

/** Values of one collective operation, of all replicas of the process. */
const VALUES_MOST_BYTES = 2 ** 30;
const VALUES_FIRST_BYTES = 1 << 16;

export class FunctionCalls {
  private memory: MeetingMemory | undefined;
  private readonly loaded = new Set<string>();

  constructor(
    private readonly pool: ThreadPool,
    private readonly share: Share,
    private readonly group: GroupThread | undefined,
  ) {}

  /**
   * @param argsOf the arguments of a replica, from 0 among those of this process
   * @returns what each replica gave back
   * @throws FunctionError where threads cannot load it, ReplicaError where it throws
   */
  call({ module, name }: NamedFunction, argsOf: (replica: number) => readonly Encoded[]): Encoded[] {
    const { pool, share } = this;
    const replicas = share.to - share.from;
    const call = { module, name };
    const key = JSON.stringify(call);
    if (!this.loaded.has(key)) {
      const memory = (this.memory ??= this.meetingMemory(replicas));
      for (const answer of pool.ask({ kind: 'load', ...call, memory, share }))
        if (answer.kind === 'failed') throw answer.isFunction ? new FunctionError(answer.message) : new ThreadError(answer.message);
      this.loaded.add(key);
    }
    this.group?.awaitFragment(pool); // replicas that meet speak over the group too
    const answers = pool.call((thread) => {
      const { from, to } = replicaRows(replicas, pool.threads, thread); // replicas are shared out as rows are
      return { kind: 'call', ...call, args: Array.from({ length: to - from }, (_, i) => argsOf(from + i)) };
    });
    const failures = answers.filter((answer): answer is Extract<FromThread, { kind: 'failed' }> => answer.kind === 'failed');
    const [first] = failures.sort((a, b) => (a.replica ?? -1) - (b.replica ?? -1));
    if (first)
      throw first.replica === undefined
        ? new ThreadError(first.message)
        : new ReplicaError(first.replica, undefined, undefined, first.message);
    return answers.flatMap((answer) => (answer.kind === 'ok' ? (answer.results ?? []) : []));
  }

  private meetingMemory(replicas: number): MeetingMemory {
    const memory = meetingMemory(replicas);
    this.group?.functions(this.pool, memory);
    return memory;
  }
}

/** @param replicas of this process */
export function meetingMemory(replicas: number): MeetingMemory {
  // Node 20 has it; the types of ES 2023 have not.
  const Growable = SharedArrayBuffer as unknown as new (bytes: number, options: { readonly maxByteLength: number }) => SharedArrayBuffer;
  return {
    points: new SharedArrayBuffer(pointsBytes(replicas)),
    values: new Growable(VALUES_FIRST_BYTES, { maxByteLength: VALUES_MOST_BYTES }),
  };
}
