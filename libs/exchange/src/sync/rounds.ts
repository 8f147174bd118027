/**
 * The work of a synchronous run, as its coordinator gives it out and counts it (docs/protocol.md §9, §10): replica assignment, commits and the
 * ledger. Members, deadlines, evaluation, stops and the end are those of every mode (../attempt/coordinator.ts).
 *
 *   reduce → commit → publish. Members send their contribution (examples, metric sums) here and their gradients to the
 *   shards. When every shard says REDUCED(k) and every replica's contribution is in, round k is committed: COMMIT goes to
 *   the shards, then to the members, with a new view when membership has changed.
 *
 * A member whose socket closes is covered at once (with EF21 when it is lost): its replicas of the present round go to the others (computing them twice is
 * harmless, the step is pure), and its seat is kept for `awayMs`, in case it comes back. After the last round the live
 * members measure the evaluation split, the weights are collected, and the run is over.
 *
 * A generation that is to be validated is measured before its COMMIT (validations.ts). A checkpoint is taken by a COMMIT (checkpoints.ts). A pause,
 * or a server that has to end, waits for the present round, checkpoints with its commit, and ends the attempt when the checkpoint is published.
 */
import type { Members, Message, MessageOf } from '@paceline/protocol';
import type { CoordinatorOptions } from '../attempt/attempt-options.js';
import type { ValidationPoint } from '../attempt/journal.js';
import type { Measurer } from '../attempt/measurements.js';
import { misfitOf, type Measures } from '../attempt/measures.js';
import type { CoordinatedMember as Member } from '../attempt/membership.js';
import type { CoordinatorParts } from '../attempt/parts.js';
import { TELL_AGAIN } from '../attempt/stall.js';
import { StateTable } from '../attempt/state-table.js';
import type { CheckpointWaiter } from '../attempt/stops.js';
import type { Owed, WorkPlan } from '../attempt/work-plan.js';
import type { Resolution } from '../standby/takeover.js';
import { spans } from '../trace/spans.js';
import { COORDINATOR_ROWS, type CoordinatorState } from './coordinator-table.js';
import { LostResiduals } from './lost-residuals.js';
import { RoundGathering } from './round-gathering.js';
import { RoundLedger } from './round-ledger.js';
import { RoundSuccession, type SucceededRounds } from './round-succession.js';

export class Rounds implements WorkPlan, Measurer, CheckpointWaiter, SucceededRounds {
  readonly table = new StateTable<CoordinatorState, typeof COORDINATOR_ROWS>('coordinator', COORDINATOR_ROWS, 'GATHERING');
  readonly ledger: RoundLedger;
  readonly present: RoundGathering;
  readonly succession: RoundSuccession | undefined;
  private readonly lost: LostResiduals;
  /** The present round was committed by the coordinator before, of which a worker has heard: what its contributions said is not known. */
  private isUnseen = false;
  /** Replicas that moved with the last COMMIT, from whom what was kept of them is pulled now. */
  private handedOn: readonly number[] = [];
  private readonly givers = new Set<Member>();

  constructor(
    private readonly parts: CoordinatorParts,
    private readonly options: CoordinatorOptions,
  ) {
    this.ledger = new RoundLedger(options.schedule, options.journal, options.now, options.firstLedger, options.measured);
    this.present = new RoundGathering(parts.attempt, options);
    this.lost = new LostResiduals(options.firstRound ?? 0, options.journal, options.sendsDeltas ? options.replicas : 0);
    if (options.succession) this.succession = new RoundSuccession(parts, this, options.succession);
  }

  get lastWorkMs(): number {
    return this.ledger.lastCommitMs;
  }

  get reduced(): ReadonlySet<number> {
    return this.present.reduced;
  }

  waitingFor(): string | null {
    const missing = this.missingWorkers();
    if (missing === 0) return null;
    return `${missing} more worker${missing === 1 ? '' : 's'} to take a step task: it begins with ${this.startWorkers}`;
  }

