/**
 * What has come to a worker from those below it in its group, in one round. A worker below may be ahead of this one, never by more than a round: the coordinator
 * commits a round when all have answered.
 *
 *   | what comes                                  | what becomes of it                                       |
 *   |---------------------------------------------|----------------------------------------------------------|
 *   | a sum of a later round                      | what is here of earlier rounds is dropped; it is kept    |
 *   | a sum of this round                         | kept until it is taken                                   |
 *   | the same sum once more                      | refused: it would be added twice                         |
 *   | a sum of an earlier round                   | refused: its parameters were not those of this round     |
 *   | the word that a worker has failed           | the round has no sums                                    |
 */
import { TaskError } from '@paceline/collectives';
import type { Sums } from './messages.js';
import type { WorkerBelow } from './worker-groups.js';

/** The sums of the nodes of a worker below, over the range of one server. */
export interface Below extends WorkerBelow {
  readonly parts: readonly Uint8Array[];
}

export class GroupSums {
  private round = 0;
  private readonly here = new Map<string, readonly Uint8Array[]>();
  /** What has come in this round, also when it was taken. */
  private readonly seen = new Set<string>();
  private readonly failed = new Set<number>();

  constructor(
    private readonly below: readonly WorkerBelow[],
    /** Bytes of the range of each server. */
    private readonly rangeBytes: readonly number[],
  ) {}

  /** @throws TaskError BAD_MESSAGE for what is none of this round's sums */
  take(from: number, { round, server = 0, nodes, hasFailed = false }: Sums, parts: readonly Uint8Array[]): void {
    const worker = this.below.find(({ place }) => place === from);
    if (!worker) throw new TaskError('BAD_MESSAGE', `the worker at place ${from} is not below this one in a group`);
    if (round < this.round) throw new TaskError('BAD_MESSAGE', `a sum of round ${round} came in round ${this.round}`);
    if (round > this.round) this.begin(round);
    if (hasFailed) {
      this.failed.add(from);
      return;
    }
    const key = keyOf(from, server);
    if (this.seen.has(key))
      throw new TaskError('BAD_MESSAGE', `the sum of the replicas ${inWords(worker)} came twice in round ${round}: it counts once`);
    const isAsPlanned = nodes.length === worker.nodes.length && nodes.every(({ lo, hi }, i) => isNode(worker.nodes[i]!, lo, hi));
    if (!isAsPlanned) throw new TaskError('BAD_MESSAGE', `sums of other replicas than ${inWords(worker)} came`);
    const bytes = this.rangeBytes[server];
    if (parts.length !== nodes.length || parts.some(({ length }) => length !== bytes))
      throw new TaskError('BAD_MESSAGE', `sums of other lengths than ${bytes ?? 'those of a server'} bytes came`);
    this.seen.add(key);
    this.here.set(key, parts);
  }

  /** The sums of all workers below over the range of a server, which are given once; `failed` where one has none; undefined as long as one is missing. */
  all(round: number, server: number): readonly Below[] | 'failed' | undefined {
    if (this.below.length === 0) return [];
    if (this.round !== round) return undefined;
    if (this.failed.size > 0) return 'failed';
    if (this.missing(round, server) !== undefined) return undefined;
    return this.below.map((worker) => {
      const key = keyOf(worker.place, server);
      const parts = this.here.get(key)!;
      this.here.delete(key);
      return { ...worker, parts };
    });
  }

  /** The place of the first worker whose sums are not here. */
  missing(round: number, server: number): number | undefined {
    return this.below.find(({ place }) => this.round !== round || !this.here.has(keyOf(place, server)))?.place;
  }

  private begin(round: number): void {
    this.round = round;
    this.here.clear();
    this.seen.clear();
    this.failed.clear();
  }
}

const keyOf = (place: number, server: number): string => `${place} ${server}`;
const isNode = (node: { readonly lo: number; readonly hi: number }, lo: number, hi: number): boolean => node.lo === lo && node.hi === hi;
const inWords = ({ nodes }: WorkerBelow): string => `${nodes[0]!.lo} to ${nodes.at(-1)!.hi - 1}`;
