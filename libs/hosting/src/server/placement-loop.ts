/**
 * Claims placements (docs/protocol.md §19): a short job each, not a lock held for a run.
 *
 *   take job → allocate the shard → complete the job → report `server.claimed` with the address, `loading` while the checkpoint is
 *   read, again and again (the report may be lost on its way) until `start` is in the run's control hash (all servers claimed) → connect to the coordinator.
 *
 * A placement whose `start` or `claims` name another server is dropped without a word, so is one of an attempt that is over; where
 * `start` never comes, the attempt has failed. An attempt that has ended here is not begun again by a job that comes twice.
 * A part that does not fit beside those that are held waits for another server, or for room here; one that is alone is always taken.
 */
import type { CancelTimer } from '@paceline/exchange';
import {
  claimantOf,
  isAttemptOver,
  jobNameOf,
  LOADING_AT_MOST_MS,
  openIncarnationOf,
  PLACES_PER_SERVER,
  serverAddressSchema,
  type HeldJob,
  type JobQueue,
  type PlacementJob,
  type ServerAddress,
} from '@paceline/control-plane';
import { LIMITS } from '@paceline/spec';
import { StorageError } from '@paceline/storage';
import { z } from 'zod';
import { reportFailed, type ServerContext } from './server-context.js';
import { UncollectedJournals, type UncollectedJournal } from './uncollected-journals.js';

const PERIOD_MS = 100;
/** Longer than the period of any other server that may take it. */
const PAUSE_AFTER_GIVING_BACK_MS = 500;
/** Each costs two calls to Redis, and is hidden from others for as long: a server that passes by many looks less often. */
const PAUSE_PER_GIVEN_BACK_MS = 10;
/** Placements that one look passes by, at most: those of two runs with as many servers as a run may have, and a standby of each. */
const MAX_GIVEN_BACK = 4 * LIMITS.servers;
const START_POLL_MS = 100;
/** All others wait for it. */
const LOADED_POLL_MS = 25;
/** The control plane replaces whoever does not load; this is for a server that it does not know of any more. */
const START_DEADLINE_MS = 2 * LOADING_AT_MOST_MS;
const CLAIM_EVERY_MS = 2_000;
/** Attempts remembered, so that a job that comes twice does not begin one twice. */
const MAX_BEGUN = 1_000;
/** A process that ends gives its runs this long for a last checkpoint. */
const RUN_SHUTDOWN_MS = 3_200;

interface Readiness {
  readonly servers?: readonly ServerAddress[];
  readonly standbys?: readonly ServerAddress[];
  /** Nothing of the attempt goes on. */
  readonly isOver?: boolean;
  readonly claimant?: string | undefined;
  /** The placement was made again, and nobody has claimed it since. */
  readonly asked?: number | undefined;
}

/** The field `start` of the control hash. */
export const startSchema = z.object({
  attempt: z.int(),
  servers: z.array(serverAddressSchema).min(1),
  standbys: z.array(serverAddressSchema).optional(),
});

/** A run's part on this server, as the loop needs it. */
export interface PlacedRun {
  readonly job: PlacementJob;
  readonly isOver: boolean;
  /** @throws StorageError when its checkpoint cannot be used */
  prepare(): Promise<void>;
  start(servers: readonly ServerAddress[], standbys: readonly ServerAddress[]): void;
  stop(why: string): void;
  drop(): void;
  shutdown(why: string, deadlineMs: number): Promise<void>;
  flush(): Promise<void>;
}

export interface PlacementLoopOptions<R extends PlacedRun> {
  readonly queue: JobQueue<PlacementJob>;
  readonly context: Pick<ServerContext, 'serverId' | 'clock' | 'controlPlane' | 'checkpoints' | 'log' | 'stopDeadlineMs'>;
  readonly address: Omit<ServerAddress, 'index'>;
  /** Bytes that a part needs, and that all parts together may use. Left out: nothing is too much. */
  readonly memory?: { readonly bytes: number; needs(job: PlacementJob): number } | undefined;
  /** @param onGone to be called once, when nothing of the run is left here but the journal that is given, if one is */
  createRun(job: PlacementJob, onGone: (run: R, uncollected?: UncollectedJournal) => void): R;
}

export class PlacementLoop<R extends PlacedRun> {
  readonly runs = new Map<string, R>();
  /** Highest attempt of a run that began here, over or not. */
  private readonly begun = new Map<string, number>();
  /** Incarnation of the placement by which a part is held; a part that no job has asked for has none. */
  private readonly incarnations = new WeakMap<R, number>();
  private readonly uncollected: UncollectedJournals;
  private cancelTimer: CancelTimer | undefined;
  /** The placement that was declined last; it comes back every half second, and is told of once. */
  private declined: string | undefined;
  private stopped = false;

  private readonly queue: JobQueue<PlacementJob>;
  private readonly context: PlacementLoopOptions<R>['context'];
  private readonly address: Omit<ServerAddress, 'index'>;