  /** No more than a person has scaled the run to. A worker whose shard was taken over is offered no seat. */
  private get startWorkers(): number {
    const { startWorkers = 1, membersHoldShards = false } = this.options;
    const { attempt, attendance } = this.parts;
    return membersHoldShards ? startWorkers - attempt.servers.takenOver : Math.min(startWorkers, attendance.target);
  }

  /** Before the first round: workers that it is to begin with and that are not there yet. */
  private missingWorkers(): number {
    const { startWorkers } = this;
    const { firstRound = 0, succession } = this.options;
    const { attempt } = this.parts;
    if (startWorkers < 2 || this.ledger.hasBegun || firstRound > 0 || succession || attempt.isOver) return 0;
    return Math.max(0, startWorkers - attempt.members.live().length);
  }

  // ---- members ----

  /** In the middle of a round: gives replicas without a live holder to the live members, in a new view. */
  cover(): void {
    const { takeovers, attempt } = this.parts;
    if (!takeovers.isUnderWay && this.missingWorkers() === 0 && attempt.members.cover()) attempt.nextView();
  }

  owesWork(member: Member): boolean {
    return member.replicas.length > 0 || this.givers.has(member);
  }

  owed(member: Member): Owed {
    // Also those whose contribution has come: the gradient follows it, and handing that over may be what kills.
    return { round: this.parts.attempt.round, replicas: [...member.replicas] };
  }

  isStillOwed({ round }: Owed): boolean {
    return round === this.parts.attempt.round;
  }

  replicasOf(member: Member): number[] {
    return member.replicas;
  }

  memberBack(id: string, isAhead: boolean): void {
    const { attempt, takeovers } = this.parts;
    if (takeovers.isUnderWay) this.succession?.memberBack(id);
    else if (isAhead) attempt.tell(attempt.viewMessage());
  }

  fromMember(member: Member, message: Message): boolean {
    if (message.type === 'handed-on') this.hasHandedOn(member, message.round);
    else if (message.type === 'contribution') this.contributed(member, message);
    else return false;
    return true;
  }

  private hasHandedOn(member: Member, round: number): void {
    const { attempt, attendance, measurements } = this.parts;
    if (this.table.state !== 'GATHERING' || round !== attempt.round - 1 || !this.givers.delete(member)) return;
    this.table.take('handedOn');
    if (member.leaving !== undefined && member.replicas.length === 0 && !measurements.owes(member.id)) attendance.letGo(member);
  }

  private contributed(member: Member, message: MessageOf<'contribution'>): void {
    const { options, table } = this;
    const { attempt, attendance, stall } = this.parts;
    if (table.state !== 'GATHERING' || message.round !== attempt.round || message.replica >= options.replicas) {
      const isLate = message.round === attempt.round - 1 && message.replica < options.replicas;
      if (isLate && table.state === 'GATHERING' && this.hasLostEstimate(message)) return this.estimateLost(member, message);
      if (isLate) this.lost.heardLate(message.replica, message.lost);
      return table.take('contributionStale');
    }
    const expected = options.schedule.replicaExamples(message.round, message.replica);
    const misfit = misfitOf(message, options.measured, expected, `replica ${message.replica} of round ${message.round}`);
    if (misfit !== undefined) return attendance.lose(member, misfit, 'NOT_A_MEMBER');
    if (this.hasLostEstimate(message)) return this.estimateLost(member, message);
    table.take('contribution');
    this.lost.heard(message.replica, message.lost);
    const { contributions } = this.present;
    if (!contributions.has(message.replica)) {
      contributions.set(message.replica, { examples: message.examples, sums: message.sums });
      stall.moved();
    }
    this.tryCommit();
  }

  private hasLostEstimate({ lost }: MessageOf<'contribution'>): boolean {
    return this.options.keepsEstimates === true && lost !== undefined;
  }

