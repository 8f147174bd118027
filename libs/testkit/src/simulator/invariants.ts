/** The invariants, looked at after every event, and at the end of the run. */
import { Coordinator, Shard, type NumberedEntry, type AsyncShard, type ValidationPoint } from '@paceline/exchange';
import {
  isOver,
  mayMove,
  runResultSchema,
  type AfterEnd,
  type AttemptEnd,
  type AttemptEndCause,
  type PreparedJob,
  type RunResult,
  type RunStatus,
} from '@paceline/control-plane';
import type { Cluster, TakenRows } from './cluster.js';
import type { CheckpointId } from '@paceline/storage';
import { checkBounds } from './bounds.js';
import type { Part } from './part.js';
import type { SimProcess } from './process.js';
import type { SimServer } from './sim-server.js';
import { RESTARTS } from './tiny-run.js';

/** Faults after which a job that was enqueued may be missing, and is enqueued again. */
const LOSSES_OF_REDIS = ['flush Redis', 'restart Redis'];
/** Causes that speak of the checkpoint that an attempt begins with. All servers look into one store here. */
const NOT_LOADED: ReadonlySet<AttemptEndCause> = new Set(['CHECKPOINT_INVALID', 'STORAGE_NOT_SHARED']);
/** Faults after which nobody answers a server that asks who leads its shard. */
const AWAY_FROM_ARBITER = [
  ...['PostgreSQL away', 'Redis away', 'restart Redis', 'flush Redis', 'kill an api', 'stop an api'],
  'a server loses the control plane',
];
/** A placement that is lost is made again after 15 s at the latest, a coordinator that is silent is given up after 20 s. */
const UNOWNED_AT_MOST_MS = 60_000;

export class Invariants {
  private readonly shardRounds = new Map<Shard | AsyncShard, number>();
  private readonly memberRounds = new Map<object, number>();
  private readonly coordinatorRounds = new Map<Coordinator, { round: number; view: number }>();
  private readonly appliedOnce = new Set<string>();
  private readonly primaries = new Map<string, SimServer>();
  /** The last round in the ledger that the control plane has stored. */
  ledgerTo = -1;
  private saysBestMissing = false;
  ledgerExamples = 0;
  /** Highest round that any coordinator has committed, plus one. */
  committedRounds = 0;
  /** Checkpoints that the journal has told of. */
  checkpoints = 0;
  /** Jobs that were enqueued, by what they ask for, with the id. */
  private readonly enqueuedOnce = new Map<string, string>();
  private unownedSinceMs: number | undefined;

  constructor(private readonly cluster: Cluster) {}

  afterEvent(): void {
    const { cluster } = this;
    this.owned();
    for (const part of cluster.hosted) {
      if (part.over) continue;
      cluster.items?.afterEvent(part);
      this.leads(part);
      if (cluster.items) continue;
      this.shard(part);
      if (part.server.process.isAlive) checkBounds(part, cluster);
      if (part.coordinator instanceof Coordinator) this.coordinator(part, part.coordinator);
    }
    // In modes async and ssp a member's work items come in any order.
    for (const worker of cluster.items ? [] : cluster.workers) {
      const member = worker.session?.member;
      if (!member) continue;
      const before = this.memberRounds.get(member) ?? 0;
      if (member.round !== before) {
        cluster.checks.expect(member.round > before, 'I1', () => `member ${worker.id} went from round ${before} to ${member.round}`);
        this.memberRounds.set(member, member.round);
      }
    }
  }

  /** A shard has one primary in each term: whoever takes over does so in a term of its own. */
  private leads({ run, attempt, index, shard, server }: Part): void {
    if (!run.place?.isPrimary) return;
    const key = `${attempt}/${index}/${shard.term}`;
    const primary = this.primaries.get(key);
    if (primary === undefined) this.primaries.set(key, server);
    else
      this.cluster.checks.expect(
        primary === server,
        'I7',
        () => `${primary!.process.name} and ${server.process.name} both lead parameter server ${index} in term ${shard.term}`,
      );
  }

  applied(part: Part, chunk: number, round: number): void {
    const key = `${part.attempt}/${part.server.process.name}/${round}/${chunk}`;
    this.cluster.checks.expect(
      !this.appliedOnce.has(key),
      'I2',
      () => `round ${round} was applied twice to chunk ${chunk} in attempt ${part.attempt} by ${part.name}`,
    );
    this.appliedOnce.add(key);
  }

