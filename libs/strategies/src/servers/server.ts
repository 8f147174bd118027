/** A process that serves a coordinator: a parameter server or a worker. tf.distribute.Server. */
import {
  type Arrival,
  ClusterError,
  type ClusterResolver,
  type Handler,
  type Peer,
  placeOf,
  processClock,
  rosterOf,
  Tasks,
  TfConfigResolver,
} from '@paceline/collectives';
import { ClusterConfigError } from '../errors.js';
import { checkKeys, checkTransport, listenHostOf } from '../known-options.js';
import { resolverOf } from '../resolved-by.js';
import { secretOf } from '../secret.js';
import type { About, Begun } from './messages.js';
import { ParameterHost } from './parameter-host.js';
import { WorkerHost } from './worker-host.js';

export interface ServerOptions {
  /** What all processes know, and nobody else. From the environment variable PACELINE_CLUSTER_SECRET by default. */
  readonly secret?: string;
  readonly transport?: 'auto' | 'tcp' | 'unix';
  /** Address of the interface where this process listens; that of the cluster by default, `0.0.0.0` for all. */
  readonly listenHost?: string;
}

interface Host {
  handlerOf(from: number): Handler;
  left(from: number): void;
  /** It is connected. */
  joined?(from: number, peer: Peer): void;
}

const KNOWN = ['secret', 'transport', 'listenHost'];
const NAME = 'Server';

export class Server {
  private readonly peers = new Set<Peer>();
  private closing: (() => void) | undefined;
  private readonly closed = new Promise<void>((resolve) => (this.closing = resolve));

  private constructor(
    /** Type and index of this process's task. */
    readonly task: { readonly type: string; readonly index: number },
    readonly address: string,
    private readonly end: () => Promise<void>,
  ) {}

  /**
   * Listens at the address of this task, and serves until `close`.
   * @throws ClusterConfigError for a cluster, a task or a secret that has no meaning
   * @throws ArgumentError for an option that has none
   */
  static async start(resolver: ClusterResolver = new TfConfigResolver(), options: ServerOptions = {}): Promise<Server> {
    checkKeys(NAME, options, KNOWN);
    checkTransport(NAME, options.transport ?? 'auto');
    listenHostOf(NAME, options.listenHost);
    try {
      return await Server.started(resolver, options);
    } catch (cause) {
      if (cause instanceof ClusterError) throw new ClusterConfigError(cause.message, { cause });
      throw cause;
    }
  }

  private static async started(resolver: ClusterResolver, options: ServerOptions): Promise<Server> {
    const found = resolverOf(NAME, 'the first argument is', resolver).resolve();
    if (!found) throw new ClusterConfigError(`${NAME}: no cluster is given: set TF_CONFIG to the cluster and the task of this process`);
    const { cluster, task, listenHost } = found;
    if (!task) throw new ClusterConfigError(`${NAME}: TF_CONFIG has no task: say which worker or ps of the cluster this process is`);
    if (task.type !== 'ps' && task.type !== 'worker')
      throw new ClusterConfigError(`${NAME}: a task of type ${task.type} serves nobody; ps and worker do`);
    const roster = rosterOf(cluster);
    const self = placeOf(roster, task);
    const at = { listenHost: options.listenHost ?? listenHost, secret: secretOf(NAME, options.secret) };
    const tasks = new Tasks({ roster, self, kind: options.transport ?? 'auto', clock: processClock, ...at });
    const servers = roster.tasks.flatMap(({ task: { type } }, place) => (type === 'ps' ? [place] : []));
    const host = task.type === 'ps' ? new ParameterHost() : new WorkerHost({ tasks, servers, clock: processClock });
    const { host: name, port } = roster.tasks[self]!;
    const listener = await tasks.listen((arrival) => server.serve(tasks, host, arrival));
    const server = new Server(task, `${name}:${port}`, async () => {
      await listener.close();
      if (host instanceof WorkerHost) await host.close();
    });
    return server;
  }

  /** Until the server is closed: tf.distribute.Server.join. */
  join(): Promise<void> {
    return this.closed;
  }

  async close(): Promise<void> {
    for (const peer of this.peers) peer.close('the server ends');
    await this.end();
    this.closing?.();
  }

  private serve(tasks: Tasks, host: Host, arrival: Arrival): void {
    const answers = host.handlerOf(arrival.from);
    const peer = tasks.peerOf(
      arrival,
      async (name, received) => {
        if (name === 'about') return { body: this.about(host) };
        const content = await answers(name, received);
        return name === 'begin' ? { body: { ...this.about(host), ...(content.body as Partial<Begun>) } } : content;
      },
      () => {
        this.peers.delete(peer);
        host.left(arrival.from);
      },
    );
    this.peers.add(peer);
    host.joined?.(arrival.from, peer);
  }

  private about(host: Host): About {
    const own = host instanceof WorkerHost ? host.traffic() : { sentBytes: 0, receivedBytes: 0 };
    const peers = [...this.peers];
    const kept = host instanceof ParameterHost ? host.bytes : { parameterBytes: 0, slotBytes: 0 };
    return {
      pid: process.pid,
      ...kept,
      sentBytes: peers.reduce((sum, { counters }) => sum + counters.sentBytes, own.sentBytes),
      receivedBytes: peers.reduce((sum, { counters }) => sum + counters.receivedBytes, own.receivedBytes),
    };
  }
}