  /** With EF21: the servers have the estimate of the replica in their sum, and its worker does not know it. Its gradient was not sent. */
  private estimateLost(member: Member, { round, replica, lost }: MessageOf<'contribution'>): void {
    this.table.take('estimateLost', 'OVER');
    const why = this.lost.why(round, lost!);
    const message = `worker ${member.id} does not have the estimate (EF21) of replica ${replica} in round ${round}: ${why}`;
    this.parts.ending.conclude('failed', message, { cause: 'ESTIMATE_LOST', replica });
  }

  // ---- servers ----

  fromServer(index: number, message: Message): boolean {
    if (message.type === 'reduced') this.onReduced(index, message.round);
    else if (message.type === 'non-finite') this.onNonFinite(index, message.round);
    else if (message.type === 'replica-complete' || message.type === 'scalars') this.onAgreement(index, message);
    else return false;
    return true;
  }

  serverStands(index: number, standing: MessageOf<'standing'>): void {
    const { attempt } = this.parts;
    const { present } = this;
    if (standing.round === attempt.round) present.missing.set(index, standing.missing ?? []);
    if (this.succession?.isAsking) return this.succession.stands(index, standing);
    if (standing.round === attempt.round - 1) attempt.servers.connectionOf(index)?.sendMessage(this.lastCommit(), attempt.numbers());
    if (this.table.state !== 'GATHERING' || standing.round !== attempt.round) return;
    if (standing.isReduced) present.reduced.add(index);
    else present.reduced.delete(index);
    this.tryCommit();
  }

  private onReduced(index: number, round: number): void {
    if (this.succession?.isAsking) return this.succession.keepReduced(index, round);
    if (this.table.state !== 'GATHERING' || round !== this.parts.attempt.round) return;
    this.table.take('reduced');
    const { reduced } = this.present;
    if (!reduced.has(index)) this.parts.stall.moved();
    reduced.add(index);
    this.tryCommit();
  }

  private onNonFinite(index: number, round: number): void {
    if (this.table.state !== 'GATHERING' || round !== this.parts.attempt.round) return;
    this.notFinite('nonFinite', `a gradient of round ${round} has NaN or infinity (found by parameter server ${index})`, { server: index });
  }

  private notFinite(row: 'nonFinite' | 'scalars', message: string, data: Record<string, unknown>): void {
    const cause = this.options.nonFinite === 'rollback' ? 'NON_FINITE_ROLLBACK' : 'NON_FINITE';
    this.table.take(row, 'OVER');
    this.parts.ending.conclude('failed', message, { cause, ...data });
  }

  private onAgreement(index: number, message: MessageOf<'replica-complete'> | MessageOf<'scalars'>): void {
    const { attempt, stall } = this.parts;
    const { agreement } = this.present;
    if (this.table.state !== 'GATHERING' || message.round !== attempt.round || !agreement) return;
    const answer = agreement.hear(index, message);
    if (answer === 'non-finite') return this.notFinite('scalars', `a gradient of round ${attempt.round} has NaN or infinity`, {});
    this.table.take(message.type === 'scalars' ? 'scalars' : 'replicaComplete');
    // What is told again, because the round stands still, is nothing new.
    if (!stall.isStalled) stall.moved();
    if (answer) attempt.servers.send(answer, attempt.numbers());
  }

  askAgain(): void {
    const { attempt } = this.parts;
    this.present.missing.clear();
    attempt.nextView();
    for (const said of this.present.agreement?.said(attempt.round) ?? []) attempt.servers.send(said, attempt.numbers());
  }

  // ---- a takeover of this coordinator ----

  takeUp({ behind, reduced, decision, course, round, view }: Resolution): void {
    const { parts, present } = this;
    const { attempt } = parts;
    if (course !== undefined) parts.validations.course = course;
    attempt.round = round;
    attempt.view = view;
    for (const server of reduced) present.reduced.add(server);
    if (decision && present.agreement) present.agreement.decision = decision;
    const { ledgerFrom, ledger, leftOut } = this.options.succession!;
    this.ledger.succeed(round, ledgerFrom, ledger, leftOut);
    const message = `the standby of parameter server 0 coordinates from round ${round} on, term ${attempt.term}`;
    attempt.event('standby.promoted', message, { server: 0, term: attempt.term, round, view });
    if (behind) attempt.servers.send(this.lastCommit(), attempt.numbers());
    attempt.servers.send(attempt.viewMessage(), attempt.numbers());
  }

