/** Functions of the program's modules in a compute thread: `strategy.run` calls one in each replica of the thread, at the same time. */
import { crc32 } from 'node:zlib';
import { startBackend } from '@paceline/engine';
import { replicaRows } from '@paceline/learning';
import * as tfc from '@tensorflow/tfjs-core';
import { decode, encode, isReduceOp, mapLeaves, type Encoded, type ReduceOp } from '../replicas/per-replica.js';
import { gathered } from './all-gather.js';
import { merged } from './merge-call.js';
import type { ReplicaContext } from '../replicas/replica-function.js';
import { ENDED, FAILED_POINT, MEAN, Meeting, SUM, type Outcome, type Point } from './meeting.js';
import type { FromThread, ReplicaCall, Met, ThreadEngine, ToGroup, ToThread } from './protocol.js';

type Called = (context: ReplicaContext, ...args: unknown[]) => unknown;
type Failed = Extract<FromThread, { kind: 'failed' }>;

type TellGroup = (message: ToGroup) => void;

/** Which thread this is, and how it speaks to the thread of the group, if there is one. */
interface ThreadPlace {
  readonly cells: Int32Array;
  readonly index: number;
  readonly threads: number;
  readonly tellGroup: TellGroup | undefined;
  readonly engine: ThreadEngine | undefined;
}

interface OwnReplicas {
  /** Over all processes. */
  readonly replicas: number;
  /** Those of the process begin with that one, those of this thread are [first, end). */
  readonly from: number;
  readonly first: number;
  readonly end: number;
}

const keyOf = ({ module, name }: Pick<ReplicaCall, 'module' | 'name'>): string => `${name} of ${module}`;
/** Processes may have the program in different folders. */
const inWords = ({ module, name }: Pick<ReplicaCall, 'module' | 'name'>): string =>
  `${name} of ${module.startsWith('data:') ? 'a data: module' : new URL(module).pathname.split('/').at(-1)}`.slice(0, 300);
const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export class ReplicaFunctions {
  private readonly functions = new Map<string, Called>();
  /** What the replicas keep between calls. */
  private readonly states = new Map<number, Record<string, unknown>>();

  private constructor(
    private readonly own: OwnReplicas,
    private readonly meeting: Meeting,
    private readonly tellGroup: TellGroup | undefined,
    private readonly backend: ReturnType<typeof startBackend>,
  ) {}

  static start(
    { cells, index, threads, tellGroup, engine }: ThreadPlace,
    { memory, share }: Extract<ToThread, { kind: 'load' }>,
  ): ReplicaFunctions {
    const { replicas, from, to } = share;
    const rows = replicaRows(to - from, threads, index); // replicas are shared out as rows are
    const own = { replicas, from, first: from + rows.from, end: from + rows.to };
    const backend = startBackend(engine?.backend ?? 'wasm', engine);
    const others = tellGroup && { share, tell: (meeting: Met) => tellGroup({ kind: 'meet', at: meeting }) };
    return new ReplicaFunctions(own, new Meeting(cells, memory, to - from, threads, index, others), tellGroup, backend);
  }

  async load(call: Pick<ReplicaCall, 'module' | 'name'>): Promise<FromThread> {
    const failed = (message: string): Failed => ({ kind: 'failed', isFunction: true, message: `${keyOf(call)}: ${message}` });
    let loaded: Readonly<Record<string, unknown>>;
    try {
      loaded = (await import(call.module)) as Readonly<Record<string, unknown>>;
    } catch (error) {
      return failed(`the module cannot be loaded in a compute thread: ${messageOf(error)}`);
    }
    const found = loaded[call.name];
    if (typeof found !== 'function')
      return failed(`the module exports no function of that name; it exports ${Object.keys(loaded).join(', ') || 'nothing'}`);
    this.functions.set(keyOf(call), found as Called);
    return { kind: 'ok' };
  }

  async call(call: ReplicaCall): Promise<FromThread> {
    (await this.backend).activate();
    const { own, meeting, states, tellGroup } = this;
    meeting.fn = inWords(call);
    const run = new Run({ called: this.functions.get(keyOf(call))!, own, meeting, states, tellGroup }, call);
    return run.ended;
  }
}

interface Waiting {
  readonly point: Point;
  readonly resolve: (values: Float32Array) => void;
  readonly reject: (error: Error) => void;
}

/** Told to replicas that wait for one that has failed: not a failure of their own. */
class Aborted extends Error {}

