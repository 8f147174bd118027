/**
 * A worker: computes what one coordinator asks for, with the parameters of the parameter servers. A step is
 *
 *     rows come -> parameters of the generation are read from every server, unless they are here -> gradients, added up inside the process
 *     -> every server gets its range of the sums -> losses go to the coordinator, which commits the round at the servers
 *
 * In a group of several workers (worker-groups.ts) the head does so; for the others the worker above them stands for the servers.
 */
import {
  COORDINATOR,
  GONE,
  TaskError,
  type Content,
  type Handler,
  type Peer,
  type Range,
  type Received,
  type TaskPlace,
  type Tasks,
} from '@paceline/collectives';
import { UnsupportedError } from '../errors.js';
import type { Encoded } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import { ThreadPool } from '../threads/thread-pool.js';
import {
  jsonNumber,
  CODES,
  answered,
  fromBytes,
  type Begin,
  type Begun,
  type DescribeText,
  type Load,
  type Meet,
  type OfModel,
  type Predict,
  type Read,
  type Reached,
  type Standing,
  type Step,
  type Sums,
  type Train,
  type WorkerPlan,
} from './messages.js';
import { FunctionHost } from './function-host.js';
import { GroupWorker } from './group-worker.js';
import { packed, unpacked, type FunctionCall, type ServedValues } from './function-protocol.js';
import { RunHost } from './run-host.js';
import { ServedModel } from './served-model.js';
import { missing } from './waits.js';

export interface WorkerHostOptions {
  readonly tasks: Tasks;
  /** Places of the parameter servers in the roster, in their order. */
  readonly servers: readonly number[];
  readonly clock: TaskPlace['clock'];
}
/** A generation of the parameters of a model. */
type Wanted = OfModel & Pick<Step, 'generation' | 'served'>;

const isIn = (ranges: readonly Range[], at: number): boolean => ranges.some(({ offset, length }) => at >= offset && at < offset + length);

const NO_REQUESTS: Handler = (name) =>
  name === 'awake'
    ? Promise.resolve({})
    : Promise.reject(new TaskError('BAD_MESSAGE', `a parameter server asks for nothing, and not for "${name}"`));

/** What a worker above says when it has lost the session or its threads. */
const LOST: ReadonlySet<string> = new Set([CODES.session, CODES.thread]);
/** For a word that only saves a wait. */
const TELL_MS = 1_000;

/** @throws the fault of the first that has one, when all have ended */
async function whenAll<T>(all: readonly Promise<T>[]): Promise<T[]> {
  const ended = await Promise.allSettled(all);
  return ended.map((result) => {
    if (result.status === 'fulfilled') return result.value;
    throw result.reason as Error;
  });
}

/** A parameter server or the worker above, from when it is dialled. */
interface Dialled {
  readonly coming: Promise<Peer>;
  peer: Peer | undefined;
}

export class WorkerHost {
  private begun: Begin | undefined;
  private pool: ThreadPool | undefined;
  /** Functions in the replicas of the pool. */
  private runs = new RunHost();
  private readonly models = new Map<number, ServedModel>();
  private readonly peers = new Map<number, Dialled>();
  /** Ends the dialling of servers that nobody waits for. */
  private dialling = new AbortController();

  private functions = this.functionHost();
  /** Other workers of its group. */
  private readonly group: GroupWorker;

  constructor(private readonly options: WorkerHostOptions) {
    const { clock, tasks } = options;
    this.group = new GroupWorker({ clock, names: tasks.names, modelOf: (of) => this.modelOf(of), begun: () => this.begun });
  }

  handlerOf(from: number): Handler {
    return async (name, received) => {
      try {
        if (from !== COORDINATOR) return await this.group.asked(from, name, received);
        return await this.asked(name, received);
      } catch (error) {
        if (error instanceof UnsupportedError) throw new TaskError(CODES.unsupported, JSON.stringify([error.what, error.reason]));
        throw error;
      }
    };
  }

  joined(from: number, peer: Peer): void {
    this.group.joined(from, peer);
  }

  left(from: number): void {
    this.group.left(from);
    if (from !== COORDINATOR) return;
    if (this.runs.isUnderWay) void this.pool?.dispose(); // nobody would tell its replicas to go on
    this.forget();
    this.dialling.abort();
    this.dialling = new AbortController();
  }

  async close(): Promise<void> {
    this.forget();
    this.dialling.abort(); // for good
    await this.pool?.dispose();
    await this.functions.close();
    for (const { peer } of this.peers.values()) peer?.close('the worker ends');
  }

