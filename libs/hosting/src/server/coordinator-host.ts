/** The coordinator's surroundings on server 0: clock, journal carrier, connections of the other servers, collection of the weights. */
import {
  Journal,
  StallTolerantClock,
  UNMEASURED,
  type CancelTimer,
  type CompletedCheckpoint,
  type Connection,
  type AttemptEnd,
  type Coordinator,
  type CoordinatorOptions,
  type CoordinatorSurroundings,
  type FrameReceiver,
  type Measures,
  type Outcome,
  type PublishedCheckpoint,
  type Succession,
} from '@paceline/exchange';
import type { PlacementJob, RunResult } from '@paceline/control-plane';
import { shardChunks, type Layout, type Schedule } from '@paceline/learning';
import { ProtocolError, checkAttempt, type FrameHeader, type Message } from '@paceline/protocol';
import { allowedLocalUpdates, picksStrategy, type RunSpec } from '@paceline/spec';
import type { CheckpointReader, Manifest } from '@paceline/storage';
import { CheckpointPublisher } from './checkpoint-publisher.js';
import { WeightsCollector } from './collector.js';
import { codecPickerOf } from './codec-picker.js';
import { createCoordinator } from './coordinator-machine.js';
import { JournalPublisher } from './journal-publisher.js';
import { measuresOf } from './run-measures.js';
import type { ServerContext } from './server-context.js';
import type { UncollectedJournal } from './uncollected-journals.js';
import { ServerReceiver } from './receivers.js';
import { examplesOf } from './create-shard.js';
import { parametersName } from './snapshot.js';

const TICK_MS = 100;
/** While nobody answers that could promote a standby, servers and workers are not kept for longer. */
const SAID_WITHIN_MS = 60_000;
const COLLECT_DEADLINE_MS = 60_000;
/** A run that has ended keeps its place this long until the api has stored the end; then only its journal is kept. */
const DRAIN_DEADLINE_MS = 600_000;
/** For the end itself: its report, and the poll that sees it. */
const STOP_SLACK_MS = 200;
/** A checkpoint that is not stored after this long has failed; the run goes on. */
const CHECKPOINT_DEADLINE_MS = 120_000;

/** What a coordinator is told that takes the place of another. */
export interface Successor {
  readonly succession: Succession;
  /** Highest journal number of the coordinator before that is stored. */
  readonly storedSequence: number;
}

const cadenceOf = ({ checkpoint: { everyRounds = 0, everySeconds, final } }: RunSpec): NonNullable<CoordinatorOptions['checkpoints']> => ({
  everyRounds,
  everyMs: everySeconds * 1000,
  final,
  deadlineMs: CHECKPOINT_DEADLINE_MS,
});

/** The run that a coordinator is of: HostedRun. */
export interface CoordinatorOwner {
  /** Runs what may fail for this run alone. */
  guard(act: () => void): void;
  /** The attempt has ended here: calls `sayEnd` when no standby can take the place of this coordinator any more. */
  attemptConcluded(coordinator: CoordinatorHost): void;
  /** The attempt is over, and everybody is told. */
  attemptOver(): void;
}

export class CoordinatorHost implements CoordinatorSurroundings {
  readonly machine: Coordinator;
  readonly journal: Journal;
  private readonly publisher: JournalPublisher;
  private readonly checkpoints: CheckpointPublisher;
  private readonly servers = new Map<number, Connection>();
  private readonly serverOfChunk = new Map<number, number>();
  private collector: WeightsCollector | undefined;
  private readonly paced: StallTolerantClock;
  outcome: Outcome | undefined;
  private untoldEnd: AttemptEnd | undefined;
  private sayByMs = Infinity;
  private cancelTicker: CancelTimer | undefined;
  /** What it does, and what comes, is nobody's any more. */
  private isClosed = false;

