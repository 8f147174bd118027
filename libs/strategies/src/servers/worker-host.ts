/**
 * A worker: computes what one coordinator asks for, with the parameters of the parameter servers. A step is
 *
 *     rows come -> parameters of the generation are read from every server, unless they are here -> gradients, added up inside the process
 *     -> every server gets its range of the sums -> losses go to the coordinator, which commits the round at the servers
 */
import {
  COORDINATOR,
  TaskError,
  type Content,
  type Handler,
  type Peer,
  type Range,
  type Received,
  type Tasks,
} from '@paceline/collectives';
import { UnsupportedError } from '../errors.js';
import type { Encoded } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import { ThreadPool } from '../threads/thread-pool.js';
import {
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
  type Reached,
  type Step,
  type Train,
  type WorkerPlan,
} from './messages.js';
import { FunctionHost } from './function-host.js';
import { packed, unpacked, type FunctionCall, type ServedValues } from './function-protocol.js';
import { RunHost } from './run-host.js';
import { ServedModel } from './served-model.js';

export interface WorkerHostOptions {
  readonly tasks: Tasks;
  /** Places of the parameter servers in the roster, in their order. */
  readonly servers: readonly number[];
}

const isIn = (ranges: readonly Range[], at: number): boolean => ranges.some(({ offset, length }) => at >= offset && at < offset + length);

const NO_REQUESTS: Handler = (name) =>
  Promise.reject(new TaskError('BAD_MESSAGE', `a parameter server asks for nothing, and not for "${name}"`));

/** A parameter server, from when it is dialled. */
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

  constructor(private readonly options: WorkerHostOptions) {}

  handlerOf(from: number): Handler {
    return async (name, received) => {
      if (from !== COORDINATOR) throw new TaskError('BAD_MESSAGE', 'a worker is asked by its coordinator alone');
      try {
        return await this.asked(name, received);
      } catch (error) {
        if (error instanceof UnsupportedError) throw new TaskError(CODES.unsupported, JSON.stringify([error.what, error.reason]));
        throw error;
      }
    };
  }

  left(from: number): void {
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
        return this.step(body as Step, parts);
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
        return this.predict(body as Predict, parts);
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

  private async step(step: Step, parts: readonly Uint8Array[]): Promise<Content> {
    const model = this.modelOf(step);
    await this.load(model, step);
    const stepped = await model.step(step, parts);
    if (stepped.failures.length > 0) return { body: stepped };
    const { session, deadlineMs } = this.begun!;
    const { round } = step;
    await this.atAll((peer, server) =>
      peer.request(
        'sums',
        { body: { model: step.model, session, round, nodes: model.nodes }, parts: model.sumsFor(server, round) },
        { deadlineMs },
      ),
    );
    return { body: stepped, parts: step.readsOutputs ? model.outputs(step.count) : [] };
  }

  private async predict(predict: Predict, parts: readonly Uint8Array[]): Promise<Content> {
    const model = this.modelOf(predict);
    await this.load(model, predict);
    return { body: await model.predict(predict, parts), parts: model.outputs(predict.count) };
  }

  /** The parameters of a generation, of all servers. */
  private async load(model: ServedModel, { generation, model: number }: OfModel & { readonly generation: number }): Promise<void> {
    if (model.generation === generation) return;
    const { session, deadlineMs } = this.begun!;
    const places = model.places();
    model.generation = -1;
    await this.atAll((peer, server) => peer.request('read', { body: { model: number, session } }, { deadlineMs, into: [places[server]!] }));
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
          peer.request('push', { body: { model: number, session, rate }, parts: [places[server]!] }, { deadlineMs }),
        );
      },
    });
  }

  /** @throws TaskError MEMBER naming a server that cannot be reached */
  private async atAll<T>(act: (peer: Peer, server: number) => Promise<T>): Promise<T[]> {
    const { servers, tasks } = this.options;
    const all = await Promise.allSettled(servers.map(async (place, server) => act(await this.peer(place), server)));
    return all.map((result, server) => {
      if (result.status === 'fulfilled') return result.value;
      const reason = result.reason as Error;
      if (reason instanceof TaskError && reason.code !== 'GONE') throw reason;
      throw new TaskError(CODES.member, JSON.stringify([servers[server], `${tasks.names[servers[server]!]!}: ${reason.message}`]));
    });
  }

  /** A server has one connection for each worker: callers that come while it is dialled wait for it, or fail with it. */
  private async peer(place: number): Promise<Peer> {
    const known = this.peers.get(place);
    const peer = await known?.coming;
    if (peer?.isOpen) return peer;
    const newer = this.peers.get(place);
    if (newer && newer !== known) return newer.coming;
    const { signal } = this.dialling;
    const coming = this.options.tasks.dial(place, this.begun!.deadlineMs, NO_REQUESTS, undefined, signal);
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