  /** Bytes to and from the parameter servers. */
  traffic(): { readonly sentBytes: number; readonly receivedBytes: number } {
    const peers = [...this.peers.values()];
    // Nothing went to a server that is still dialled.
    const sum = (of: 'sentBytes' | 'receivedBytes'): number => peers.reduce((total, { peer }) => total + (peer?.counters[of] ?? 0), 0);
    return { sentBytes: sum('sentBytes'), receivedBytes: sum('receivedBytes') };
  }

  private asked(name: string, { body, parts }: Received): Promise<Content> | Content {
    switch (name) {
      case 'begin':
        return this.begin(body as Begin);
      case 'describe': {
        const { spec, format } = fromBytes<DescribeText>(parts[0]);
        const [answer] = this.threads().ask({ kind: 'describe', spec, format }, 1);
        return { body: { description: answered(answer).description } };
      }
      case 'open': {
        const { model } = body as OfModel;
        this.models.set(model, new ServedModel(this.threads(), model, fromBytes<WorkerPlan>(parts[0]), this.options.servers.length));
        return {};
      }
      case 'close':
        this.models.get((body as OfModel).model)?.close();
        this.models.delete((body as OfModel).model);
        return {};
      case 'train':
        this.modelOf(body as Train).trained = (body as Train).ranges;
        return {};
      case 'step':
        return this.inGroup(body as Step, (model) => this.step(model, body as Step, parts));
      case 'call':
        return this.functions.call(unpacked<FunctionCall>(parts[0])).then((value) => ({ parts: [packed(value)] }));
      case 'load': {
        const { share, module, name: of } = body as Load;
        return this.runs.load(this.threads(), { module, name: of }, share).then(() => ({}));
      }
      case 'run':
        return this.reached(this.runs.run(this.threads(), body as NamedFunction, unpacked<Encoded[][]>(parts[0])));
      case 'meet':
        return this.reached(this.runs.meet((body as Meet).goesOn, parts[0]));
      case 'predict':
        return this.inGroup(body as Predict, (model) => this.predict(model, body as Predict, parts));
      default:
        throw new TaskError('BAD_MESSAGE', `a worker knows no request "${name}"`);
    }
  }

  private async begin(begun: Begin): Promise<Content> {
    this.forget();
    await this.functions.close(); // what functions keep is of their coordinator
    const { threads, deadlineMs, session } = begun;
    const isOther = this.begun?.threads !== threads || this.begun.deadlineMs !== deadlineMs;
    // A session that begins again here goes on with what its replicas keep: another worker's function thread has ended, or this one's.
    const isKept = this.begun?.session === session && this.pool?.isOpen === true;
    if (!isKept && (isOther || this.runs.hasFunctions || this.pool?.isOpen !== true)) {
      await this.pool?.dispose();
      this.runs = new RunHost();
      this.pool = new ThreadPool({ threads, deadlineMs, group: this.runs });
    }
    this.begun = begun;
    return { body: { isKept } satisfies Begun };
  }

  private async reached(point: Promise<Reached>): Promise<Content> {
    const reached = await point;
    return { body: reached, parts: reached.isOver ? [packed(this.runs.taken())] : this.runs.sums() };
  }

  private forget(): void {
    this.group.end();
    for (const model of this.models.values()) model.close();
    this.models.clear();
  }

  private threads(): ThreadPool {
    if (this.pool?.isOpen) return this.pool;
    throw new TaskError(CODES.thread, 'the compute threads have ended, or no session has begun');
  }

  private modelOf({ model }: OfModel): ServedModel {
    const found = this.models.get(model);
    if (found) return found;
    throw new TaskError(CODES.session, `there is no model ${model} at this worker: it was started again`);
  }

  private async inGroup(of: OfModel, work: (model: ServedModel) => Promise<Content>): Promise<Content> {
    const model = this.modelOf(of);
    return model.below ? this.group.awake(this.begun!.deadlineMs, () => work(model)) : work(model);
  }

  private async step(model: ServedModel, step: Step, parts: readonly Uint8Array[]): Promise<Content> {
    let isTold = false;
    try {
      await this.load(model, step);
      const stepped = await model.step(step, parts);
      isTold = stepped.failures.length === 0 && (await this.send(model, step));
      return { body: stepped, parts: step.readsOutputs && stepped.failures.length === 0 ? model.outputs(step.count) : [] };
    } finally {
      if (!isTold) await this.tellFailed(model, step);
    }
  }

  /** The sums go on. @returns false where a worker below has none: there is no sum of the group */
  private async send(model: ServedModel, { model: number, round }: Step): Promise<boolean> {
    const { session, deadlineMs } = this.begun!;
    const sent = await this.atAll(async (peer, server) => {
      if (model.below) {
        const below = await this.group.sums(model, round, server);
        if (below === 'failed') return false;
        model.addBelow(server, below);
      }
      const body: Sums = { model: number, session, round, nodes: model.nodes, server };
      await peer.request('sums', { body, parts: model.sumsFor(server, round) }, { deadlineMs });
      return true;
    }, model.above);
    return !sent.includes(false);
  }