  constructor(
    private readonly job: PlacementJob,
    private readonly layout: Layout,
    schedule: Schedule,
    private readonly context: ServerContext,
    private readonly weightsFile: string | null,
    /** The manifest of the checkpoint that the attempt begins with. */
    private readonly parent: Manifest | undefined,
    private readonly owner: CoordinatorOwner,
    successor?: Successor,
  ) {
    const [{ spec, data }, { clock }] = [job, context];
    this.paced = new StallTolerantClock(clock);
    for (let server = 0; server < job.servers; server++)
      for (const chunk of shardChunks(layout, job.servers, server)) this.serverOfChunk.set(chunk, server);
    const nowMs = (): number => context.wallMs();
    const measures = measuresOf(job, schedule, parent);
    const { means } = measures.measured;
    const journal = (this.journal = new Journal({ now: nowMs, means, ...(successor ? { storedSequence: successor.storedSequence } : {}) }));
    this.checkpoints = new CheckpointPublisher({ job, layout, schedule, parent, journal, nowMs, checkpoints: context.checkpoints });
    // What the coordinator before has told stays the newest that the control plane knows, until something of this one is.
    const told = successor?.succession.newest ?? 0;
    if (told > (parent?.round ?? 0)) this.checkpoints.told(told, 0);
    this.machine = createCoordinator(job, layout, {
      attempt: job.attempt,
      firstRound: parent?.round ?? 0,
      ...(parent ? { firstLedger: parent.ledger } : {}),
      checkpoints: cadenceOf(spec),
      ...(successor ? { succession: successor.succession } : {}),
      surroundings: this,
      // For the round, and as long again for its checkpoint.
      ...(context.stopDeadlineMs === undefined ? {} : { shutdownDeadlineMs: (context.stopDeadlineMs - STOP_SLACK_MS) / 2 }),
      replicas: spec.replicas,
      servers: job.servers,
      schedule: {
        totalRounds: schedule.totalRounds,
        examplesIn: (round) => schedule.round(round).count,
        epochOf: (round) => schedule.round(round).epoch,
        replicaExamples: examplesOf(schedule, spec),
      },
      evalExamples: data.evalExamples,
      ...measures,
      journal: this.journal,
      codec: codecPickerOf(job, layout, () => context.clock.now()),
      measuredExchange: picksStrategy(spec)
        ? { denseBytes: 4 * layout.totalLength, servers: job.servers, decidesBeforeCodec: allowedLocalUpdates(spec) !== undefined }
        : undefined,
      now: () => this.paced.now(),
      stepDeadlineMs: spec.stepDeadlineMs,
      fingerprint: job.fingerprint,
      mixedEngines: spec.engine === 'mixed',
    });
    this.publisher = new JournalPublisher({
      controlPlane: context.controlPlane,
      clock,
      runId: job.runId,
      attempt: job.attempt,
      journal: this.journal,
      term: this.machine.numbers().term,
      state: () => this.state(schedule.totalRounds),
      coordinator: this.machine,
      pinned: (pins) => void (this.checkpoints.pins = pins),
    });
  }

  /** The attempt is placed: from here on the api hears of it and deadlines run. */
  begin(): void {
    this.publisher.start();
    const { clock } = this.context;
    this.cancelTicker = clock.every(TICK_MS, () => {
      // What the control plane has stored as the end is one: nobody is promoted after it.
      if (this.publisher.isDrained || clock.now() > this.sayByMs) this.owner.guard(() => this.sayEnd());
      if (this.paced.isDue()) this.owner.guard(() => this.machine.tick());
    });
  }

  /** The attempt has ended as far as this coordinator knows. A standby that was promoted meanwhile goes on with it, and then nobody may hear otherwise. */
  concluded(end: AttemptEnd): void {
    if (this.isClosed) return;
    this.untoldEnd = end;
    this.sayByMs = this.context.clock.now() + SAID_WITHIN_MS;
    void this.publisher.flush(); // the next attempt begins with what this journal says last
    this.owner.attemptConcluded(this);
  }

  over(outcome: Outcome): void {
    this.outcome = outcome;
    this.owner.attemptOver();
  }

  serverBack(index: number): void {
    this.collector?.askAgain(index);
  }

  publishCheckpoint(checkpoint: CompletedCheckpoint): void {
    void this.publish(checkpoint.generation, () => this.checkpoints.publish(checkpoint));
  }

