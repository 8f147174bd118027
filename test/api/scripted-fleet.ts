/**
 * Servers and workers by their messages: they take real jobs from the real queues and send real reports, as apps/ps and apps/worker do,
 * but when and what is up to the test.
 */
import { randomBytes } from 'node:crypto';
import { createServer, type AddressInfo } from 'node:net';
import {
  connectRedis,
  HandQueue,
  PLACEMENT_QUEUE,
  placementJobSchema,
  redisControlPlane,
  sendReport,
  STEP_TASK_QUEUE,
  stepTaskJobSchema,
  type CoordinatorState,
  type FleetMember,
  type HeldJob,
  type JournalEntry,
  type PlacementJob,
  type Report,
  type StepTaskJob,
} from '@paceline/jobs';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import type { Redis } from 'ioredis';
import { until } from './services.js';

type Unnumbered = JournalEntry extends infer E ? (E extends JournalEntry ? Omit<E, 'n' | 'atMs'> : never) : never;

export class ScriptedFleet {
  readonly redis: Redis;
  readonly placements: HandQueue<PlacementJob>;
  readonly stepTasks: HandQueue<StepTaskJob>;
  private readonly timers: NodeJS.Timeout[] = [];
  /** Scripted servers are there as long as somebody listens at their port: all share this one. */
  private readonly door = createServer((socket) => socket.destroy());

  constructor(readonly redisUrl: string) {
    this.redis = connectRedis(redisUrl, 'scripted-fleet');
    this.placements = new HandQueue(PLACEMENT_QUEUE, placementJobSchema, redisUrl, 'scripted-server');
    this.stepTasks = new HandQueue(STEP_TASK_QUEUE, stepTaskJobSchema, redisUrl, 'scripted-worker');
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
    return sendReport(this.redis, report);
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

  async takePlacement(deadlineMs = 10_000): Promise<HeldJob<PlacementJob>> {
    return until('a placement job', () => this.placements.take().catch(() => undefined), deadlineMs);
  }

  async takeStepTask(deadlineMs = 10_000): Promise<HeldJob<StepTaskJob>> {
    return until('a step task', () => this.stepTasks.take().catch(() => undefined), deadlineMs);
  }

  /** Takes every placement of a run, as servers `ids`, and waits for the start. */
  async claim(
    runId: string,
    ids: readonly string[],
    { port = this.port, storage }: { port?: number; storage?: readonly string[] } = {},
  ): Promise<Coordinator> {
    let attempt = 1;
    for (const serverId of ids) {
      const held = await this.takePlacement();
      if (held.payload.runId !== runId) throw new Error(`took a placement of run ${held.payload.runId}`);
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
    const isStarted = async () =>
      (JSON.parse((await redisControlPlane(this.redis).readControl(runId)).start ?? '{}') as { attempt?: number }).attempt === attempt;
    await until('the start', isStarted);
    const coordinator = new Coordinator(this, runId, attempt);
    this.timers.push(coordinator.beating);
    return coordinator;
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
  n = 0;
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

  number(entries: readonly Unnumbered[]): JournalEntry[] {
    return entries.map((entry) => ({ ...entry, n: ++this.n, atMs: Date.now() }) as JournalEntry);
  }

  async send(entries: readonly JournalEntry[], options: { after?: number; attempt?: number } = {}): Promise<void> {
    const { after, attempt = this.attempt } = options;
    await this.fleet.report({
      kind: 'journal',
      runId: this.runId,
      attempt,
      entries: [...entries],
      state: this.state,
      term: this.term,
      ...(after === undefined ? {} : { after }),
    });
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
        loss: 2 / (1 + round),
        accuracy: 0.5,
        examples: 256,
        examplesPerSecond: 9_000,
        roundMs: 28,
      },
    ]);
  }

  seat(workerId: string, { seat, n }: { seat: number; n: number }, replicas: number[] = [0, 1, 2, 3]): Promise<unknown> {
    return this.publish([], { seats: [...this.state.seats, { seat, n, workerId, replicas }] });
  }

  async train(workerId: string, task: { seat: number; n: number }): Promise<void> {
    await this.seat(workerId, task);
    await this.publish([{ kind: 'event', type: 'training.started', message: 'training started', data: {} }], { phase: 'training' });
  }

  finish(changes: object = {}): Promise<unknown> {
    const data = {
      rounds: 1175,
      loss: 0.08,
      accuracy: 0.975,
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