  /** An entry of the journal as the api stores it. */
  stored(entry: NumberedEntry): void {
    if (entry.kind === 'metric') return this.validated(entry.validation);
    if (entry.kind === 'event' && entry.type === 'weights.best-missing') this.saysBestMissing = true;
    if (entry.kind === 'event' && entry.type === 'run.finished') return this.finished(runResultSchema.parse(entry.data));
    if (entry.kind !== 'ledger') return;
    const { checks, run, items } = this.cluster;
    checks.expect(entry.fromRound === this.ledgerTo + 1, 'I4', () => `the ledger goes from round ${this.ledgerTo} to ${entry.fromRound}`);
    const { reference } = this.cluster;
    let examples = 0;
    let scheduled = 0;
    for (let round = entry.fromRound; round <= entry.toRound; round++) {
      const { count } = run.schedule.round(round);
      examples += items ? count - items.droppedIn(round) : reference.examplesIn(round);
      scheduled += count;
    }
    checks.expect(
      examples === entry.examples && examples + (entry.dropped ?? 0) === scheduled,
      'I4',
      () =>
        `rounds ${entry.fromRound}–${entry.toRound} have ${examples} of ${scheduled} examples in updates, the ledger says ${entry.examples}, and ${entry.dropped ?? 0} dropped`,
    );
    if (entry.dropped) this.cluster.network.count('examples dropped and logged');
    this.ledgerTo = entry.toRound;
    this.ledgerExamples += entry.examples;
  }

  /** What a validation has measured is what the weights of the undisturbed run come to. */
  private validated(validation: ValidationPoint | undefined): void {
    if (!validation) return;
    const { checks, reference } = this.cluster;
    const expected = reference.lossOf(validation.round + 1);
    checks.expect(
      validation.values['loss'] === expected,
      'I8',
      () => `the validation of round ${validation.round} came to ${validation.values['loss']}, that of the undisturbed run to ${expected}`,
    );
  }

  /** The result is that of the weights that the undisturbed run ends with, on the evaluation split. */
  private finished({ rounds, weightsRound, values }: RunResult): void {
    const { checks, reference, run, items, mayLoseCheckpoints } = this.cluster;
    if (items || run.shape.evalExamples === 0) return;
    const [loss, expected] = [values['loss'], reference.resultOf(weightsRound ?? rounds)];
    // Without the checkpoint of the best weights a run ends with others, which nobody may have measured.
    const isLost = mayLoseCheckpoints !== undefined && loss === undefined;
    checks.expect(loss === expected || isLost, 'I8', () => `the loss of the result is ${loss}, that of the undisturbed run ${expected}`);
  }

  /** The run's row got another status (I6). */
  moved(from: RunStatus, to: RunStatus, reason: string, cause: string | undefined): void {
    const { checks, world, moves } = this.cluster;
    moves.set(`${from}>${to}`, (moves.get(`${from}>${to}`) ?? 0) + 1);
    checks.expect(mayMove(from, to), 'I6', () => `the run went from ${from} to ${to}: ${reason}`);
    world.note(`status ${to}`);
    world.recent.push(`${world.nowMs.toFixed(3)} STATUS ${to}: ${reason}`);
    if (isOver(to)) this.runOver(to, reason, cause);
  }

  /** An entry of a journal is written among the rows of the run (I7). */
  entryWritten(attempt: number, present: number): void {
    this.cluster.checks.expect(attempt === present, 'I7', () => `attempt ${attempt} writes to the run, which is in attempt ${present}`);
  }

  /** Everything up to `n` is stored: now it counts, in the order in which it was written. */
  storedUpTo(attempt: number, after: number, n: number): void {
    const { control, postgres } = this.cluster;
    for (let number = after + 1; number <= n; number++) {
      const row = postgres.rows.entries.get(`${attempt}/${number}`);
      if (!row) continue;
      const { attempt: _attempt, ...entry } = row;
      control.journal.push(entry as NumberedEntry);
      this.stored(entry as NumberedEntry);
    }
  }

  /** An attempt of the run has ended, as the table of libs/control-plane says. */
  attemptEnded({ row, to, reason }: AfterEnd, end: AttemptEnd): void {
    const { cluster } = this;
    cluster.world.note(`attempt over: ${row}`);
    cluster.ends.set(row, (cluster.ends.get(row) ?? 0) + 1);
    if (to === undefined) return;
    if (row === 'restart' || row === 'budgetSpent') this.restarted(reason, end);
    if (row === 'budgetSpent' && cluster.run.spec.restarts < RESTARTS) cluster.mayFail ??= 'a run of few restarts';
    // The device that computed it is not asked again: the same rounds, once more, are finite.
    if (end.kind === 'failed' && end.cause === 'NON_FINITE_ROLLBACK') cluster.run.spoiled.clear();
  }