  /** The worker above would wait for the sums of this one. */
  private async tellFailed({ above }: ServedModel, { model, round }: Step): Promise<void> {
    if (above === undefined) return;
    const body: Sums = { model, session: this.begun!.session, round, nodes: [], hasFailed: true };
    try {
      await (await this.peer(above, TELL_MS)).request('sums', { body }, { deadlineMs: TELL_MS });
    } catch (error) {
      // It is gone or waits no longer: the coordinator hears of what happened here all the same.
      if (!(error instanceof TaskError)) throw error;
    }
  }

  private async predict(model: ServedModel, predict: Predict, parts: readonly Uint8Array[]): Promise<Content> {
    await this.load(model, predict);
    return { body: await model.predict(predict, parts), parts: model.outputs(predict.count) };
  }

  /** The parameters of a generation, of all servers. */
  private async load(model: ServedModel, { generation, model: number, served }: Wanted): Promise<void> {
    if (model.generation === generation) return;
    const { session, deadlineMs } = this.begun!;
    const places = model.places();
    model.generation = -1;
    const ranges = this.eachServer(async (peer, server) => {
      const body: Read = { model: number, session, generation, server };
      const standing = (await peer.request('read', { body }, { deadlineMs, into: [places[server]!] })).body as Standing;
      if (served === undefined || standing.generation === served) return standing;
      throw new TaskError(
        CODES.generation,
        `${peer.name} gave parameters of generation ${standing.generation}, and this step needs those of ${served}: nothing was computed with them`,
      );
    }, model.above);
    this.group.loads(model, { generation, ranges });
    await whenAll(ranges);
    model.generation = generation;
  }

  private functionHost(): FunctionHost {
    return new FunctionHost({
      read: async (number): Promise<ServedValues> => {
        const model = this.modelOf({ model: number });
        const { session, deadlineMs } = this.begun!;
        const values = new Float32Array(model.layout.totalLength);
        const places = model.places(values);
        await this.atAll((peer, server) =>
          peer.request('read', { body: { model: number, session } }, { deadlineMs, into: [places[server]!] }),
        );
        const variables = model.layout.variables.map(({ path, shape, offset, length, section }) => ({
          path,
          shape,
          offset,
          length,
          isTrained: section === 'trainable' && isIn(model.trained, offset),
        }));
        return { variables, values };
      },
      push: async (number, rate, gradient) => {
        const places = this.modelOf({ model: number }).places(gradient);
        const { session, deadlineMs } = this.begun!;
        await this.atAll((peer, server) =>
          peer.request('push', { body: { model: number, session, rate: jsonNumber(rate) }, parts: [places[server]!] }, { deadlineMs }),
        );
      },
    });
  }

  private atAll<T>(act: (peer: Peer, server: number) => Promise<T>, above?: number): Promise<T[]> {
    return whenAll(this.eachServer(act, above));
  }

  /** @param above who stands for all servers. Each throws TaskError MEMBER naming who cannot be reached */
  private eachServer<T>(act: (peer: Peer, server: number) => Promise<T>, above?: number): Promise<T>[] {
    const { servers, tasks } = this.options;
    return servers.map(async (own, server) => {
      const place = above ?? own;
      try {
        return await act(await this.peer(place), server);
      } catch (error) {
        const isMissed = !(error instanceof TaskError) || error.code === GONE || (above !== undefined && LOST.has(error.code));
        throw isMissed ? missing(place, `${tasks.names[place]!}: ${(error as Error).message}`) : error;
      }
    });
  }

  /** A server, or a worker above, has one connection for each worker: callers that come while it is dialled wait for it, or fail with it. */
  private async peer(place: number, deadlineMs = this.begun!.deadlineMs): Promise<Peer> {
    const known = this.peers.get(place);
    const peer = await known?.coming;
    if (peer?.isOpen) return peer;
    const newer = this.peers.get(place);
    if (newer && newer !== known) return newer.coming;
    const { signal } = this.dialling;
    const coming = this.options.tasks.dial(place, deadlineMs, NO_REQUESTS, undefined, signal);
    const dialled: Dialled = { coming, peer: undefined };
    this.peers.set(place, dialled);
    coming.then(
      (there) => (dialled.peer = there),
      // The callers that wait get the error; the next one dials anew.
      () => {
        if (this.peers.get(place) === dialled) this.peers.delete(place);
      },
    );
    return coming;
  }
}
