/** The coordinator of parameter servers and workers: what a step, a prediction, a read or a write of the weights is among them. It lives in a thread of the program. */
import { randomUUID } from 'node:crypto';
import { GONE, type Handler, type Peer, rangeOf, type Received, TaskError, type Tasks } from '@paceline/collectives';
import type { Range } from '../threads/ranges.js';
import { replicaRows } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';
import type { TrainingPlan } from '../exchange.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import type { BatchBuffers, Share } from '../threads/protocol.js';
import { runInReplicas, type RunEnds } from './replica-runs.js';
import type { GradientCodec } from './served-shard.js';
import { groupPlans, type GroupPlan } from './worker-groups.js';
import {
  CODES,
  bytesOf,
  jsonNumber,
  textBytes,
  type About,
  type Begun,
  type CommitShard,
  type Predict,
  type Standing,
  type Step,
  type StepFailure,
  type Stepped,
  type Train,
  type WorkerPlan,
  type Write,
} from './messages.js';

export interface CoordinatorOptions {
  readonly tasks: Tasks;
  /** Places in the roster. */
  readonly workers: readonly number[];
  readonly servers: readonly number[];
  /** Of each worker. */
  readonly shares: readonly Share[];
  /** Compute threads of a worker. */
  readonly threads: number;
  /** Workers that are one group, of which one speaks with the servers; 1: there are no groups. */
  readonly workersPerGroup: number;
  readonly codec: GradientCodec;
  readonly deadlineMs: number;
  readonly joinDeadlineMs: number;
}

export interface OpenServed {
  readonly model: number;
  readonly plan: TrainingPlan;
  readonly description: ModelDescription;
  readonly totalLength: number;
  readonly trainableLength: number;
  /** Float32 per example. */
  readonly floats: Readonly<Record<'inputs' | 'targets' | 'outputs', readonly number[]>>;
}

export interface BatchNumbers {
  readonly model: number;
  /** Changes with the parameters. */
  readonly generation: number;
  readonly count: number;
  readonly step: number;
}

/** What is undefined stays as the servers have it. */
export interface Written {
  readonly steps: number | undefined;
  readonly parameters: Float32Array | undefined;
  readonly slots: readonly Float32Array[] | undefined;
}

/** A process that is gone, or serves somebody else. */
export class MemberGone extends Error {
  constructor(
    readonly places: readonly number[],
    message: string,
  ) {
    super(message);
  }
}

interface Ends {
  readonly losses: Float64Array;
  readonly failures: readonly StepFailure[];
}

export class Coordinator {
  readonly session = randomUUID();
  private readonly models = new Map<number, OpenServed>();
  /** Of models of which not everything is trained: a worker that is started again is told too. */
  private readonly trained = new Map<number, readonly Range[]>();
  private readonly peers = new Map<number, Peer>();
  private round = 0;
  /** The last round of each model that was committed. */
  private readonly committed = new Map<number, number>();
  /** Replicas keep something for functions of `run`. */
  private hasRun = false;
  /** A server has ended: no step can be taken any more. */
  private lost: Error | undefined;
  /** Rejects the steps and predictions that are under way, when a server has ended. */
  private readonly waiting = new Set<(fault: Error) => void>();
  /** What the replicas of a worker kept is lost. */
  private forgotten: MemberGone | undefined;

  /** Of each worker, where it is one of several of a group. */
  private readonly groups: readonly (GroupPlan | undefined)[];
  /** What the servers count for the present parameters of each model, where workers hand them on. */
  private readonly standing = new Map<number, number>();

  constructor(private readonly options: CoordinatorOptions) {
    const { shares, workers, workersPerGroup } = options;
    this.groups = groupPlans(shares, workers, workersPerGroup);
  }

  private get hasGroups(): boolean {
    return this.options.workersPerGroup > 1;
  }

  /** All processes come, and forget what was before. @throws ClusterError, MemberGone */
  async begin(): Promise<void> {
    const { workers, servers, joinDeadlineMs } = this.options;
    const places = [...servers, ...workers];
    const dialled = await Promise.allSettled(
      places.map(async (place) => void this.peers.set(place, await this.dial(place, joinDeadlineMs))),
    );
    for (const [i, result] of dialled.entries()) if (result.status === 'rejected') throw this.faultOf(result.reason, places[i]!);
    await this.all(places, 'begin', () => ({ body: this.begun }));
  }

  private get begun(): { readonly session: string; readonly threads: number; readonly deadlineMs: number } {
    const { threads, deadlineMs } = this.options;
    return { session: this.session, threads, deadlineMs };
  }