  private lastCommit(): Message {
    const { attempt, validations } = this.parts;
    const { round, view, term, members } = attempt;
    const { course } = validations;
    const handedOn = this.handedOn.length > 0 ? { handedOn: [...this.handedOn] } : {};
    const commit = { type: 'commit', round: round - 1, view, term, members: members.list(), ...handedOn } as const;
    return course === undefined ? commit : Object.assign(commit, { course }, validations.isBest(round) ? { best: true } : {});
  }

  commitUnseen(): void {
    this.isUnseen = true;
    this.tryCommit();
  }

  // ---- commit ----

  private tryCommit(): void {
    const { attempt } = this.parts;
    const { ledger, present } = this;
    const rows = this.isUnseen ? [] : present.whole();
    if (!rows || !this.isValidated()) return;
    const validation = this.validationPoint();
    const sinceMs = spans.now();
    if (present.agreement?.decision?.skip) ledger.skip(attempt.round, validation);
    else if (this.isUnseen) ledger.commitUnseen(attempt.round, validation);
    else ledger.commit(attempt.round, rows, validation);
    const wasUnseen = this.isUnseen;
    this.isUnseen = false;
    this.moveOn();
    spans.add('commit', sinceMs);
    // What members that are ahead have told of the next round while it was measured was none of this one.
    if (wasUnseen && validation) attempt.members.send(TELL_AGAIN, attempt.numbers());
  }

  /** False while the generation that COMMIT(k) would make is measured, or a checkpoint is written that the run may end with. */
  private isValidated(): boolean {
    const { attempt, measurements, stops, validations } = this.parts;
    const generation = attempt.round + 1;
    const range = validations.needs(generation);
    if (range) {
      if (measurements.isUnderWay) return false;
      this.table.take('validation');
      measurements.begin(generation, range, this);
      measurements.offer();
      return false;
    }
    const mustWait = this.isLast(generation) ? stops.isBestUnderWay : stops.isCrowded && validations.willBeBest(generation);
    stops.waiter = mustWait ? this : undefined;
    return !mustWait;
  }

  private isLast(generation: number): boolean {
    return generation === this.options.schedule.totalRounds || this.parts.validations.of(generation)?.verdict.stop !== undefined;
  }

  measured(generation: number, values: Measures | undefined): void {
    this.table.take('validated');
    this.parts.stops.validates();
    if (!values) return;
    this.parts.validations.measured(generation, values);
    this.tryCommit();
  }

  private validationPoint(): ValidationPoint | undefined {
    const { round } = this.parts.attempt;
    const judged = this.parts.validations.of(round + 1);
    return judged && { round, examples: this.options.heldOutExamples ?? this.options.evalExamples, values: judged.values };
  }

  /** The end of the run may have waited for the best checkpoint. */
  checkpointSettled(): void {
    if (this.table.state === 'GATHERING' && !this.parts.takeovers.isUnderWay) this.tryCommit();
  }