  /** A job has come into a queue that did not have its id. */
  enqueued({ jobId, payload }: PreparedJob): void {
    const { checks, network } = this.cluster;
    const part = payload.kind === 'placement' ? `${payload.index}/${payload.role}` : `${payload.seat}/${payload.n}`;
    const made = payload.kind === 'placement' ? /-m(?<made>\d+)$/u.exec(jobId)?.groups?.['made'] : '';
    const what = `${payload.kind} ${payload.attempt}/${part}/${made}`;
    const before = this.enqueuedOnce.get(what);
    const isLost = LOSSES_OF_REDIS.some((fault) => network.fired.has(fault));
    checks.expect(
      before === undefined || (before === jobId && isLost),
      'outbox',
      () => `${what} was enqueued as ${before}, and again as ${jobId}`,
    );
    this.enqueuedOnce.set(what, jobId);
  }

  /** I9: as long as stores and an api are there, a run that is not over has somebody who goes on with it, or is about to be given to one. */
  private owned(): void {
    const { control, postgres, redis, checks, world, network } = this.cluster;
    const { status, attempt } = control;
    const needsOwner = status === 'QUEUED' || status === 'PROVISIONING' || status === 'RUNNING' || status === 'PAUSING';
    const owner = this.cluster.coordinatorPart;
    const isOwned =
      !needsOwner || (owner !== undefined && owner.attempt === attempt && owner.run.hasStarted && !owner.over && owner.isRunning);
    const isStalled = postgres.isAway || redis.isAway || !control.isReachable || postgres.lockHolder?.isFrozen === true;
    const mayWait = ({ isAlive, isFrozen, host }: SimProcess): boolean => !isAlive || isFrozen || network.isCut(host, 'redis');
    if (isOwned || isStalled || this.cluster.servers.some(({ process }) => mayWait(process))) return void (this.unownedSinceMs = undefined);
    this.unownedSinceMs ??= world.nowMs;
    const unownedMs = world.nowMs - this.unownedSinceMs;
    checks.expect(
      unownedMs <= UNOWNED_AT_MOST_MS,
      'I9',
      () => `nobody has gone on with the run for ${Math.round(unownedMs)} ms: ${control.reason}`,
    );
  }

  /** An attempt begins with `round` committed rounds: the only way in which rounds go back. */
  restored(round: number, attempt: number): void {
    const { checks, reference, world } = this.cluster;
    checks.expect(
      round <= this.committedRounds,
      'I1',
      () => `attempt ${attempt} begins at round ${round}, and ${this.committedRounds} were committed`,
    );
    world.note('restore', round);
    this.ledgerTo = round - 1;
    reference.restart(round);
    this.ledgerExamples = this.examplesBefore(round);
  }

  /** Examples that are in updates of the rounds before this one. */
  private examplesBefore(round: number): number {
    const { reference, run, items } = this.cluster;
    if (!items) return reference.examplesBefore(round);
    let examples = 0;
    for (let k = 0; k < round; k++) examples += run.schedule.round(k).count - items.droppedIn(k);
    return examples;
  }

  /** With backup replicas: a shard is told which replicas count. All are told the same, in one round. */
  included(round: number, replicas: readonly number[]): void {
    const { checks, reference, run } = this.cluster;
    const { gradient, replicas: all } = run.shape;
    const withRows = Array.from({ length: all }, (_, replica) => replica).filter(
      (replica) => run.replicaExamples(round, replica) > 0,
    ).length;
    checks.expect(reference.fix(round, replicas), 'I2', () => `round ${round} has two sets of replicas, one is [${replicas.join(' ')}]`);
    checks.expect(
      replicas.length >= Math.max(1, withRows - gradient.backupReplicas) &&
        replicas.every((replica) => run.replicaExamples(round, replica) > 0),
      'I4',
      () => `${replicas.length} of ${withRows} replicas with rows count in round ${round}, with ${gradient.backupReplicas} backup replicas`,
    );
  }

  /** The journal says that a checkpoint is complete: then it is, with the bits of its round. */
  checkpointWritten(id: CheckpointId): void {
    const { cluster } = this;
    this.checkpoints++;
    cluster.world.microtasksWait = true;
    void cluster.disk.fault(id).then((fault) => {
      if (fault !== undefined && cluster.mayLoseCheckpoints === undefined)
        cluster.checks.fail('I5', `the checkpoint of round ${id.round}, attempt ${id.attempt}, is no checkpoint: ${fault}`);
    });
  }