  async describe(spec: TrainingPlan['spec'], format: TrainingPlan['format']): Promise<ModelDescription> {
    const { body } = await this.ask(this.options.workers[0]!, 'describe', { parts: [textBytes({ spec, format })] });
    return (body as { readonly description: ModelDescription }).description;
  }

  async open(opened: OpenServed): Promise<void> {
    const { model, plan, description, trainableLength } = opened;
    const { servers, workers, shares, codec } = this.options;
    this.models.set(model, opened);
    const nodes = shares.flatMap((share, worker) => this.sentBy(worker, share));
    await this.all(servers, 'open', (server) => ({
      body: {
        model,
        plan: { range: this.range(opened, server), trainableLength, replicas: shares[0]!.replicas, rule: plan.rule, nodes, codec },
      },
    }));
    await this.all(workers, 'open', (worker) => this.openedBy(worker, model, plan, description));
  }

  /** The nodes that a worker sends to the servers. */
  private sentBy(worker: number, { nodes }: Share): Share['nodes'] {
    const group = this.groups[worker];
    if (!group) return nodes;
    return group.above === undefined ? group.nodes : [];
  }

  async close(model: number): Promise<void> {
    const { servers, workers } = this.options;
    this.models.delete(model);
    this.trained.delete(model);
    this.committed.delete(model);
    this.standing.delete(model);
    await this.all([...servers, ...workers], 'close', () => ({ body: { model } }));
  }

  async train(model: number, ranges: readonly Range[]): Promise<void> {
    const { servers, workers } = this.options;
    this.trained.set(model, ranges);
    await this.all([...servers, ...workers], 'train', () => ({ body: { model, ranges } satisfies Train }));
  }

  async write(model: number, { steps, parameters, slots }: Written): Promise<void> {
    const opened = this.models.get(model)!;
    const body: Write = { model, steps, hasParameters: parameters !== undefined, hasSlots: slots !== undefined };
    const answers = await this.all(this.options.servers, 'write', (server) => ({
      body,
      parts: [
        ...(parameters ? [bytesOf(this.part(opened, parameters, server))] : []),
        ...(slots ?? []).map((slot) => bytesOf(this.slotPart(opened, slot, server))),
      ],
    }));
    this.stands(model, answers);
  }

  /** Without functions of workers, all servers have counted alike. */
  private stands(model: number, answers: readonly Received[]): void {
    this.standing.set(model, Math.max(...answers.map(({ body }) => (body as Standing).generation)));
  }

  /** @returns steps of the optimizer so far */
  async read(model: number, into: Float32Array): Promise<number> {
    const opened = this.models.get(model)!;
    const places = (server: number): Uint8Array[] => [bytesOf(this.part(opened, into, server))];
    const answers = await this.all(this.options.servers, 'read', () => ({ body: { model, session: this.session } }), places);
    return Math.max(...answers.map(({ body }) => (body as Standing).steps));
  }

  async readSlots(model: number, into: readonly Float32Array[]): Promise<void> {
    const opened = this.models.get(model)!;
    const places = (server: number): Uint8Array[] => into.map((slot) => bytesOf(this.slotPart(opened, slot, server)));
    await this.all(this.options.servers, 'slots', () => ({ body: { model } }), places);
  }

  /** One synchronous step; with failures nothing has changed. */
  async step(numbers: BatchNumbers, rate: number, buffers: BatchBuffers): Promise<Ends> {
    const { model, count, step } = numbers;
    const opened = this.models.get(model)!;
    const round = ++this.round;
    const { inputs, targets } = opened.floats;
    const ends = await this.compute(
      'step',
      { ...numbers, rate, round, committed: this.committed.get(model) ?? 0 },
      opened,
      count,
      buffers,
      (worker) => [
        ...inputs.map((floats, i) => this.rows(buffers.inputs[i]!, floats, count, worker)),
        ...targets.map((floats, i) => this.rows(buffers.targets[i]!, floats, count, worker)),
        this.rows(buffers.weights, 1, count, worker),
      ],
    );
    if (ends.failures.length > 0) await this.all(this.options.servers, 'drop', () => ({ body: { model, round } }));
    else {
      const body: CommitShard = { model, round, count, step, rate: jsonNumber(rate) };
      this.stands(model, await this.all(this.options.servers, 'commit', () => ({ body })));
      this.committed.set(model, round);
    }
    return ends;
  }

