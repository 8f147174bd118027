/**
 * A worker among those of its group (worker-groups.ts). Workers below it ask it as they would ask a parameter server:
 *
 *     read  waits until this worker loads the same generation, and answers as soon as the range of the server is here
 *     sums  are kept until this worker has computed its own; it adds them and sends the sum on, server by server
 *
 * Who waits for a worker cannot see whether it stands still, or waits in turn for another one. So a worker that is in a step says that it is awake.
 */
import { COORDINATOR, TaskError, type Content, type Peer, type Received, type TaskPlace } from '@paceline/collectives';
import type { Below } from './group-sums.js';
import { CODES, type Read, type Standing, type Sums } from './messages.js';
import type { ServedModel } from './served-model.js';
import { missing, Waits } from './waits.js';

/** The parameters of a generation, as they come: those of each server. */
export interface Loading {
  readonly generation: number;
  readonly ranges: readonly Promise<Standing>[];
}

export interface GroupWorkerOptions {
  readonly clock: TaskPlace['clock'];
  /** The names of all tasks, for people. */
  readonly names: readonly string[];
  /** @throws TaskError SESSION */
  readonly modelOf: (of: { readonly model: number }) => ServedModel;
  readonly begun: () => { readonly session: string; readonly deadlineMs: number } | undefined;
}

const AWAKE_MS = 1_000;

export class GroupWorker {
  /** The coordinator, and the workers below. */
  private readonly peers = new Map<number, Peer>();
  private readonly loading = new WeakMap<ServedModel, Loading>();
  private readonly waits: Waits;

  constructor(private readonly options: GroupWorkerOptions) {
    this.waits = new Waits(options.clock, () =>
      [...this.peers].reduce((sum, [from, { counters }]) => sum + (from === COORDINATOR ? 0 : counters.receivedBytes), 0),
    );
  }

  /** The coordinator or a worker below is connected. */
  joined(from: number, peer: Peer): void {
    this.peers.set(from, peer);
  }

  /** Its connection has ended: what it has not brought yet does not come. */
  left(from: number): void {
    if (!this.peers.delete(from) || from === COORDINATOR) return;
    this.waits.end(missing(from, `${this.options.names[from]!}: its connection has ended in the middle of a step`));
  }

  /** The coordinator has gone, or begins anew. */
  end(): void {
    this.waits.end(new TaskError(CODES.session, 'the session is over'));
  }

  /** Says to all who may wait for this worker that it is awake, as long as the work lasts. */
  async awake<T>(deadlineMs: number, work: () => Promise<T>): Promise<T> {
    const tell = (): void => {
      for (const peer of this.peers.values()) peer.request('awake', {}, { deadlineMs }).catch(() => undefined); // whoever is gone is missed elsewhere
    };
    const cancel = this.options.clock.every(Math.min(AWAKE_MS, deadlineMs / 3), tell);
    try {
      return await work();
    } finally {
      cancel();
    }
  }

  /** What a worker below asks. @throws TaskError */
  async asked(from: number, name: string, { body, parts }: Received): Promise<Content> {
    const { begun, modelOf } = this.options;
    const ofSession = body as Read | Sums;
    if (ofSession.session !== begun()?.session)
      throw new TaskError(CODES.session, 'the worker above serves another session, or was started again');
    const model = modelOf(ofSession);
    if (!model.hasBelow(from)) throw new TaskError('BAD_MESSAGE', `${this.options.names[from]!} is not below this worker in a group`);
    if (name === 'read') return this.read(model, body as Read);
    if (name !== 'sums') throw new TaskError('BAD_MESSAGE', `a worker asks another one for no "${name}"`);
    model.below!.take(from, body as Sums, parts);
    this.waits.look();
    return {};
  }

  /** This worker loads parameters: those below may have them as they come. */
  loads(model: ServedModel, loading: Loading): void {
    this.loading.set(model, loading);
    this.waits.look();
  }

  private async read(model: ServedModel, { generation, server = 0 }: Read): Promise<Content> {
    const { deadlineMs } = this.options.begun()!;
    const begins = (): Loading | undefined => {
      const loading = this.loading.get(model);
      return loading?.generation === generation ? loading : undefined;
    };
    const late = (): TaskError =>
      new TaskError(
        CODES.session,
        `waited ${deadlineMs} ms for the coordinator to ask this worker too. Set deadlineMs where that takes longer`,
      );
    const range = (await this.waits.until(begins, deadlineMs, late)).ranges[server];
    if (range === undefined) throw new TaskError('BAD_MESSAGE', `there is no parameter server ${server}`);
    return { body: await range, parts: [model.places()[server]!] };
  }

  /** The sums of all workers below over the range of a server; `failed` where one has none. @throws TaskError MEMBER naming who did not bring them */
  sums(model: ServedModel, round: number, server: number): Promise<readonly Below[] | 'failed'> {
    const { deadlineMs } = this.options.begun()!;
    return this.waits.until(
      () => model.below!.all(round, server),
      deadlineMs,
      () => {
        const place = model.below!.missing(round, server)!;
        return missing(
          place,
          `${this.options.names[place]!}: the sum of its replicas did not come within ${deadlineMs} ms. Set deadlineMs where a step may take longer`,
        );
      },
    );
  }
}