  constructor(private readonly options: PlacementLoopOptions<R>) {
    ({ queue: this.queue, context: this.context, address: this.address } = options);
    this.uncollected = new UncollectedJournals(options.context);
  }

  start(): void {
    this.next(0);
  }

  async stop(why: string): Promise<void> {
    this.stopped = true;
    this.cancelTimer?.();
    const runs = [...this.runs.values()];
    const ended = runs.map(async (run) => {
      await run.shutdown(why, this.context.stopDeadlineMs ?? RUN_SHUTDOWN_MS);
      await run.flush();
    });
    await Promise.all([this.queue.close(), this.uncollected.flush(), ...ended]);
  }

  private async period(): Promise<void> {
    let pauseMs = PERIOD_MS;
    try {
      const passed = this.runs.size < PLACES_PER_SERVER ? await this.claimNext() : 0;
      if (passed > 0) pauseMs = Math.max(PAUSE_AFTER_GIVING_BACK_MS, passed * PAUSE_PER_GIVEN_BACK_MS);
    } catch (error) {
      // Redis is away; placements wait for it as everybody else does.
      this.context.log.debug({ err: error as Error }, 'no placement could be taken');
    }
    if (!this.stopped) this.next(pauseMs);
  }

  private next(ms: number): void {
    this.cancelTimer = this.context.clock.after(ms, () => void this.period());
  }

  /** The first that this server can take; those before it wait again. @returns how many were given back */
  private async claimNext(): Promise<number> {
    const others: HeldJob<PlacementJob>[] = [];
    try {
      while (others.length <= MAX_GIVEN_BACK) {
        const held = await this.queue.take();
        if (!held) break;
        if (this.holdsAnother(held.payload) || this.declines(held)) others.push(held);
        else {
          await this.settle(held);
          break;
        }
      }
    } finally {
      // Each comes before those that wait, so the first is the last to go back.
      for (const held of others.reverse()) await held.giveBack();
    }
    return others.length;
  }

  /** One process holds one shard of a run. Another server must take this job; it can while this one pauses polling. */
  private holdsAnother({ runId, attempt, index, role }: PlacementJob): boolean {
    const present = this.runs.get(runId);
    if (!present || present.isOver || present.job.attempt !== attempt) return false;
    return present.job.index !== index || present.job.role !== role;
  }

  /** Whether the part does not fit beside those of other runs. What its own run has here of an attempt before is let go when it is taken. */
  private declines({ id, payload }: HeldJob<PlacementJob>): boolean {
    const { memory } = this.options;
    const others = [...this.runs.values()].filter(({ job }) => job.runId !== payload.runId);
    if (!memory || others.length === 0 || this.runs.get(payload.runId)?.job.attempt === payload.attempt) return false;
    const [needed, held] = [memory.needs(payload), others.reduce((sum, { job }) => sum + memory.needs(job), 0)];
    if (held + needed <= memory.bytes) return false;
    if (this.declined !== id)
      this.context.log.info(
        { run: payload.runId, index: payload.index, neededBytes: needed, heldBytes: held, memoryBytes: memory.bytes, runs: others.length },
        'a placement does not fit beside the runs that are here and waits for another server, or for room',
      );
    this.declined = id;
    return true;
  }

  /** A job that is neither completed nor given back would be held by nobody until its lock ends. */
  private async settle(held: HeldJob<PlacementJob>): Promise<void> {
    try {
      await held.complete(this.claim(held));
    } catch (error) {
      this.context.log.error({ err: error as Error, run: held.payload.runId }, 'a placement could not be taken and waits again');
      await held.giveBack();
    }
  }

  /** @returns what became of the job */
  private claim(held: HeldJob<PlacementJob>): string {
    const job = held.payload;
    const incarnation = jobNameOf(held.id)?.incarnation;
    const present = this.runs.get(job.runId);
    if (present && present.job.attempt === job.attempt && !present.isOver) {
      if (incarnation !== undefined) this.incarnations.set(present, Math.max(incarnation, this.incarnations.get(present) ?? 0));
      return 'claimed already';
    }
    if (Math.max(present?.job.attempt ?? 0, (this.begun.get(job.runId) ?? -1) + 1) > job.attempt) return 'stale attempt';
    present?.stop(`attempt ${job.attempt} has begun`);
    try {
      const run = this.options.createRun(job, (gone, uncollected) => this.forget(gone, uncollected));
      this.runs.delete(job.runId); // the newest last
      this.runs.set(job.runId, run);
      if (incarnation !== undefined) this.incarnations.set(run, incarnation);
      this.context.log.info({ run: job.runId, attempt: job.attempt, index: job.index }, 'placement claimed');
      void this.prepare(run);
    } catch (error) {
      this.context.log.error({ err: error as Error, run: job.runId }, 'a placement failed');
      reportFailed(this.context, job, (error as Error).name, (error as Error).message);
    }
    return 'claimed';
  }

