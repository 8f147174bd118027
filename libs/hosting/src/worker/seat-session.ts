/**
 * What a worker holds of a run: one seat, from HELLO to the end. The machine of the run's mode, its connections to all servers, the
 * engine behind a port, and the clocks around them.
 *
 *   servers ── parameter chunks ──> parameters ──> engine ── gradient nodes ──> servers
 *
 *   SEATED ── the coordinator ends it, a leave is granted or not answered ──> ended
 *          ── refused, a server out of reach, the engine fails ─────────────> given up
 *
 * It ends once, in one order: no timer fires any more, the connections close, the machine lets go of what it holds, the engine stops, and
 * then `ended` resolves.
 */
import {
  Member,
  ServerLinks,
  AsyncMember,
  type CancelTimer,
  type Clock,
  type ComputePort,
  type Connection,
  type GradientNode,
  type MemberChunk,
  type MemberOptions,
  type Outcome,
  type PaceClock,
  type ReplicaResidual,
  type AsyncComputePort,
} from '@paceline/exchange';
import type { Seat, SeatEnd } from './seat-loop.js';
import type { ServerAddress, StepTaskJob } from '@paceline/control-plane';
import {
  createSchedule,
  exchangeOf,
  layoutHash,
  maximalNodes,
  rowGroups,
  shardChunks,
  workerLayout,
  type Layout,
  type WorkerLayout,
} from '@paceline/learning';
import { backupReplicasOf, heldRows, isEncoded, keepsEstimate, picksCodec, picksStrategy, roundsOf, type RunSpec } from '@paceline/spec';
import type { ResidualLoss } from '@paceline/codecs';
import { storedResidualsOf } from '../residuals.js';
import { parameterDecoderOf } from '../run-codecs.js';
import type { Log } from '../server/server-context.js';

const HEARTBEAT_MS = 500;
const TICK_MS = 100;

/** What an engine says to its session, from `listen` on. */
export interface SeatComputeEvents {
  /** @param lost what the codec had kept of the replica was not there */
  contribution(round: number, replica: number, examples: number, sums: readonly number[], lost?: ResidualLoss): void;
  node(node: GradientNode): void;
  evaluated(generation: number, from: number, to: number, examples: number, sums: readonly number[]): void;
  /** What a round has left of replicas, as far as it is here. */
  residuals?(round: number, residuals: readonly ReplicaResidual[]): void;
  /** It has to have these rows before it can go on; they come by `rows` of its port. */
  wants?(generation: number, group: number, ids: Uint32Array): void;
  /** The gradient of a work item has NaN or infinity. */
  nonFinite(round: number, replica: number): void;
  /** @param replica −1 when it was none in particular */
  failed(code: string, message: string, round: number, replica: number): void;
}

/** An engine that is ready. It is asked for steps in mode sync, for work items in the others, and says nothing before it is asked. */
export interface SeatCompute extends ComputePort, AsyncComputePort {
  readonly fingerprint: string;
  /** A count that moves whenever the engine moves. */
  readonly progress: number;
  listen(events: SeatComputeEvents): void;
  /** Resolves when nothing of it runs any more. It never rejects. */
  stop(): Promise<void>;
}

export interface SeatSessionOptions<Compute extends SeatCompute> {
  readonly job: StepTaskJob;
  readonly workerId: string;
  readonly host: string;
  readonly compute: Compute;
  /** At least `parameterBytes` of it: servers write into it, the engine reads. */
  readonly parameters: ArrayBufferLike;
  readonly layout: Layout;
  /** Only with `engine: mixed`: examples per second, as the worker measured. */
  readonly speed?: number | undefined;
  /** That this process may use; known to whom `strategy: auto` asks. */
  readonly cores?: number | undefined;
  readonly clock: Clock;
  /** Opens a connection within its own deadline. */
  connect(server: ServerAddress): Promise<Connection>;
  readonly log: Pick<Log, 'error'>;
}

export type SessionEnd = SeatEnd & ({ readonly kind: 'ended'; readonly outcome: Outcome } | { readonly kind: 'given-up' });

/** Two generations of the flat vector in mode sync, one vector otherwise. */
export function parameterBytes({ strategy }: Pick<RunSpec, 'strategy'>, { totalLength }: Pick<Layout, 'totalLength'>): number {
  return totalLength * 4 * (strategy.mode === 'sync' ? 2 : 1);
}

export class SeatSession<Compute extends SeatCompute = SeatCompute> implements Seat {
  readonly ended: Promise<SessionEnd>;
  readonly job: StepTaskJob;
  readonly compute: Compute;
  readonly member: Member | AsyncMember;
  private readonly links: ServerLinks<ServerAddress>;
  private readonly timers: CancelTimer[] = [];
  private finish!: (end: SessionEnd) => void;
  private isOver = false;
  private latencyMs: number | undefined;

  constructor(private readonly options: SeatSessionOptions<Compute>) {
    const { job, workerId, compute, clock } = options;
    this.ended = new Promise((resolve) => (this.finish = resolve));
    this.job = job;
    this.compute = compute;
    const isMeasured = picksCodec(job.spec) || picksStrategy(job.spec);
    const paceClock = isMeasured ? { now: () => clock.now(), latencyMs: () => this.latencyMs, cores: options.cores } : undefined;
    this.member = createMember(options, (outcome, message) => this.end({ kind: 'ended', outcome, message }), paceClock);
    const hash = layoutHash(options.layout);
    this.links = new ServerLinks({
      servers: job.servers,
      ...(job.standbys ? { standbys: job.standbys } : {}),
      attempt: job.attempt,
      member: this.member,
      clock,
      connect: (server) => options.connect(server),
      hello: () => ({
        ...({
          token: job.token,
          run: job.runId,
          role: 'worker',
          id: workerId,
          host: options.host,
          seat: job.seat,
          incarnation: job.incarnation,
        } as const),
        fingerprint: compute.fingerprint,
        layout: hash,
        ...(options.speed === undefined ? {} : { speed: options.speed }),
      }),
      onWelcome: (afterMs) => (this.latencyMs = Math.min(this.latencyMs ?? Infinity, afterMs)),
      onGivenUp: (code, message, serverIndex) => this.end({ kind: 'given-up', code, message, serverIndex }),
    });
  }

