/**
 * Servers and workers by their messages: they take real jobs from the real queues and send real reports, as apps/ps and apps/worker do,
 * but when and what is up to the test.
 */
import { randomBytes } from 'node:crypto';
import { createServer, type AddressInfo } from 'node:net';
import {
  ackFieldName,
  ackValue,
  connectRedis,
  controlKey,
  ManualQueue,
  PLACEMENT_QUEUE,
  placementJobSchema,
  reportKey,
  sendReport,
  STEP_TASK_QUEUE,
  stepTaskJobSchema,
  type CheckpointRecord,
  type CoordinatorState,
  type FleetMember,
  type HeldJob,
  type JournalEntry,
  type PlacementJob,
  type Report,
  type StepTaskJob,
} from '@paceline/control-plane';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import type { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { ControlPlane, createRun, TOKEN_SECRET, until, untilStatus } from './services.js';

type Unnumbered = JournalEntry extends infer E ? (E extends JournalEntry ? Omit<E, 'sequence' | 'atMs'> : never) : never;

/** A checkpoint as a coordinator's journal tells of it. */
export const checkpointWritten = (attempt: number, round: number, changes: Partial<CheckpointRecord> = {}) => ({
  kind: 'event' as const,
  type: 'checkpoint.written' as const,
  message: `checkpoint of round ${round}`,
  data: { attempt, round, bytes: 1000, sha256: 'cd'.repeat(32), loss: 1 / (1 + round), reason: 'cadence', ...changes },
});

/** A pause as a coordinator's journal tells of it. */
export const paused = (round: number) => ({
  kind: 'event' as const,
  type: 'run.paused' as const,
  message: `paused in round ${round}`,
  data: { round },
});

/**
 * For files whose tests would meet each other's servers and jobs: each test finds the control plane as if it had just been
 * installed, with a fleet that nobody belongs to yet. `take` is told both before each test.
 */
export function onAFreshPlane(take: (given: { plane: ControlPlane; fleet: ScriptedFleet }) => void): void {
  let plane: ControlPlane | undefined;
  let fleet: ScriptedFleet | undefined;
  const begin = async (): Promise<void> => {
    fleet = await new ScriptedFleet(plane!.redis.url).ready();
    take({ plane: plane!, fleet });
  };
  beforeAll(async () => {
    plane = await ControlPlane.start();
    await begin();
  });
  afterEach(async () => {
    await fleet?.stop();
    await plane!.reset();
    await begin();
  });
  afterAll(async () => {
    await fleet?.stop();
    await plane?.stop();
  });
}

/** As of a coordinator: libs/hosting/src/server/journal-publisher.ts. */
const RESEND_AFTER_MS = 3_000;

type Beat = ReturnType<ScriptedFleet['beat']>;
interface ClaimOptions {
  readonly port?: number;
  /** Storage of the servers, by index. */
  readonly storage?: readonly string[];
}

/** A run that trains on a server and a worker of its own. */
export interface Training {
  readonly id: string;
  readonly coordinator: Coordinator;
  readonly server: Beat;
  readonly worker: Beat;
}

export class ScriptedFleet {
  readonly redis: Redis;
  readonly placements: ManualQueue<PlacementJob>;
  readonly stepTasks: ManualQueue<StepTaskJob>;
  private readonly timers: NodeJS.Timeout[] = [];
  /** Scripted servers are there as long as somebody listens at their port: all share this one. */
  private readonly door = createServer((socket) => socket.destroy());

  constructor(readonly redisUrl: string) {
    this.redis = connectRedis(redisUrl, 'scripted-fleet');
    this.placements = new ManualQueue(PLACEMENT_QUEUE, placementJobSchema, redisUrl, 'scripted-server');
    this.stepTasks = new ManualQueue(STEP_TASK_QUEUE, stepTaskJobSchema, redisUrl, 'scripted-worker');
  }

  async ready(): Promise<this> {
    await until('Redis', () => this.redis.status === 'ready');
    if (!this.door.listening) await new Promise<void>((resolve) => this.door.listen(0, '127.0.0.1', resolve));
    return this;
  }

  get port(): number {
    return (this.door.address() as AddressInfo).port;
  }

  report(report: Report): Promise<void> {
    return sendReport(this.redis, report, (signed) => reportKey(TOKEN_SECRET, signed));
  }

  member(role: 'worker' | 'server', id: string, changes: Partial<FleetMember> = {}): FleetMember {
    return {
      id,
      host: 'test-host',
      pid: 4242,
      protocolVersion: PROTOCOL_VERSION,
      version: '0.1.0',
      startedAtMs: Date.now() - 1000,
      fingerprint: role === 'worker' ? 'test engine' : null,
      rssBytes: 3e9,
      runId: null,
      ...changes,
    };
  }

  /** Beats once a second until the returned function is called. */
  beat(
    role: 'worker' | 'server',
    id = `${role}-${randomBytes(3).toString('hex')}`,
    changes: Partial<FleetMember> = {},
  ): { id: string; stop: () => void } {
    const send = (): void => void this.report({ kind: 'heartbeat', role, member: this.member(role, id, changes) }).catch(() => undefined);
    send();
    const timer = setInterval(send, 1_000);
    this.timers.push(timer);
    return { id, stop: () => clearInterval(timer) };
  }

  async takePlacement(deadlineMs?: number): Promise<HeldJob<PlacementJob>> {
    return until('a placement job', () => this.placements.take().catch(() => undefined), deadlineMs);
  }

  async takeStepTask(deadlineMs?: number): Promise<HeldJob<StepTaskJob>> {
    return until('a step task', () => this.stepTasks.take().catch(() => undefined), deadlineMs);
  }

  /** A field of the control hash of a run. */
  control(runId: string, field: string): Promise<string | null> {
    return this.redis.hget(controlKey(runId), field);
  }

  /** Makes a run and has it train until it is RUNNING. */
  async training(plane: ControlPlane, spec: object = {}, options?: ClaimOptions): Promise<Training> {
    const [server, worker] = [this.beat('server'), this.beat('worker')];
    const id = await createRun(plane.admin, spec);
    const coordinator = await this.claim(id, [server.id], options);
    await coordinator.train(worker.id, (await this.takeStepTask()).payload);
    const read = async (): Promise<unknown> =>
      (await plane.admin.gql('query($id: ID!) { run(id: $id) { status statusReason } }', { id })).data.run;
    await untilStatus(read, 'RUNNING');
    return { id, coordinator, server, worker };
  }

  /** Takes every placement of a run, as servers `ids`, and waits for the start. */
  async claim(runId: string, ids: readonly string[], options?: ClaimOptions): Promise<Coordinator> {
    const attempt = await this.claimPlaces(runId, ids, options);
    const isStarted = async () => (JSON.parse((await this.control(runId, 'start')) ?? '{}') as { attempt?: number }).attempt === attempt;
    await until('the start', isStarted);
    const coordinator = new Coordinator(this, runId, attempt);
    this.timers.push(coordinator.beating);
    return coordinator;
  }

  /** @returns the attempt */
  async claimPlaces(runId: string, ids: readonly string[], { port = this.port, storage }: ClaimOptions = {}): Promise<number> {
    let attempt = 1;
    for (const serverId of ids) {
      // A run of an earlier test, whose coordinator has fallen silent meanwhile, may be placed anew: nobody takes that.
      const held = await until(`a placement of run ${runId}`, async () => {
        const job = await this.takePlacement();
        return job.payload.runId === runId && job;
      });
      const { index } = held.payload;
      attempt = held.payload.attempt;
      await this.report({
        kind: 'server.claimed',
        runId,
        attempt,
        address: { index, serverId, host: '127.0.0.1', port, unixPath: null },
        ...(storage ? { storage: storage[index]! } : {}),
      });
      await held.complete('claimed');
    }
    return attempt;
  }

  async stop(): Promise<void> {
    for (const timer of this.timers) clearInterval(timer);
    this.door.close();
    await this.placements.close();
    await this.stepTasks.close();
    this.redis.disconnect();
  }
}

/** A coordinator's journal: numbers entries and sends them with its state. */
export class Coordinator {
  sequence = 0;
  /** What was sent last that wants an acknowledgement, and when. */
  private last: Extract<Report, { kind: 'journal' }> | undefined;
  private sentAtMs = 0;
  /** A coordinator reports every second, whatever happens. */
  readonly beating = setInterval(() => void this.send([]).catch(() => undefined), 1_000);
  state: CoordinatorState = {
    phase: 'waiting',
    round: 0,
    totalRounds: 1175,
    view: 1,
    seats: [],
    refusedFrames: 0,
    refusedConnections: 0,
    waitingFor: null,
  };

  constructor(
    private readonly fleet: ScriptedFleet,
    readonly runId: string,
    readonly attempt: number,
    readonly term = 1,
  ) {}

  /** Nothing is heard of it any more. */
  fallSilent(): void {
    clearInterval(this.beating);
  }

  /**
   * Waits until the api has stored everything that was numbered; or, of an attempt that is over for it, has dropped it. As a coordinator does, it sends
   * again what nobody has acknowledged for a while: on a busy machine the api stores a report and then waits for Redis in vain.
   */
  acknowledged(areDropped?: true): Promise<unknown> {
    const { fleet, runId, attempt, sequence } = this;
    const value = ackValue({ sequence, areDropped }, this.term);
    return until(`the acknowledgement of ${sequence}`, async () => {
      if ((await fleet.control(runId, ackFieldName(attempt))) === value) return true;
      if (this.last && performance.now() - this.sentAtMs > RESEND_AFTER_MS) await this.report(this.last);
      return false;
    });
  }

  number(entries: readonly Unnumbered[]): JournalEntry[] {
    return entries.map((entry) => ({ ...entry, sequence: ++this.sequence, atMs: Date.now() }) as JournalEntry);
  }

  async send(entries: readonly JournalEntry[], options: { after?: number; attempt?: number } = {}): Promise<void> {
    const { after, attempt = this.attempt } = options;
    const { runId, state, term } = this;
    const report = { kind: 'journal' as const, runId, attempt, entries: [...entries], state, term };
    await this.report(after === undefined ? report : { ...report, after });
  }

  private async report(report: Extract<Report, { kind: 'journal' }>): Promise<void> {
    if (report.entries.length > 0) [this.last, this.sentAtMs] = [report, performance.now()];
    await this.fleet.report(report);
  }

  async publish(entries: readonly Unnumbered[] = [], state: Partial<CoordinatorState> = {}): Promise<JournalEntry[]> {
    Object.assign(this.state, state);
    const numbered = this.number(entries);
    await this.send(numbered);
    return numbered;
  }

  /** Rounds [from, to] as the coordinator would commit them, 256 examples each. */
  rounds(from: number, to: number): Unnumbered[] {
    return Array.from({ length: to - from + 1 }, (_, i) => from + i).flatMap((round): Unnumbered[] => [
      { kind: 'ledger', fromRound: round, toRound: round, examples: 256 },
      {
        kind: 'metric',
        round,
        rounds: 1,
        epoch: Math.floor(round / 235),
        values: { loss: 2 / (1 + round), accuracy: 0.5 },
        examples: 256,
        examplesPerSecond: 9_000,
        roundMs: 28,
      },
    ]);
  }

  seat(
    workerId: string,
    { seat, incarnation }: { seat: number; incarnation: number },
    replicas: number[] = [0, 1, 2, 3],
  ): Promise<unknown> {
    return this.publish([], { seats: [...this.state.seats, { seat, incarnation, workerId, replicas }] });
  }

  async train(workerId: string, task: { seat: number; incarnation: number }): Promise<void> {
    await this.seat(workerId, task);
    await this.publish([{ kind: 'event', type: 'training.started', message: 'training started', data: {} }], { phase: 'training' });
  }

  finish(changes: object = {}): Promise<unknown> {
    const data = {
      rounds: 1175,
      values: { loss: 0.08, accuracy: 0.975 },
      examplesPerSecond: 9_000,
      trainedExamples: 300_000,
      weightsSha256: 'ab'.repeat(32),
      weightsFile: null,
      trainingMs: 33_000,
      ...changes,
    };
    this.fallSilent();
    return this.publish([{ kind: 'event', type: 'run.finished', message: 'finished after 1175 rounds', data }], {
      phase: 'finished',
      seats: [],
      round: 1175,
    });
  }

  event(message: string): Unnumbered {
    return { kind: 'event', type: 'view.changed', message, data: {} };
  }
}
