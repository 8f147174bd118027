/** The SeatLoop of @paceline/hosting with a queue of BullMQ, and sessions with a compute thread. */
import { hostname } from 'node:os';
import type { EngineDevice } from '@paceline/engine';
import { collectGarbage } from '@paceline/engine/planning';
import { processClock } from '@paceline/exchange';
import { redisControlPlane, type StepTaskJob } from '@paceline/control-plane';
import { SeatLoop, threadOf, TraceWatch, type SeatEnd, type SeatLoopOptions, type SeatQueue } from '@paceline/hosting';
import type { Redis } from 'ioredis';
import { EngineChooser, type MeasuredChoice } from './engine-choice.js';
import { ownBytes, ProcessMemory } from './process-memory.js';
import { Recycling } from './recycling.js';
import { startSession, type RunSession, type RunSessionOptions } from './run-session.js';

/** The step that the compute thread is in may take longer: then the trace comes without it. */
const TRACE_DEADLINE_MS = 2_000;
/** For the last word of a coordinator that lives. */
const LEAVE_GONE_MS = 1_000;
/** Refusals after which another engine of this worker is tried. */
const ENGINE_CODES: readonly string[] = ['FINGERPRINT_MISMATCH', 'ENGINE_UNAVAILABLE'];

export interface WorkerSeatsOptions extends RunSessionOptions {
  readonly redis: Redis;
  readonly queue: SeatQueue;
  /** It holds a shard of a run: the process must not end between two seats. */
  readonly isHosting: () => boolean;
  /** The process holds memory that only its end gives back. */
  readonly onOutgrown: () => void;
}

export class WorkerSeats {
  private readonly loop: SeatLoop<RunSession>;
  /** For the present job, the fastest first. */
  private choices: readonly MeasuredChoice[] = [];
  readonly engines: EngineChooser;
  private readonly recycling: Recycling;
  private readonly memory: ProcessMemory;
  /** Whether the engine of the present or last seat has leaked. */
  private hasLeaked = false;
  private trace: TraceWatch | undefined;
  /** Engine fingerprint of the present or last session; null before the first. */
  fingerprint: string | null = null;
  devices: readonly EngineDevice[] = [];

  constructor(private readonly options: WorkerSeatsOptions) {
    const { redis, queue, workerId, log, leakLimits, rowsSettings } = options;
    this.engines = new EngineChooser({ log, rowsSettings });
    this.recycling = new Recycling({ redis, workerId, log });
    this.memory = new ProcessMemory({
      ownBytes,
      collect: collectGarbage,
      // Half the limit: a leak is only reported once it has reached the whole limit.
      limitBytes: leakLimits.rssBytes / 2,
    });
    this.loop = new SeatLoop<RunSession>({
      queue,
      controlPlane: redisControlPlane(redis),
      workerId,
      clock: processClock,
      start: (job, tries) => this.begin(job, tries),
      triesAgain: (job, end, tries) => this.triesAgain(job, end, tries),
      told: (...args) => this.tell(...args),
    });
  }

  /** The run that this worker is in. */
  get runId(): string | null {
    return this.loop.present?.job.runId ?? null;
  }

  /** The servers of its run are gone. */
  leaveRun({ runId, attempt }: Pick<StepTaskJob, 'runId' | 'attempt'>, reason: string): void {
    const { present } = this.loop;
    if (present?.job.runId === runId && present.job.attempt === attempt) present.leave(reason, LEAVE_GONE_MS);
  }

  start(): void {
    this.loop.start();
    this.trace = this.watchTraces();
  }

  async stop(): Promise<void> {
    this.trace?.stop();
    await this.loop.stop();
  }

  private watchTraces(): TraceWatch {
    const { redis, workerId, log } = this.options;
    let traced: RunSession | undefined;
    return new TraceWatch({
      controlPlane: redisControlPlane(redis),
      clock: processClock,
      wallMs: Date.now,
      process: { role: 'worker', id: workerId, host: hostname(), pid: process.pid },
      runs: () => (this.loop.present ? [this.loop.present.job] : []),
      owner: () => undefined, // it has one run at a time
      failed: (error) => log.debug({ err: error }, 'a trace could not be looked for, or reported'),
      others: {
        start: () => (traced = this.loop.present)?.compute.startTrace(),
        stop: async () => {
          const recorded = (await traced?.compute.stopTrace(TRACE_DEADLINE_MS)) ?? [];
          return recorded.map(({ name, recording }) => threadOf(name, recording));
        },
      },
    });
  }

  private async begin(job: StepTaskJob, tries: number): Promise<RunSession> {
    if (tries === 0) this.choices = await this.engines.choose(job);
    const choice = this.choices[tries];
    if (!choice) throw new Error('there is no engine to choose from');
    this.hasLeaked = false;
    const session = await startSession(job, choice, this.options, (leak) => {
      this.hasLeaked = true;
      this.recycling.thread(job, leak);
    });
    this.memory.engineStarted(choice.backend);
    this.fingerprint = session.compute.fingerprint;
    this.devices = session.compute.devices;
    return session;
  }

  /** The run may be pinned to another engine than the fastest here, or that one may not start: then the next. */
  private triesAgain({ runId: run }: StepTaskJob, end: SeatEnd, tries: number): boolean {
    const isOfEngine = end.kind === 'given-up' && ENGINE_CODES.includes(end.code);
    if (!isOfEngine || tries >= this.choices.length - 1) return false;
    this.options.log.info({ run, backend: this.choices[tries]!.backend, end }, 'this engine does not go with the run; trying the next');
    return true;
  }

  private tell(...[what, job, { end, error }]: Parameters<SeatLoopOptions<RunSession>['told']>): void {
    const { log } = this.options;
    const { runId: run, attempt, seat, incarnation } = job;
    if (what === 'left') this.leaveProcess(job);
    if (what === 'taken') log.info({ run, attempt, seat, incarnation }, 'step task taken');
    else if (what === 'left') log.info({ run, seat, end }, 'seat left');
    else if (what === 'unreported') log.warn({ err: error, run, seat, end }, 'the end of a seat could not be reported');
    else log.debug({ err: error, run }, 'the queue cannot be seen; the session goes on');
  }

  /** Between two seats nothing is lost when the process ends. */
  private leaveProcess(job: StepTaskJob): void {
    if (this.options.isHosting()) return;
    const outgrownBytes = this.memory.outgrownBytes(this.hasLeaked);
    if (outgrownBytes === undefined) return;
    this.recycling.process(job, outgrownBytes);
    this.options.onOutgrown();
  }
}