  /** An attempt that began with a checkpoint ends: not because what the journal had told of could not be loaded, or was not there at all. */
  endedAfter({ round, attempt }: CheckpointId, end: AttemptEnd): void {
    const { checks, mayLoseCheckpoints } = this.cluster;
    const isLost = end.kind === 'failed' && NOT_LOADED.has(end.cause);
    checks.expect(
      !isLost || mayLoseCheckpoints !== undefined,
      'I5',
      () => `the checkpoint of round ${round}, attempt ${attempt}, was published and cannot be loaded: ${end.message}`,
    );
  }

  runOver(outcome: string, message: string, cause: string | undefined): void {
    const { cluster } = this;
    const { checks, run } = cluster;
    if (outcome === 'SUCCEEDED') {
      const rounds = cluster.items ? run.schedule.totalRounds : cluster.reference.end().rounds;
      const all = this.examplesBefore(rounds);
      checks.expect(this.ledgerExamples === all, 'I4', () => `${this.ledgerExamples} examples are in the ledger, updates have ${all}`);
      checks.expect(
        !cluster.endsWithLast || this.saysBestMissing,
        'I8',
        () => 'the run ended with its last weights in place of the best, and does not say so',
      );
      const { nonFinite, backupReplicas } = run.shape.gradient;
      // Those of rounds that a run has stopped before are never computed.
      const unseen = [...run.spoiled.keys()].filter((key) => Number(key.split('/')[0]) < rounds);
      checks.expect(
        unseen.length === 0 || nonFinite === 'skip' || backupReplicas > 0,
        'I8',
        () => `the run finished, and nobody has seen that [${unseen.join(' ')}] is no number`,
      );
    } else if (cause === 'POISON_ROUND' && cluster.mayFail !== 'a poison round') {
      checks.expect(
        this.lossesInjected() >= 5,
        'liveness',
        () => `${this.lossesInjected()} losses were injected, and the run failed: ${message}`,
      );
    } else checks.expect(cluster.mayFail !== undefined, 'liveness', () => `the run ${outcome} without a cause: ${message}`);
    cluster.world.note(`run ${outcome}`);
    // What is left gets the time to say goodbye; then everything must have been given back.
    const look = (left: number): void =>
      void cluster.world.schedule(1_000, 'the end?', () => (left === 0 || this.isQuiet() ? cluster.world.stop() : look(left - 1)));
    look(30);
  }

  /** Nobody who lives holds anything of the run. Connections of peers that are gone are closed some seconds after its end, with what was queued for them. */
  private isQuiet(): boolean {
    const { hosted, servers, workers } = this.cluster;
    return (
      hosted.every(({ over, server, memory }) => !server.process.isAlive || (over && memory.heldBytes === 0)) &&
      servers.every((server) => !server.process.isAlive || server.hosted === undefined) &&
      workers.every(({ session, process }) => !session || !process.isAlive)
    );
  }

  /** After the seed: what lives on must hold nothing any more. */
  afterRun(): void {
    const { cluster } = this;
    const ended = cluster.control.isOver;
    this.nobodyStalled();
    cluster.reference.release();
    for (const { id, process, nodesInUse } of cluster.workers)
      if (ended && process.isAlive) cluster.checks.expect(nodesInUse === 0, 'I10', () => `${id} kept ${nodesInUse} gradients`);
    for (const part of cluster.hosted) {
      // Who still waits for an arbiter holds back what was fetched of it.
      part.run.place?.replication?.end();
      part.shard.end();
      const leaked = part.memory.release();
      if (ended && part.isRunning) cluster.checks.expect(leaked === 0, 'I10', () => `${part.name} kept ${leaked} bytes of its arena`);
    }
  }

  /** Work that stands still is asked for again; where nothing was lost on its way, somebody has not done his part. */
  private nobodyStalled(): void {
    const { checks, network, run, tables } = this.cluster;
    const asked = (tables as readonly TakenRows[]).filter(({ taken }) => taken.has('askedAgain'));
    const causes = ['eaten frame', 'partition', 'one-way partition', 'servers lose each other', 'lose a worker host'];
    // A primary whose standby has gone without a word holds its shard back until it notices.
    if (run.shape.standby > 0) causes.push('kill a server', 'stop a server', 'shut a server down', 'lose power', 'break a connection');
    // So does one whose link to it was broken by a flipped bit, but only where the arbiter may have been out of reach.
    if (run.shape.standby > 0 && AWAY_FROM_ARBITER.some((fault) => network.fired.has(fault))) causes.push('bit flip in a frame');
    checks.expect(
      asked.length === 0 || causes.some((cause) => network.fired.has(cause)),
      'liveness',
      () => `a ${asked[0]!.name} had to ask everybody again, and nothing was lost on its way`,
    );
  }

