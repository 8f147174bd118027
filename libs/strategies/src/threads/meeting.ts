/**
 * Where the replicas of a function that `run` has started come together, in shared memory. A thread comes when each of its replicas either waits in a
 * collective operation or has ended, so all threads come equally often:
 *
 *     own points and values are written -> ALL MET -> every thread reads all points, and so decides the same
 *         all have ended                 -> over
 *         one failed, or points differ   -> the replicas that wait are told why, and the run is over
 *         all are at the same operation  -> each thread sums its range over the tree -> ALL MET -> results are copied -> ALL MET
 *
 * With other processes each sums up its nodes of the tree; then, or where its replicas have ended or failed, one thread has the group decide in the same
 * way (members/group-calls.ts) and add the sums up.
 *
 * Sums run over the replicas in the order of the reduction tree, so their bits do not depend on the number of threads.
 */
import { split } from '@paceline/learning';
import { arrive, MET, PROGRESS, waitFor } from './cells.js';
import type { MeetingMemory, Met, Share } from './protocol.js';

/** What a replica is at. */
export const [ENDED, FAILED_POINT, SUM, MEAN] = [0, 1, 2, 3];
const TOO_LARGE = 4;
/** Fields of a point, int32: what it is, the length of its values, and a digest of their form. */
const FIELDS = 3;
/** After the points of the replicas: what the processes have decided, and for how many meetings. */
const [DECISION, DECIDED] = [0, 1];
const [GO_ON, GIVE_UP] = [0, 1];
export const pointsBytes = (replicas: number): number => (replicas * FIELDS + 2) * 4;
const decisionsAt = (replicas: number): number => replicas * FIELDS * 4;

/** In words, as the error of people says it. */
const pointInWords = (kind: number, length: number): string =>
  kind === ENDED ? 'has returned' : `is in an allReduce or allGather (a ${kind === SUM ? 'sum' : 'mean'} of ${length} numbers)`;
const UNEQUAL = 'every replica must make the same calls, with values of the same shapes';

/** Where the replicas of a process are at the same point: what it is, the length of its values, and a digest of their form. */
export type CommonPoint = readonly [kind: number, length: number, form: number];

/** Where processes are at different points: the first one, and the first that differs. @param firsts the first replica of each process */
export function unequalPoints(points: readonly CommonPoint[], firsts: readonly number[]): { replica: number; message: string }[] {
  const other = points.findIndex((point) => String(point) !== String(points[0]));
  if (other < 0) return [];
  const told = (process: number): string => `replica ${firsts[process]!} ${pointInWords(points[process]![0], points[process]![1])}`;
  return [{ replica: firsts[other]!, message: `${told(0)}, and ${told(other)}: ${UNEQUAL}` }];
}

/** What the processes have decided is said to the replicas of this one, which wait for it. */
export function decide({ points }: MeetingMemory, replicas: number, goesOn: boolean): void {
  const decisions = new Int32Array(points, decisionsAt(replicas));
  decisions[DECISION] = goesOn ? GO_ON : GIVE_UP;
  Atomics.add(decisions, DECIDED, 1);
  Atomics.notify(decisions, DECIDED);
}

/** Asks the other processes. */
interface Others {
  readonly share: Share;
  /** One thread alone: what the replicas of this process are at, and why they cannot go on. */
  tell(at: Met): void;
}

export interface Point {
  /** From 0 among those of this process. */
  readonly replica: number;
  readonly kind: number;
  readonly form: number;
  readonly values: Float32Array;
}

export type Outcome =
  | { readonly kind: 'over' }
  | { readonly kind: 'aborted'; readonly reason: string | undefined }
  | { readonly kind: 'combined'; readonly values: Float32Array };

/** The memory of the values grows in place: threads keep to one buffer. */
type Growable = SharedArrayBuffer & { grow(bytes: number): void };

export class Meeting {
  /** The function that replicas are in, for people too. */
  fn = '';
  private meets = 0;
  private readonly points: Int32Array;
  private readonly decisions: Int32Array;
  private decided = 0;

  constructor(
    private readonly cells: Int32Array,
    private readonly memory: MeetingMemory,
    private readonly replicas: number,
    private readonly threads: number,
    private readonly index: number,
    private readonly others: Others | undefined,
    /** The replicas are elsewhere, and divide by themselves. */
    private readonly isRelayed = false,
  ) {
    this.points = new Int32Array(memory.points);
    this.decisions = new Int32Array(memory.points, decisionsAt(replicas));
  }