  findCheckpoint(generation: number): void {
    void this.publish(generation, () => this.checkpoints.found(generation));
  }

  collectWeights(values: Measures, generation?: number): void {
    void this.collect(values, generation);
  }

  /** It is over here, and nobody may know yet: a standby could go on with the attempt. */
  get holdsEnd(): boolean {
    return this.untoldEnd !== undefined;
  }

  /** What was held back of the end, if anything was. */
  sayEnd(): void {
    const end = this.untoldEnd;
    this.untoldEnd = undefined;
    end?.say();
  }

  /** Tells servers that the coordinator lives; call it every second. */
  heartbeat(): void {
    this.machine.heartbeat();
  }

  async flush(): Promise<void> {
    await this.publisher.flush();
  }

  /** The attempt never began here, or goes on elsewhere: nobody hears anything of this coordinator any more. @param why to the servers */
  close(why?: ProtocolError): void {
    this.isClosed = true;
    this.untoldEnd = undefined;
    this.cancelTicker?.();
    this.publisher.stop();
    for (const connection of this.servers.values()) connection.close(why);
  }

  /** A server of the attempt (its token is good), in the term in which it leads its shard. @throws ProtocolError */
  admitServer(index: number, connection: Connection, term: number): FrameReceiver {
    this.machine.serverComes(index, term);
    const former = this.servers.get(index);
    if (former?.isOpen && this.job.spec.strategy.standby === 0)
      throw new ProtocolError('SEAT_TAKEN', `server ${index} is connected already`);
    if (former?.isOpen) this.machine.serverLost(index, 'it has come again');
    // Nothing covered the loss: the attempt has ended with it.
    if (this.machine.phase === 'finished') throw new ProtocolError('RUN_OVER');
    this.servers.set(index, connection);
    former?.close();
    const receiver = new ServerReceiver(this, index, connection);
    connection.setReceiver(receiver);
    this.machine.serverJoined(index, connection);
    return receiver;
  }

  /** A chunk of the weights. @throws ProtocolError when nothing was pulled */
  payloadFor(header: FrameHeader): Uint8Array {
    if (!this.collector) throw new ProtocolError('BAD_FRAME', 'nothing was pulled');
    return this.collector.payloadFor(header);
  }

  weights(header: FrameHeader, payload: Uint8Array): void {
    this.collector?.data(header, payload);
  }

  fromServer(index: number, connection: Connection, message: Message, header: FrameHeader): void {
    checkAttempt(header, this.job.attempt);
    if (this.servers.get(index) === connection) this.owner.guard(() => this.machine.serverMessage(index, message));
  }

  serverClosed(index: number, connection: Connection, why: string): void {
    // Its successor may be here already.
    if (this.servers.get(index) !== connection || this.isClosed) return;
    this.owner.guard(() => this.machine.serverLost(index, why));
  }

  /** The attempt is over: goes on publishing until the api has stored the journal, or has not for long, then calls `gone`. */
  drain(gone: (uncollected?: UncollectedJournal) => void): void {
    this.cancelTicker?.();
    const { publisher } = this;
    const { clock } = this.context;
    const { runId, attempt } = this.job;
    const deadline = clock.now() + DRAIN_DEADLINE_MS;
    const cancel = clock.every(TICK_MS, () => {
      if (!publisher.isDrained && clock.now() < deadline) return;
      cancel();
      if (!publisher.isDrained) {
        publisher.detach();
        return gone({ runId, attempt, publisher });
      }
      publisher.stop();
      void this.sweepAtTheEnd().finally(() => gone());
    });
  }

  /** A short run is over before the api has acknowledged its first checkpoints, which may go only then. */
  private async sweepAtTheEnd(): Promise<void> {
    if (this.outcome === 'finished') await this.sweep();
  }

  /** Old ones that stay cost room, and nothing else. */
  private async sweep(): Promise<void> {
    await this.checkpoints
      .sweep()
      .catch((error: Error) => this.context.log.warn({ err: error, run: this.job.runId }, 'old checkpoints could not be removed'));
  }

