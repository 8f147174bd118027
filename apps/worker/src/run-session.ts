/**
 * One seat in one run, from HELLO to the end: memory, compute thread, member and connections, with the clocks around them.
 *
 *   servers ── parameter chunks ──> shared memory ──> compute thread ── gradient nodes ──> servers
 */
import { hostname } from 'node:os';
import { Member, ServerLinks, TokenMember, connect, processClock, type Outcome } from '@paceline/exchange';
import type { Seat, ServerAddress, StepTaskJob } from '@paceline/jobs';
import { createLayout, createSchedule, layoutHash, shardChunks, type Layout } from '@paceline/learning';
import { datasetInfo } from '@paceline/data';
import type { Logger } from '@paceline/runtime';
import { Compute } from './compute.js';
import type { MeasuredChoice } from './engine-choice.js';
import type { SeatLoopOptions } from './seat-loop.js';

const HEARTBEAT_MS = 500;
const TICK_MS = 100;
const CONNECT_DEADLINE_MS = 2_000;
/** A finished node is queued whole; the bytes are references into the gradient arena, which is bounded. */
const MAX_QUEUED_BYTES = 2 ** 31;

export type SessionEnd =
  | { readonly kind: 'ended'; readonly outcome: Outcome; readonly message: string }
  | { readonly kind: 'given-up'; readonly code: string; readonly message: string; readonly serverIndex: number | null };

export class RunSession implements Seat {
  readonly ended: Promise<SessionEnd>;
  private finish!: (end: SessionEnd) => void;
  private readonly timers: NodeJS.Timeout[] = [];
  private isOver = false;

  private constructor(
    readonly job: StepTaskJob,
    private readonly compute: Compute,
    readonly member: RunMember,
    private readonly links: ServerLinks<ServerAddress>,
    private readonly log: Logger,
  ) {
    this.ended = new Promise((resolve) => (this.finish = resolve));
  }

  /** Starts the engine, then connects. @throws ComputeStartError */
  static async start(
    job: StepTaskJob,
    engine: MeasuredChoice,
    { workerId, transport, log }: Pick<SeatLoopOptions, 'workerId' | 'transport' | 'log'>,
  ): Promise<RunSession> {
    const layout = createLayout(job.model);
    const bytes = layout.totalLength * 4;
    const parameters = new SharedArrayBuffer(job.spec.strategy.mode === 'sync' ? 2 * bytes : bytes);
    const compute = await Compute.start(job, engine, parameters, bytes);
    const member = createMember(job, workerId, layout, parameters, compute, (outcome, message) =>
      session.end({ kind: 'ended', outcome, message }),
    );
    const links = new ServerLinks({
      servers: job.servers,
      ...(job.standbys ? { standbys: job.standbys } : {}),
      attempt: job.attempt,
      member,
      clock: processClock,
      connect: (server) => connect(server, { deadlineMs: CONNECT_DEADLINE_MS, transport, maxQueuedBytes: MAX_QUEUED_BYTES }),
      hello: () => ({
        token: job.token,
        run: job.runId,
        role: 'worker',
        id: workerId,
        host: hostname(),
        seat: job.seat,
        n: job.n,
        fingerprint: compute.fingerprint,
        ...(job.spec.engine === 'mixed' && engine.examplesPerSecond ? { speed: engine.examplesPerSecond } : {}),
        layout: layoutHash(layout),
      }),
      onGivenUp: (code, message, serverIndex) => session.end({ kind: 'given-up', code, message, serverIndex }),
    });
    const session = new RunSession(job, compute, member, links, log);
    session.begin();
    return session;
  }

  get heldSeats(): number {
    return this.member.heldSeats;
  }

  get fingerprint(): string {
    return this.compute.fingerprint;
  }

  get devices(): Compute['devices'] {
    return this.compute.devices;
  }

  /** Asks the coordinator to let this member go; after the deadline it goes anyway. */
  leave(reason: string, deadlineMs: number): void {
    this.member.leave(reason);
    this.timers.push(
      setTimeout(
        () => this.end({ kind: 'ended', outcome: 'finished', message: `left without a word after ${deadlineMs} ms: ${reason}` }),
        deadlineMs,
      ),
    );
  }

  private begin(): void {
    const { member, compute, links } = this;
    compute.listen({
      contribution: (round, replica, examples, sums) => member.contribution(round, replica, examples, sums),
      node: (node) => member.node(node),
      nonFinite: (round, replica) => {
        if (member instanceof TokenMember) member.nonFinite(round, replica);
      },
      evaluated: (generation, from, to, examples, sums) => member.evaluated(generation, from, to, examples, sums),
      failed: (code, message, round, replica) => {
        this.log.error({ run: this.job.runId, code, message, round }, 'the compute thread failed');
        member.failed(code, message, round, replica);
        this.end({ kind: 'given-up', code, message, serverIndex: null });
      },
    });
    this.timers.push(
      setInterval(() => member.heartbeat(compute.progress), HEARTBEAT_MS),
      setInterval(() => {
        member.tick();
        links.tick();
      }, TICK_MS),
    );
    links.open();
  }

  private end(end: SessionEnd): void {
    if (this.isOver) return;
    this.isOver = true;
    for (const timer of this.timers) clearTimeout(timer);
    this.links.close();
    this.member.end('finished', 'the session is over');
    void this.compute.stop().then(() => this.finish(end));
  }
}

type RunMember = Member | TokenMember;

/** The machine on the worker's side by the mode of the run. @param parameters two generations in mode sync, one vector otherwise */
function createMember(
  { spec, attempt, servers }: StepTaskJob,
  id: string,
  layout: Layout,
  parameters: SharedArrayBuffer,
  compute: Compute,
  onEnd: (outcome: Outcome, message: string) => void,
): RunMember {
  const owners = new Map<number, number>();
  for (let server = 0; server < servers.length; server++)
    for (const chunk of shardChunks(layout, servers.length, server)) owners.set(chunk, server);
  const chunks = layout.chunks.map(({ index, offset, length }) => ({
    ...{ index, byteOffset: offset * 4, byteLength: length * 4, server: owners.get(index)! },
  }));
  if (spec.strategy.mode !== 'sync')
    return new TokenMember({ id, attempt, servers: servers.length, chunks, store: new Uint8Array(parameters), compute, onEnd });
  const bytes = layout.totalLength * 4;
  const { totalRounds } = createSchedule({
    ...{ examples: datasetInfo(spec.dataset).trainExamples, globalBatch: spec.globalBatch },
    ...{ dropRemainder: spec.dropRemainder, length: spec.length },
  });
  return new Member({
    ...{ id, attempt, servers: servers.length, totalRounds, chunks, compute, onEnd, now: () => performance.now() },
    store: { bytes: (generation) => new Uint8Array(parameters, (generation & 1) * bytes, bytes) },
  });
}