  /** Starts the clocks and says HELLO to every server. Called once. */
  begin(): void {
    const { member, compute, links, options } = this;
    compute.listen(this.events());
    this.timers.push(
      options.clock.every(HEARTBEAT_MS, () => member.heartbeat(compute.progress)),
      options.clock.every(TICK_MS, () => links.tick()),
    );
    links.open();
  }

  get heldSeats(): number {
    return this.member.heldSeats;
  }

  /** Asks the coordinator to let this member go; after the deadline it goes anyway. */
  leave(reason: string, deadlineMs: number): void {
    if (this.isOver) return;
    this.member.leave(reason);
    const message = `left without an answer after ${deadlineMs} ms: ${reason}`;
    this.timers.push(this.options.clock.after(deadlineMs, () => this.end({ kind: 'ended', outcome: 'finished', message })));
  }

  private events(): SeatComputeEvents {
    const { member } = this;
    return {
      contribution: (...args) => member.contribution(...args),
      node: (node) => member.node(node),
      evaluated: (...args) => member.evaluated(...args),
      residuals: (...args) => {
        if (member instanceof Member) member.residuals(...args);
      },
      wants: (...args) => {
        if (member instanceof Member) member.wants(...args);
      },
      nonFinite: (round, replica) => {
        if (member instanceof AsyncMember) member.nonFinite(round, replica);
      },
      failed: (code, message, round, replica) => {
        if (this.isOver) return;
        this.options.log.error({ run: this.job.runId, code, message, round }, 'the engine failed');
        member.failed(code, message, round, replica);
        this.end({ kind: 'given-up', code, message, serverIndex: null });
      },
    };
  }

  private end(end: SessionEnd): void {
    if (this.isOver) return;
    this.isOver = true;
    for (const cancel of this.timers) cancel();
    this.links.close();
    this.member.end('finished', 'the session is over');
    void this.compute.stop().then(() => this.finish(end));
  }
}

/** The machine on the worker's side, by the mode of the run. */
function createMember(
  options: SeatSessionOptions<SeatCompute>,
  onEnd: (outcome: Outcome, message: string) => void,
  paceClock: PaceClock | undefined,
): Member | AsyncMember {
  const { job, workerId, layout, parameters, compute } = options;
  const { attempt, spec } = job;
  const part = {
    id: workerId,
    attempt,
    compute,
    onEnd,
    servers: job.servers.length,
    chunks: memberChunks(layout, job.servers.length),
    parameters: parameterDecoderOf(spec, layout, job.servers.length),
  };
  const worker = seatLayout(job, layout);
  const bytes = worker.totalLength * 4;
  if (spec.strategy.mode !== 'sync') return new AsyncMember({ ...part, store: new Uint8Array(parameters, 0, bytes) });
  const { totalRounds } = createSchedule({ ...roundsOf(spec, job.data.trainExamples), length: spec.length });
  return new Member({
    ...part,
    ...('dense' in worker && { chunks: denseChunks(worker, part.chunks) }),
    groups: rowGroups(layout, job.servers.length),
    isExchanged: exchangeOf(spec, layout),
    residuals: storedResidualsOf(spec, layout, job.servers.length),
    totalRounds,
    paceClock,
    measuresStrategy: picksStrategy(spec),
    keepsEstimates: keepsEstimate(spec),
    firstOfSums: firstOfSums(spec),
    store: { bytes: (generation) => new Uint8Array(parameters, (generation & 1) * bytes, bytes) },
  });
}

/** Where each replica is sent by itself for its codec: what a worker would add up. Backup replicas are never added up. */
function firstOfSums(spec: RunSpec): MemberOptions['firstOfSums'] {
  if (!isEncoded(spec) || backupReplicasOf(spec.strategy) > 0) return undefined;
  return (replicas) => maximalNodes(spec.replicas, new Set(replicas)).map(({ lo }) => lo);
}

/** What lies in the memory of a worker: all of the model, or of tables that are exchanged by rows those that it holds at once. */
export function seatLayout({ spec, model, data }: Pick<StepTaskJob, 'spec' | 'model' | 'data'>, layout: Layout): Layout | WorkerLayout {
  if (!layout.variables.some(({ rows }) => rows)) return layout;
  return workerLayout(layout, (table) => heldRows(spec, data.format, model.variables[table]!));
}

const denseChunks = ({ dense }: WorkerLayout, all: readonly MemberChunk[]): MemberChunk[] =>
  dense.map(({ runIndex, offset, length }) => ({ index: runIndex, offset, length, server: all[runIndex]!.server }));

/** Chunks of the flat vector, with the server that owns each. */
function memberChunks(layout: Layout, servers: number): MemberChunk[] {
  const owners = new Map<number, number>();
  for (let server = 0; server < servers; server++) for (const chunk of shardChunks(layout, servers, server)) owners.set(chunk, server);
  return layout.chunks.map(({ index, offset, length }) => ({ index, offset, length, server: owners.get(index)! }));
}