  /** The present round is committed. */
  private moveOn(): void {
    const { attempt, attendance, measurements, stall, stops, validations } = this.parts;
    const committed = attempt.round++;
    const { round } = attempt;
    const verdict = validations.of(round)?.verdict;
    const isLast = this.isLast(round);
    this.present.reset();
    this.lost.committed(committed, isLast || stops.isAsked);
    stall.moved();
    attendance.committed();
    validations.committed(round);
    for (const { type, message, data } of verdict?.events ?? []) attempt.event(type, message, data);
    const leaving = attendance.leaving();
    if (!isLast && this.isDeserted(leaving)) stops.deserted();
    const before = this.options.residualNames && attendance.hasChanged ? attempt.members.holders() : undefined;
    const members = this.rebalance(leaving);
    const handedOn = before && members && !isLast && !stops.isAsked ? this.movedSince(before) : [];
    this.handedOn = handedOn;
    this.givers.clear();
    for (const replica of handedOn) this.givers.add(before!.get(replica)!);
    const { view, term } = attempt;
    if (!isLast) attempt.measuring.tellIfEnough(attempt.members.live());
    const codec = attempt.codec.committed(committed, attempt.members.live());
    const also = { ...(members ? { members } : {}), ...(codec ? { codec } : {}), ...(handedOn.length > 0 ? { handedOn } : {}) };
    const message: MessageOf<'commit'> = { type: 'commit', round: committed, view, term, ...also };
    this.table.take('commit');
    const isBest = validations.isBest(round);
    const { course } = validations;
    const checkpoint = stops.beginCheckpoint(round, () => ({ ...this.ledger.checkpoint(), course, isBest }), { isBest, isLast });
    const decided = { ...(verdict ? { course: verdict.course } : {}), ...(isBest ? { best: true } : {}) };
    attempt.servers.send({ ...message, ...(checkpoint ? { checkpoint } : {}), ...decided }, attempt.numbers());
    const held = checkpoint && this.options.residualNames ? { checkpoint } : {};
    attempt.members.send({ ...message, ...held, ...(isLast ? { last: true } : {}) }, attempt.numbers());
    if (isLast) this.finishTraining();
    else if (stops.isAsked) {
      this.table.take('commit', 'STOPPING');
      stops.extend();
    }
    // A checkpoint that the attempt stops with is still to have what is kept at those that leave; others may have it to hand on.
    const mayGo = (member: Member): boolean =>
      !this.givers.has(member) &&
      (!isLast || !measurements.owes(member.id)) &&
      (isLast || !this.awaitsAway() || member.replicas.length === 0);
    if (!(stops.isAsked && held.checkpoint)) for (const member of leaving) if (mayGo(member)) attendance.letGo(member);
  }

  /** With EF21: nobody stays who could have what is kept at those that leave. */
  private isDeserted(leaving: readonly Member[]): boolean {
    const stays = this.parts.attempt.members.live().some(({ leaving: reason }) => reason === undefined);
    return this.options.keepsEstimates === true && leaving.length > 0 && !stays && !this.awaitsAway();
  }

  /** With EF21: who is away keeps its replicas until it is back or lost, so that a short break costs no attempt. Nothing moves meanwhile. */
  private awaitsAway(): boolean {
    return this.options.keepsEstimates === true && this.parts.attempt.members.hasAway;
  }

  /** At a commit: balanced blocks over everybody who stays. Returns the members when the view has changed. */
  private rebalance(leaving: readonly Member[]): Members | undefined {
    const { attempt, attendance } = this.parts;
    if (!attendance.hasChanged || this.awaitsAway()) return undefined;
    attendance.hasChanged = false;
    const staying = attempt.members.live().filter((member) => !leaving.includes(member));
    if (!attempt.members.rebalance(staying)) return undefined;
    const view = ++attempt.view;
    const members = attempt.members.list();
    const said = staying.map(({ id, replicas }) => `${id} has [${replicas.join(' ')}]`).join(', ') || 'no members';
    attempt.event('view.changed', `view ${view}: ${said}`, { view, round: attempt.round, members });
    return members;
  }

  /** Replicas that another worker computes from now on, where what a codec has kept of them can follow. @param before who had each of them */
  private movedSince(before: ReadonlyMap<number, Member>): number[] {
    const now = this.parts.attempt.members.holders();
    return [...before.keys()].filter((replica) => now.has(replica) && now.get(replica) !== before.get(replica)).sort((a, b) => a - b);
  }

  finishTraining(): void {
    const { finish } = this.parts;
    this.table.take('commit', finish.firstState);
    finish.begin();
  }
}