class Run {
  readonly ended: Promise<FromThread>;
  private readonly results = new Map<number, Encoded>();
  private readonly failures: Failed[] = [];
  private readonly waiting = new Map<number, Waiting>();
  private readonly returned = new Set<number>();
  /** Replicas between the two sums of an allGather, too. */
  private readonly gathering = new Set<number>();
  private readonly own: OwnReplicas;
  private running: number;
  private isAborted = false;
  private isMet = false;
  private end!: (answer: FromThread) => void;

  constructor(
    private readonly options: {
      readonly called: Called;
      readonly own: OwnReplicas;
      readonly meeting: Meeting;
      readonly states: Map<number, Record<string, unknown>>;
      readonly tellGroup: TellGroup | undefined;
    },
    call: ReplicaCall,
  ) {
    this.ended = new Promise((resolve) => (this.end = resolve));
    const { own } = options;
    this.own = own;
    this.running = own.end - own.first;
    for (let replica = own.first; replica < own.end; replica++) void this.replica(replica, call.args[replica - own.first]!);
  }

  private async replica(replica: number, args: readonly Encoded[]): Promise<void> {
    const made: tfc.Tensor[] = [];
    try {
      await Promise.resolve(); // all replicas are known before the first one begins
      const given = args.map((arg) => decode(arg, (tensor) => made.push(tensor)));
      const result: unknown = await this.options.called(this.context(replica, made), ...given);
      if (this.waiting.has(replica) || this.gathering.has(replica))
        throw new Error('the function has returned before its allReduce or allGather was over: await it');
      this.results.set(replica, encode(result, undefined, 'the result'));
      mapLeaves(result, (leaf) => (leaf instanceof tfc.Tensor ? made.push(leaf) : 0));
    } catch (error) {
      if (!(error instanceof Aborted)) this.failed({ kind: 'failed', replica, message: messageOf(error) });
      this.results.delete(replica);
    }
    for (const tensor of made) if (!tensor.isDisposed && !tensor.kept && !(tensor instanceof tfc.Variable)) tensor.dispose();
    this.returned.add(replica);
    const left = this.waiting.get(replica);
    if (left) left.reject(new Aborted('its function has ended'));
    else this.running--; // what waits does not run
    this.waiting.delete(replica);
    this.look();
  }

  private failed(failure: Failed): void {
    this.failures.push(failure);
    if (!this.isAborted && !this.isMet) this.options.tellGroup?.(failure);
  }

  private context(replica: number, made: tfc.Tensor[]): ReplicaContext {
    const { states } = this.options;
    const state = states.get(replica) ?? {};
    states.set(replica, state);
    return {
      replicaIdInSyncGroup: replica,
      numReplicasInSync: this.own.replicas,
      tf: tfc,
      state,
      allReduce: <T>(op: ReduceOp, values: T): Promise<T> => {
        let parts: Parts;
        try {
          parts = this.partsFor(replica, op, values);
        } catch (error) {
          return Promise.reject(error as Error);
        }
        const result = this.combined(replica, op, parts).then((combined) => valuesLike(values, combined, made));
        result.catch(() => undefined); // it is told as the failure of a replica, also where nobody waits for it any more
        return result;
      },
      allGather: <T>(values: T, axis = 0): Promise<T> => {
        const result = this.gathered(replica, values, axis, made);
        result.catch(() => undefined); // it is told as the failure of a replica, as that of an allReduce
        return result;
      },
      mergeCall: <T, R>(merge: (values: readonly T[]) => R | Promise<R>, values: T): Promise<R> => {
        const result = merged(merge, values, {
          replicas: this.own.replicas,
          allGather: (leaves) => this.gathered(replica, leaves, 0, made),
          made: (tensor) => this.keep(replica, tensor, made),
        });
        result.catch(() => undefined); // as above
        return result;
      },
    };
  }

  /** @throws Error for a call that cannot be made */
  private partsFor(replica: number, op: ReduceOp, values: unknown): Parts {
    if (!isReduceOp(op)) throw new TypeError(`allReduce takes 'sum' or 'mean', not ${String(op)}`);
    this.requireNext(replica);
    return partsOf(values);
  }

  private async gathered<T>(replica: number, values: T, axis: number, made: tfc.Tensor[]): Promise<T> {
    this.requireNext(replica);
    this.gathering.add(replica);
    const sum = (parts: Float32Array, form: number): Promise<Float32Array> => this.combined(replica, 'sum', { values: parts, form });
    try {
      return await gathered(values, axis, {
        replica,
        replicas: this.own.replicas,
        sum,
        made: (tensor) => this.keep(replica, tensor, made),
      });
    } finally {
      this.gathering.delete(replica);
    }
  }

