/** The invariants of what is stored of a run: its status, its ledger, its checkpoints, how its attempts end, and how it ends itself. */
import type { NumberedEntry, ValidationPoint } from '@paceline/exchange';
import {
  isOver,
  mayMove,
  runResultSchema,
  type AfterEnd,
  type AttemptEnd,
  type AttemptEndCause,
  type RunResult,
  type RunStatus,
} from '@paceline/control-plane';
import type { CheckpointId } from '@paceline/storage';
import type { Cluster } from '../cluster.js';
import { RESTARTS } from '../run/tiny-run.js';

/** Causes that speak of the checkpoint that an attempt begins with. All servers look into one store here. */
const NOT_LOADED: ReadonlySet<AttemptEndCause> = new Set(['CHECKPOINT_INVALID', 'STORAGE_NOT_SHARED']);

/** A connection that breaks is none: its worker comes back, and keeps its replicas meanwhile. */
const LOSE_A_WORKER = [
  'kill a worker',
  'lose a worker host',
  'stop a worker',
  'hang a compute thread',
  'slow a worker',
  'an engine fails',
  'partition',
  'one-way partition',
  'a worker leaves',
];

/** After which an attempt may stand still to its end: connections hold, and bytes do not come through. */
const LOSE_WORDS = ['eaten frame', 'partition', 'one-way partition', 'servers lose each other', 'lose a worker host'];

export class RunInvariants {
  /** The last round in the ledger that the control plane has stored. */
  ledgerTo = -1;
  ledgerExamples = 0;
  /** Highest round that any coordinator has committed, plus one. */
  committedRounds = 0;
  /** Checkpoints that the journal has told of. */
  checkpoints = 0;
  private saysBestMissing = false;

  constructor(private readonly cluster: Cluster) {}

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

  /** A validation must measure what the weights of the undisturbed run come to. */
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

  /** Everything up to `sequence` is stored: now it counts, in the order in which it was written. */
  storedUpTo(attempt: number, after: number, sequence: number): void {
    const { control, postgres } = this.cluster;
    for (let number = after + 1; number <= sequence; number++) {
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
    look(60);
  }

  /** Nobody who lives holds anything of the run. Connections of peers that are gone are closed some seconds after its end, with what was queued for them. */
  private isQuiet(): boolean {
    const { hosted, servers, workers } = this.cluster;
    return (
      hosted.every(({ over, server, memory }) => !server.process.isAlive || (over && memory.heldBytes === 0)) &&
      servers.every((server) => !server.process.isAlive || server.hosted === undefined) &&
      workers.every(({ session, process, nodesInUse }) => !process.isAlive || (!session && nodesInUse === 0))
    );
  }

  /** An attempt is started anew: only a fault that costs a server may be the cause, or with EF21 one that costs a worker its place for good. */
  restarted(reason: string, end: AttemptEnd): void {
    const { checks, network, run } = this.cluster;
    if (end.kind === 'failed' && end.cause === 'STALLED')
      checks.expect(
        LOSE_WORDS.some((cause) => network.fired.has(cause)),
        'liveness',
        () => `the attempt stood still, and nothing was lost on its way: ${reason}`,
      );
    const causes = [
      'kill a server',
      'lose a server host',
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
    // Where workers hold the shards, what keeps a worker from being heard costs a shard.
    if (run.shape.isMirrored) causes.push('stop a worker', 'partition', 'one-way partition');
    if (end.kind === 'failed' && end.cause === 'ESTIMATE_LOST') causes.push(...LOSE_A_WORKER);
    if (end.kind === 'failed' && end.cause === 'WORKERS_LEFT') causes.push('a worker leaves');
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
}