  private async prepare(run: R): Promise<void> {
    const loaded = { since: undefined as number | undefined };
    try {
      await Promise.all([run.prepare().then(() => (loaded.since = this.context.clock.now())), this.waitForStart(run, loaded)]);
    } catch (error) {
      if (run.isOver) return; // it was dropped while it loaded
      const code = error instanceof StorageError ? error.code : (error as Error).name;
      this.context.log.error({ err: error as Error, run: run.job.runId, restore: run.job.restore }, 'a placement failed');
      reportFailed(this.context, run.job, code, (error as Error).message);
      return this.drop(run, code);
    }
  }

  /** @param loaded since when it has what it begins with */
  private async waitForStart(run: R, loaded: { readonly since: number | undefined }): Promise<void> {
    const { runId, attempt, index, role = 'primary' } = run.job;
    const { clock, checkpoints, controlPlane } = this.context;
    const storage = await checkpoints.store.identity();
    let nextClaimMs = -Infinity;
    let saidLoaded = false;
    while (!this.stopped && !run.isOver && this.runs.get(runId) === run) {
      const { servers, standbys = [], isOver, claimant, asked } = await this.readStart(run);
      const isLoaded = loaded.since !== undefined;
      // A coordinator that was started says itself that it is cancelled: somebody waits for its word.
      const isAwaited = servers !== undefined && index === 0 && role === 'primary';
      if (isOver && !isAwaited) return this.drop(run, 'the attempt is over');
      if (claimant !== undefined && claimant !== this.context.serverId) return this.drop(run, `server ${index} was placed on ${claimant}`);
      if (servers) {
        const own = (role === 'standby' ? standbys : servers).find((server) => server.index === index);
        if (own?.serverId !== this.context.serverId) return this.drop(run, `server ${index} was placed on ${own?.serverId ?? 'nobody'}`);
        if (isLoaded) return this.startRun(run, servers, standbys);
      }
      if (loaded.since !== undefined && clock.now() - loaded.since > START_DEADLINE_MS) {
        reportFailed(
          this.context,
          run.job,
          'NOT_STARTED',
          `the other servers were not placed within ${START_DEADLINE_MS / 60_000} minutes`,
        );
        return this.drop(run, 'it was not started');
      }
      if (asked !== undefined) {
        this.incarnations.set(run, asked);
        nextClaimMs = -Infinity;
      }
      if (clock.now() > nextClaimMs || isLoaded !== saidLoaded) {
        nextClaimMs = clock.now() + CLAIM_EVERY_MS;
        saidLoaded = isLoaded;
        const address = { index, ...this.address };
        const incarnation = this.incarnations.get(run);
        const claim = {
          kind: 'server.claimed',
          runId,
          attempt,
          role,
          ...(incarnation === undefined ? {} : { incarnation }),
          address,
          storage,
          ...(isLoaded ? {} : { loading: true }),
        } as const;
        await controlPlane
          .sendReport(claim)
          .catch((error: Error) => this.context.log.debug({ err: error, run: runId }, 'a claim could not be reported'));
      }
      await new Promise<void>((resolve) => clock.after(isLoaded ? START_POLL_MS : LOADED_POLL_MS, resolve));
    }
  }

  private drop(run: R, why: string): void {
    this.context.log.info({ run: run.job.runId, index: run.job.index, why }, 'placement dropped');
    run.drop();
  }

  private async readStart(run: R): Promise<Readiness> {
    try {
      const { runId, attempt, index, role = 'primary' } = run.job;
      const control = await this.context.controlPlane.readControl(runId);
      const { start, claims } = control;
      const parsed = start ? startSchema.safeParse(JSON.parse(start)) : undefined;
      const incarnation = this.incarnations.get(run);
      const part = { attempt, index, role, incarnation: incarnation ?? 0 };
      return {
        isOver: isAttemptOver(control, attempt),
        claimant: claimantOf(claims, part),
        // A claim without an incarnation counts in any case.
        asked: incarnation === undefined ? undefined : openIncarnationOf(claims, part),
        ...(parsed?.success && parsed.data.attempt === attempt
          ? { servers: parsed.data.servers, standbys: parsed.data.standbys ?? [] }
          : {}),
      };
    } catch {
      return {}; // Redis is away: asked again until the deadline
    }
  }

  private startRun(run: R, servers: readonly ServerAddress[], standbys: readonly ServerAddress[]): void {
    const { runId, attempt } = run.job;
    this.begun.delete(runId); // the newest last
    this.begun.set(runId, attempt);
    if (this.begun.size > MAX_BEGUN) this.begun.delete(this.begun.keys().next().value!);
    try {
      run.start(servers, standbys);
    } catch (error) {
      reportFailed(this.context, run.job, (error as Error).name, (error as Error).message);
      run.stop((error as Error).message);
    }
  }

  private forget(run: R, uncollected?: UncollectedJournal): void {
    if (uncollected) this.uncollected.keep(uncollected);
    if (this.runs.get(run.job.runId) === run) this.runs.delete(run.job.runId);
    this.context.log.info({ run: run.job.runId, attempt: run.job.attempt }, 'run left this server');
  }
}