  /** A tensor is disposed when the function ends, or at once where that has ended. */
  private keep(replica: number, tensor: tfc.Tensor, made: tfc.Tensor[]): void {
    if (this.returned.has(replica)) tensor.dispose();
    else made.push(tensor);
  }

  private requireNext(replica: number): void {
    if (this.waiting.has(replica) || this.gathering.has(replica))
      throw new Error('a second allReduce or allGather begins while the first one is not over: await it, or give both values at once');
  }

  private combined(replica: number, op: ReduceOp, { values, form }: Parts): Promise<Float32Array> {
    if (this.isAborted || this.returned.has(replica))
      return Promise.reject(new Aborted('another replica has failed, or this one has returned'));
    return new Promise((resolve, reject) => {
      const point = { replica: replica - this.own.from, kind: op === 'sum' ? SUM : MEAN, form, values };
      this.waiting.set(replica, { point, resolve, reject });
      this.running--;
      this.look();
    });
  }

  /** Meets the other threads when no replica of this one can go on alone. */
  private look(): void {
    if (this.running > 0) return;
    if (this.isAborted || this.isMet) return this.end(this.answer());
    const waiting = [...this.waiting.values()];
    const points: Point[] = waiting.map(({ point }) => point);
    for (let replica = this.own.first; replica < this.own.end; replica++)
      if (!this.waiting.has(replica)) {
        const kind = this.results.has(replica) ? ENDED : FAILED_POINT;
        points.push({ replica: replica - this.own.from, kind, form: 0, values: new Float32Array(0) });
      }
    this.goOn(this.options.meeting.meet(points), waiting);
  }

  private goOn(outcome: Outcome, waiting: readonly Waiting[]): void {
    if (outcome.kind === 'over') this.isMet = true;
    if (outcome.kind === 'aborted') this.isAborted = true;
    if (outcome.kind === 'aborted' && outcome.reason !== undefined)
      this.failures.push({ kind: 'failed', replica: this.own.first, message: outcome.reason });
    this.waiting.clear();
    this.running += waiting.length;
    for (const { resolve, reject } of waiting)
      if (outcome.kind === 'combined') resolve(outcome.values);
      else reject(new Aborted('another replica has failed'));
    if (waiting.length === 0) this.look();
  }

  private answer(): FromThread {
    const [first] = this.failures.sort((a, b) => a.replica! - b.replica!);
    if (first) return first;
    if (this.isAborted) return { kind: 'ok', results: [] };
    return { kind: 'ok', results: Array.from({ length: this.own.end - this.own.first }, (_, i) => this.results.get(this.own.first + i)!) };
  }
}

/** The structure of what was given, with the numbers that were combined. */
function valuesLike<T>(given: T, combined: Float32Array, made: tfc.Tensor[]): T {
  let at = 0;
  return mapLeaves(given, (leaf) => {
    const length = leaf instanceof tfc.Tensor ? leaf.size : leaf instanceof Float32Array ? leaf.length : 1;
    const part = combined.subarray(at, (at += length));
    if (typeof leaf === 'number') return part[0];
    if (leaf instanceof Float32Array) return part.slice();
    const tensor = tfc.tensor(part.slice(), (leaf as tfc.Tensor).shape, 'float32');
    made.push(tensor);
    return tensor;
  }) as T;
}

interface Parts {
  readonly values: Float32Array;
  readonly form: number;
}

/** The numbers of a structure, one after the other. @throws TypeError */
function partsOf(given: unknown): Parts {
  const parts: Float32Array[] = [];
  const shapes: unknown[] = [];
  mapLeaves(given, (leaf, path) => {
    if (leaf instanceof tfc.Tensor && leaf.dtype === 'float32') {
      parts.push(leaf.dataSync<'float32'>());
      shapes.push(leaf.shape);
    } else if (typeof leaf === 'number' || leaf instanceof Float32Array) {
      parts.push(typeof leaf === 'number' ? Float32Array.of(leaf) : leaf);
      shapes.push([typeof leaf, parts.at(-1)!.length]);
    } else throw new TypeError(`allReduce adds up tensors of float32, Float32Array and numbers, and value${path} is something else`);
    return undefined;
  });
  const values = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    values.set(part, at);
    at += part.length;
  }
  return { values, form: crc32(JSON.stringify(shapes)) | 0 };
}