  predict(numbers: BatchNumbers, rowsAtOnce: number, buffers: BatchBuffers): Promise<Ends> {
    const { model, count } = numbers;
    const opened = this.models.get(model)!;
    return this.compute('predict', { ...numbers, rowsAtOnce }, opened, count, buffers, (worker) =>
      opened.floats.inputs.map((floats, i) => this.rows(buffers.inputs[i]!, floats, count, worker)),
    );
  }

  /** A function in all replicas, at the same time. @param args of the replicas of each worker, packed */
  run(fn: NamedFunction, args: readonly Uint8Array[]): Promise<RunEnds> {
    const { workers, shares } = this.options;
    if (this.forgotten) return Promise.reject(this.forgotten);
    this.hasRun = true;
    return runInReplicas((name, content) => this.all(workers, name, content), shares, fn, args);
  }

  /**
   * A function in a worker, whatever else goes on.
   * @throws MemberGone when the worker, its thread or a server has ended meanwhile; TaskError for what the function throws
   */
  async call(worker: number, call: Uint8Array, deadlineMs: number): Promise<Uint8Array> {
    const place = this.options.workers[worker]!;
    try {
      const request = (): Promise<Received> => this.peers.get(place)!.request('call', { parts: [call] }, { deadlineMs });
      const { parts } = await this.whileServersAreThere(request);
      return parts[0]!;
    } catch (error) {
      throw this.faultOf(error, place);
    }
  }

  /** A worker that was lost has been started again: it gets the session and the models. @throws MemberGone */
  revive(worker: number): Promise<void> {
    return this.whileServersAreThere(() => this.revived(worker));
  }

  private async revived(worker: number): Promise<void> {
    const place = this.options.workers[worker]!;
    if (!this.peers.get(place)!.isOpen) {
      try {
        this.peers.set(place, await this.dial(place, REVIVE_MS));
      } catch (error) {
        throw this.faultOf(error, place);
      }
    }
    const [answer] = await this.all([place], 'begin', () => ({ body: this.begun }));
    if (this.hasRun && !(answer!.body as Begun).isKept)
      this.forgotten ??= new MemberGone(
        [place],
        `${this.options.tasks.names[place]!}: it was started again, and what its replicas kept in \`state\` for functions of run is lost; make a new strategy, and begin with what was saved last`,
      );
    for (const { model, plan, description } of this.models.values()) {
      await this.all([place], 'open', () => this.openedBy(worker, model, plan, description));
      const ranges = this.trained.get(model);
      if (ranges) await this.all([place], 'train', () => ({ body: { model, ranges } satisfies Train }));
    }
  }

  private dial(place: number, deadlineMs: number): Promise<Peer> {
    const nothing: Handler = (name) =>
      name === 'awake' ? Promise.resolve({}) : Promise.reject(new TaskError('BAD_MESSAGE', 'a coordinator is asked for nothing'));
    const { servers, tasks } = this.options;
    return tasks.dial(place, deadlineMs, nothing, (why) => {
      // The others of a group wait for a worker, and no function of a coordinator can go to another one.
      if (!servers.includes(place) && !this.hasGroups) return;
      this.lost ??= this.faultOf(new TaskError(GONE, why), place);
      for (const end of this.waiting) end(this.lost);
    });
  }

  private openedBy(worker: number, model: number, plan: TrainingPlan, description: ModelDescription) {
    const { shares, codec } = this.options;
    const group = this.groups[worker];
    const own = group?.above === undefined ? codec : { ...codec, kind: 'none' as const }; // inside a group sums are float32
    const opened: WorkerPlan = { ...plan, description, share: shares[worker]!, group, codec: own };
    return { body: { model }, parts: [textBytes(opened)] };
  }

  /** What the processes are, by their places in the roster. */
  async about(): Promise<readonly { readonly place: number; readonly about: About }[]> {
    const places = [...this.options.servers, ...this.options.workers];
    const answers = await this.all(places, 'about', () => ({}));
    return answers.map(({ body }, i) => ({ place: places[i]!, about: body as About }));
  }

  end(): void {
    for (const peer of this.peers.values()) peer.close('the strategy was disposed');
  }