  private state(totalRounds: number) {
    const { machine } = this;
    const phase = this.outcome ?? machine.phase;
    const { frames, connections } = this.context.refusals();
    return {
      phase,
      round: machine.round,
      totalRounds,
      view: machine.view,
      seats: machine.phase === 'finished' ? [] : machine.seats(),
      refusedFrames: frames,
      refusedConnections: connections,
      waitingFor: machine.stall.explain(),
      traffic: machine.attempt.traffic.report(),
    };
  }

  /** @param record makes the checkpoint exist, or finds it */
  private async publish(generation: number, record: () => Promise<PublishedCheckpoint>): Promise<void> {
    const { machine, owner } = this;
    try {
      const published = await record();
      let isTold = false;
      owner.guard(() => void (isTold = machine.stops.published(generation, published)));
      if (!isTold || this.isClosed) return; // superseded, too late, or another's: it is no reason to let an older one go
      this.checkpoints.told(generation);
    } catch (error) {
      owner.guard(() => machine.stops.failed(generation, (error as Error).message));
      return;
    }
    await this.sweep();
  }

  /** The best checkpoint, from before the attempt. It may be damaged, or never have been written: then the run ends with its last weights, and says so. */
  private async openBest(round: number): Promise<CheckpointReader | undefined> {
    const { job, checkpoints, context, journal } = this;
    const id = checkpoints.idOf(round);
    try {
      const reader = await context.checkpoints.open({ runId: job.runId, ...id });
      // All of it is looked at before the first of it is written: half of a file cannot be taken back.
      for (const { index } of this.layout.chunks) await reader.tensor(parametersName(index));
      return reader;
    } catch (error) {
      const message = `the best weights, of round ${round}, cannot be read; the run ends with its last ones: ${(error as Error).message}`;
      journal.append({ kind: 'event', type: 'weights.best-missing', message: message.slice(0, 2000), data: { round } });
      return undefined;
    }
  }

  /** Measures of the last weights on the evaluation split. A validation of held-out examples does not count. */
  private lastMeasured(): Measures {
    const { validations, round } = this.machine;
    return (this.job.data.heldOutExamples === undefined ? validations.lastOf(round) : undefined) ?? UNMEASURED;
  }

  /** @param best the generation that the run ends with, where it is not its last one */
  private async collect(values: Measures, best?: number): Promise<void> {
    const { machine, job } = this;
    // What this attempt has committed the shards have kept.
    const isKept = best !== undefined && best > (this.parent?.round ?? 0);
    const stored = best === undefined || isKept ? undefined : await this.openBest(best);
    const weightsRound = isKept ? best : stored?.manifest.round;
    this.collector = new WeightsCollector({
      stored,
      layout: this.layout,
      clock: this.context.clock,
      files: this.context.weights,
      generation: isKept ? best : machine.round,
      serverOfChunk: this.serverOfChunk,
      servers: this.servers,
      machine,
      file: this.weightsFile,
      metadata: { format: 'paceline', run: job.runId, attempt: String(job.attempt), round: String(weightsRound ?? machine.round) },
      deadlineMs: COLLECT_DEADLINE_MS,
      isOver: () => this.outcome !== undefined || this.isClosed,
      delayed: (why) => {
        this.context.log.warn({ run: job.runId, why }, 'the weights could not be written, and are written again');
        machine.finish.weightsDelayed(why);
      },
    });
    try {
      const weightsSha256 = await this.collector.collect();
      const { ledger } = machine;
      const result: RunResult = {
        rounds: machine.round,
        values: best === weightsRound ? values : this.lastMeasured(),
        ...(weightsRound === undefined ? {} : { weightsRound }),
        examplesPerSecond: ledger.trainingMs > 0 ? (ledger.attemptExamples / ledger.trainingMs) * 1000 : 0,
        trainedExamples: ledger.trainedExamples,
        weightsSha256,
        weightsFile: this.weightsFile,
        trainingMs: ledger.trainingMs,
      };
      machine.finish.weightsCollected({ ...result });
    } catch (error) {
      machine.fail(`the weights could not be written: ${(error as Error).message}`);
    }
  }
}