  /** Blocks until the replicas of all threads are at a point. */
  meet(own: readonly Point[]): Outcome {
    for (const { replica, kind, form, values } of own) {
      this.points.set([kind, values.length, form], replica * FIELDS);
      if (kind === ENDED || kind === FAILED_POINT) continue;
      if (this.hasRoom(values.length)) this.slot(replica, values.length).set(values);
      else this.points[replica * FIELDS] = TOO_LARGE;
    }
    this.all();
    const aborted = this.difference();
    const [kind, length, form] = this.points as unknown as [number, number, number];
    if (!aborted && kind !== ENDED) {
      this.combine(length);
      this.all();
    }
    const { others } = this;
    if (others && !this.agree(others, { kind: aborted ? FAILED_POINT : kind, length, form, reason: aborted?.reason, fn: this.fn }))
      return aborted ?? { kind: 'aborted', reason: undefined };
    if (aborted) return aborted;
    if (kind === ENDED) return { kind: 'over' };
    const values = new Float32Array(this.memory.values, 0, length).slice();
    const replicas = others?.share.replicas ?? this.replicas;
    if (kind === MEAN && !this.isRelayed) for (let i = 0; i < length; i++) values[i] = values[i]! / replicas;
    this.all();
    return { kind: 'combined', values };
  }

  /** Whether all processes go on; then the sums are here. */
  private agree(others: Others, at: Met): boolean {
    this.decided = (this.decided + 1) | 0;
    if (this.index === 0) {
      others.tell(at);
      waitFor(this.decisions, DECIDED, this.decided);
    }
    this.all();
    return Atomics.load(this.decisions, DECISION) === GO_ON;
  }

  private all(): void {
    this.meets = (this.meets + 1) | 0;
    Atomics.add(this.cells, PROGRESS, 1);
    const target = Math.imul(this.meets, this.threads);
    arrive(this.cells, MET, target);
    waitFor(this.cells, MET, target);
  }

  private difference(): Extract<Outcome, { kind: 'aborted' }> | undefined {
    const { points } = this;
    const kinds = Array.from({ length: this.replicas }, (_, replica) => points[replica * FIELDS]!);
    if (kinds.includes(FAILED_POINT)) return { kind: 'aborted', reason: undefined };
    if (kinds.includes(TOO_LARGE))
      return {
        kind: 'aborted',
        reason: 'the values of an allReduce or allGather take more than 1024 MiB over all replicas: use fewer replicas, or several calls',
      };
    for (let replica = 1; replica < this.replicas; replica++) {
      const differs = Array.from({ length: FIELDS }, (_, field) => field).some(
        (field) => points[replica * FIELDS + field] !== points[field],
      );
      if (!differs) continue;
      return {
        kind: 'aborted',
        reason: `replica ${this.first} ${this.told(0)}, and replica ${this.first + replica} ${this.told(replica)}: ${UNEQUAL}`,
      };
    }
    return undefined;
  }

  private told(replica: number): string {
    const [kind, length] = this.points.subarray(replica * FIELDS) as unknown as [number, number];
    return pointInWords(kind, length);
  }

  private get first(): number {
    return this.others?.share.from ?? 0;
  }

  /** The first place is the result's, then comes one for each replica. */
  private slot(replica: number, length: number): Float32Array {
    return new Float32Array(this.memory.values, (replica + 1) * length * 4, length);
  }

  private hasRoom(length: number): boolean {
    const values = this.memory.values as Growable;
    const bytes = (this.replicas + 1) * length * 4;
    try {
      if (values.byteLength < bytes) values.grow(bytes);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error; // it is at its largest, or another thread has grown it further meanwhile
    }
    return values.byteLength >= bytes;
  }

  /** The sum of the replicas in the place of the result; with other processes, the sums of this one's nodes in those of their first replicas. */
  private combine(length: number): void {
    const [from, to] = [this.index, this.index + 1].map((part) => Math.floor((part * length) / this.threads)) as [number, number];
    const slots = Array.from({ length: this.replicas }, (_, replica) => this.slot(replica, length).subarray(from, to));
    if (this.others) for (const { lo, hi } of this.others.share.nodes) added(slots, lo - this.first, hi - this.first);
    else new Float32Array(this.memory.values, from * 4, to - from).set(added(slots, 0, this.replicas));
  }
}

/** Adds up in the first vector of a node of the tree. */
function added(vectors: readonly Float32Array[], lo: number, hi: number): Float32Array {
  const into = vectors[lo]!;
  if (hi - lo === 1) return into;
  const middle = split(lo, hi);
  added(vectors, lo, middle);
  const from = added(vectors, middle, hi);
  for (let i = 0; i < into.length; i++) into[i] = into[i]! + from[i]!;
  return into;
}