  private async compute(
    name: 'step' | 'predict',
    body: BatchNumbers & Partial<Pick<Step, 'rate' | 'round' | 'committed'> & Pick<Predict, 'rowsAtOnce'>>,
    { floats, plan }: OpenServed,
    count: number,
    buffers: BatchBuffers,
    partsOf: (worker: number) => readonly Uint8Array[],
  ): Promise<Ends> {
    const outputs = (worker: number): Uint8Array[] =>
      floats.outputs.map((width, i) => this.rows(buffers.outputs[i]!, width, count, worker));
    const isRead = name === 'predict' || plan.readsOutputs;
    const served = this.hasGroups ? this.standing.get(body.model) : undefined;
    const content = (worker: number) => ({ body: { ...body, served, readsOutputs: isRead }, parts: partsOf(worker) });
    const answers = await this.whileServersAreThere(() => this.all(this.options.workers, name, content, isRead ? outputs : undefined));
    const stepped = answers.map((answer) => answer.body as Stepped);
    return {
      losses: Float64Array.from(stepped.flatMap(({ losses }) => losses.map(Number))),
      failures: stepped.flatMap(({ failures }) => failures),
    };
  }

  /**
   * A worker that has lost a server dials it until the deadline, in case only the connection broke. The coordinator knows at once, and could not end the step without it.
   * @throws MemberGone
   */
  private whileServersAreThere<T>(work: () => Promise<T>): Promise<T> {
    if (this.lost) return Promise.reject(this.lost);
    return new Promise((resolve, reject) => {
      this.waiting.add(reject);
      work()
        .then(resolve, reject)
        .finally(() => this.waiting.delete(reject));
    });
  }

  /** The rows of the replicas of a worker. */
  private rows(buffer: SharedArrayBuffer, floats: number, count: number, worker: number): Uint8Array {
    const { replicas, from, to } = this.options.shares[worker]!;
    const [first, end] = [replicaRows(count, replicas, from).from, replicaRows(count, replicas, to - 1).to];
    return new Uint8Array(buffer, first * floats * 4, (end - first) * floats * 4);
  }

  private range({ totalLength }: OpenServed, server: number): Range {
    return rangeOf(totalLength, this.options.servers.length, server);
  }

  private part(opened: OpenServed, vector: Float32Array, server: number): Float32Array {
    const { offset, length } = this.range(opened, server);
    return vector.subarray(offset, offset + length);
  }

  private slotPart(opened: OpenServed, slot: Float32Array, server: number): Float32Array {
    const { offset, length } = this.range(opened, server);
    return slot.subarray(Math.min(offset, slot.length), Math.min(offset + length, slot.length));
  }

  private ask(place: number, name: string, content: Parameters<Peer['request']>[1], into?: readonly Uint8Array[]): Promise<Received> {
    const { deadlineMs } = this.options;
    return this.peers
      .get(place)!
      .request(name, content, { deadlineMs: LONG.has(name) ? Math.max(deadlineMs, START_MS) : deadlineMs, ...(into ? { into } : {}) });
  }

  /** The same of several processes. @throws the fault of the first that has one, when all have answered */
  private async all(
    places: readonly number[],
    name: string,
    content: (index: number) => Parameters<Peer['request']>[1],
    into?: (index: number) => readonly Uint8Array[],
  ): Promise<Received[]> {
    const results = await Promise.allSettled(places.map((place, i) => this.ask(place, name, content(i), into?.(i))));
    const faults = results.flatMap((result, i) =>
      result.status === 'rejected' ? [{ place: places[i]!, fault: this.faultOf(result.reason, places[i]!) }] : [],
    );
    // A worker that misses another process says so; the one that is gone itself is named first.
    const isOwn = ({ place, fault }: (typeof faults)[number]): boolean => fault instanceof MemberGone && fault.places.includes(place);
    const found = faults.find(({ fault }) => !(fault instanceof MemberGone)) ?? faults.find(isOwn) ?? faults[0];
    if (found) throw found.fault;
    return results.map((result) => (result as PromiseFulfilledResult<Received>).value);
  }

  private faultOf(error: unknown, place: number): Error {
    if (!(error instanceof TaskError)) return error as Error;
    const name = this.options.tasks.names[place]!;
    if (error.code === GONE)
      return new MemberGone(
        [place],
        `${error.message}: its process has died or was ended; start it again, make a new strategy, and load what was saved last`,
      );
    if (error.code === CODES.session || error.code === CODES.thread) return new MemberGone([place], `${name}: ${error.message}`);
    if (error.code === CODES.member) {
      const [missing, message] = JSON.parse(error.message) as [number, string];
      return new MemberGone([missing], `${message} (said by ${name})`);
    }
    return error;
  }
}

/** What starts engines. */
const LONG: ReadonlySet<string> = new Set(['begin', 'describe', 'open', 'load']);
const START_MS = 300_000;
/** A worker that is dialled again is there, or it is tried later. */
const REVIVE_MS = 1_000;