  /** An attempt is started anew: only a fault that costs a server may be the cause. */
  restarted(reason: string, end: AttemptEnd): void {
    const { checks, network, run } = this.cluster;
    const causes = [
      'kill a server',
      'servers lose each other',
      'stop a server',
      'shut a server down',
      'lose power',
      'write to a full disk',
      'broken connection',
      'bit flip in a frame',
      'eaten frame',
      'a server loses the control plane',
    ];
    if (run.shape.gradient.nonFinite === 'rollback') causes.push('spoil a gradient');
    if (run.shape.items?.nonFinite === 'rollback' && end.kind === 'failed' && end.cause === 'NON_FINITE_ROLLBACK') return;
    const isCaused = this.cluster.hosted.some(({ server }) => !server.process.isAlive) || causes.some((cause) => network.fired.has(cause));
    checks.expect(isCaused, 'liveness', () => `the attempt was started anew without a cause: ${reason}`);
  }

  /** Faults that cost a replica its holder. */
  private lossesInjected(): number {
    const kinds = [
      'break a connection',
      'flip a bit',
      'eaten frame',
      'kill a worker',
      'lose a worker host',
      'stop a worker',
      'hang a compute thread',
      'an engine fails',
      'partition',
      'one-way partition',
      'clock jumps',
    ];
    return kinds.reduce((sum, kind) => sum + (this.cluster.network.fired.get(kind) ?? 0), 0);
  }

  private shard(part: Part): void {
    const { shard } = part;
    const before = this.shardRounds.get(shard) ?? part.restore?.round ?? 0;
    if (shard.round === before) return;
    this.cluster.checks.expect(shard.round > before, 'I1', () => `the shard of ${part.name} went from round ${before} to ${shard.round}`);
    this.shardRounds.set(shard, shard.round);
  }

  private coordinator(part: Part, coordinator: Coordinator): void {
    const { checks, hosted, reference } = this.cluster;
    const before = this.coordinatorRounds.get(coordinator) ?? { round: part.restore?.round ?? 0, view: 1 };
    if (coordinator.round === before.round && coordinator.view === before.view) return;
    checks.expect(coordinator.round >= before.round, 'I1', () => `the coordinator went from round ${before.round} to ${coordinator.round}`);
    checks.expect(coordinator.view >= before.view, 'I1', () => `the coordinator went from view ${before.view} to ${coordinator.view}`);
    if (coordinator.round > before.round) {
      const committed = coordinator.round - 1;
      for (const other of hosted) {
        // A standby without chunks has nothing to be behind with.
        if (other.attempt !== part.attempt || !other.counts || (other.isStandby && other.memory.chunks.length === 0)) continue;
        const { shard, memory } = other;
        // A primary without chunks counts as reduced, whether it has heard the DECISION or not: there is nothing to decide there.
        const isReduced = memory.chunks.length === 0 || !['GATHERING', 'DECIDING'].includes(shard.table.state);
        const has = shard.round > committed || (shard.round === committed && isReduced);
        checks.expect(
          has,
          'I2',
          () => `round ${committed} was committed, and the shard of ${other.name} is ${shard.table.state} in round ${shard.round}`,
        );
      }
      const { trainedExamples } = coordinator.ledger;
      const examples = this.cluster.isFollowed(part) ? reference.examplesBefore(coordinator.round) : trainedExamples;
      checks.expect(
        trainedExamples === examples,
        'I4',
        () => `${trainedExamples} examples after ${coordinator.round} rounds, updates have ${examples}`,
      );
      this.committedRounds = Math.max(this.committedRounds, coordinator.round);
    }
    const held = new Map<number, string>();
    for (const { seat, workerId } of coordinator.seats()) {
      checks.expect(!held.has(seat), 'refusal', () => `seat ${seat} is held by ${held.get(seat)} and ${workerId}`);
      held.set(seat, workerId);
    }
    this.coordinatorRounds.set(coordinator, { round: coordinator.round, view: coordinator.view });
  }
}
