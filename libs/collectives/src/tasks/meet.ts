/** The tasks of a cluster with parameter servers, as one of them meets the others: it listens at its address, and dials those that it needs. */
import type { Clock } from '@paceline/exchange';
import type { ClusterSpec, MemberAddress, Task } from '../cluster-spec.js';
import { memberName } from '../cluster-spec.js';
import { ClusterError } from '../errors.js';
import type { Transport } from '../join.js';
import { groupId } from '../proof.js';
import { socketTransport } from '../socket-transport.js';
import { introduce, receive, type Arrival, type Identity } from './greet.js';
import { GONE, Peer, TaskError, type Handler } from './peer.js';

/** The coordinator is task 0, whether the cluster has an address for it or not: nobody dials it. */
export const COORDINATOR = 0;

export interface Roster {
  /** The coordinator, the workers, the parameter servers. */
  readonly tasks: readonly MemberAddress[];
  readonly names: readonly string[];
  /** UUID of the cluster. */
  readonly group: string;
}

export function rosterOf(cluster: ClusterSpec): Roster {
  const chief: MemberAddress = { task: { type: 'chief', index: 0 }, host: '', port: 0 };
  const tasks = [chief, ...cluster.servers];
  const names = ['the coordinator', ...cluster.servers.map(memberName)];
  return { tasks, names, group: groupId(['servers', cluster.tasks('worker'), cluster.tasks('ps')]) };
}

/** Number of a task in the roster. @throws ClusterError for one that neither serves nor coordinates */
export function placeOf({ tasks }: Roster, { type, index }: Task): number {
  const place = tasks.findIndex(({ task }) => task.type === type && task.index === index);
  if (place >= 0) return place;
  throw new ClusterError(
    `task: ${type} ${index} takes no part: there are chief 0, and the workers and the parameter servers of the cluster`,
  );
}

export interface TaskPlace {
  readonly roster: Roster;
  readonly self: number;
  readonly secret: string;
  readonly kind: 'auto' | 'tcp' | 'unix';
  readonly listenHost?: string | undefined;
  readonly clock: Clock;
  /** Of tests. */
  readonly transport?: Transport;
}

const RETRY_MS = 200;
const NOT_AWAITED = 'nobody waits for this connection any more';

export class Tasks {
  private readonly transport: Transport;
  private readonly identity: Identity;
  private readonly present = new Map<number, Arrival>();

  constructor(private readonly place: TaskPlace) {
    const { roster, self, secret, kind, listenHost, clock } = place;
    this.transport = place.transport ?? socketTransport({ members: roster.tasks, self, group: roster.group, kind, listenHost });
    this.identity = { self, names: roster.names, group: roster.group, secret, clock };
  }

  get names(): readonly string[] {
    return this.place.roster.names;
  }

  /** @param arrived hears of each task that has proved itself; a task has one connection at a time */
  listen(arrived: (arrival: Arrival) => void): Promise<{ close(): Promise<void> }> {
    const isFree = (from: number): boolean => this.present.get(from)?.link.isOpen !== true;
    return this.transport.listen((connection) =>
      receive(connection, this.identity, isFree, (arrival) => {
        this.present.set(arrival.from, arrival);
        arrived(arrival);
      }),
    );
  }

  /**
   * Dials a task, again and again until it is there.
   * @param signal nobody waits for the task any more
   * @throws ClusterError when it refuses this one, TaskError when it has not come within the deadline, or the signal has come before
   */
  dial(to: number, deadlineMs: number, handler: Handler, onGone?: (why: string) => void, signal?: AbortSignal): Promise<Peer> {
    const dialled = this.dialled(to, deadlineMs, handler, onGone, signal);
    if (!signal) return dialled;
    return new Promise((resolve, reject) => {
      const give = (): void => reject(this.notAwaited(to));
      signal.addEventListener('abort', give, { once: true });
      const end = (peer: Peer): void => {
        if (signal.aborted) peer.close(NOT_AWAITED);
        resolve(peer);
      };
      void dialled.then(end, reject).finally(() => signal.removeEventListener('abort', give));
    });
  }

  private notAwaited(to: number): TaskError {
    return new TaskError(GONE, `${this.names[to]!} is not waited for any more`);
  }

  private async dialled(
    to: number,
    deadlineMs: number,
    handler: Handler,
    onGone: ((why: string) => void) | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Peer> {
    const { clock } = this.place;
    const name = this.names[to]!;
    const untilMs = clock.now() + deadlineMs;
    for (;;) {
      if (signal?.aborted) throw this.notAwaited(to);
      let why: string;
      try {
        const connection = await this.transport.connect(to);
        const link = await introduce(connection, to, this.identity);
        const peer = new Peer({ link, name, clock, handler, ...(onGone ? { onGone } : {}) });
        if (!signal?.aborted) return peer;
        why = NOT_AWAITED;
        peer.close(why);
      } catch (error) {
        if (error instanceof ClusterError) throw error;
        why = (error as Error).message;
      }
      if (clock.now() + RETRY_MS > untilMs)
        throw new TaskError(
          GONE,
          `waited ${deadlineMs} ms for ${name} (${why}). Start it with \`paceline server\`, with the same cluster and secret, and see that its port is open`,
        );
      await new Promise<void>((resolve) => clock.after(RETRY_MS, resolve));
    }
  }

  peerOf({ from, link }: Arrival, handler: Handler, onGone?: (why: string) => void): Peer {
    return new Peer({ link, name: this.names[from]!, clock: this.place.clock, handler, ...(onGone ? { onGone } : {}) });
  }
}
