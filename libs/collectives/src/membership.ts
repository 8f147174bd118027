/**
 * A group whose members may be lost while the others go on: `run` does operations as a Group does. When a member is lost, those that are left form a
 * next view (views.ts), and `run` ends with a ViewChangedError: who had called an operation learns whether it counts as done. It does nothing more
 * before `adopt`: whoever uses it has to lay its work out anew for other members first. A process that comes for the place of one that was lost
 * (`isNew`) asks what was done, and does `enter`: from then on it is as the others, and lays its work out with them.
 */
import type { Clock } from '@paceline/exchange';
import { answer, Applicant } from './admission.js';
import { agreement } from './agreement.js';
import { MemberLostError } from './errors.js';
import { Group, type Called, type Collective } from './group.js';
import type { Joined, Offer } from './join.js';
import type { Link } from './link.js';
import { NEVER, type NextView, type View } from './views.js';

export interface MembershipOptions {
  readonly joined: Joined;
  /** Index in the cluster. */
  readonly self: number;
  /** Names of all members of the cluster, for messages. */
  readonly names: readonly string[];
  readonly clock: Clock;
  readonly deadlineMs: number;
  /** What becomes of the others when a member is lost. */
  readonly onMemberLoss: 'stop' | 'continue';
  /** What a process that comes anew has to know of what was done, from so much on that it knows: in a measure of whoever uses this. */
  readonly told?: (from: number) => Uint8Array;
  /** Whether all of that can be told now. */
  readonly mayEnter?: () => boolean;
  /** A process that comes anew waits for so long for a member that lets it in, and then for so long to be let in. Default: deadlineMs. */
  readonly enterDeadlineMs?: number;
}

/** The others go on, with other members. */
export class ViewChangedError extends Error {
  override readonly name = 'ViewChangedError';
  constructor(readonly view: NextView) {
    super(`view ${view.number} has ${view.members.length} members`);
  }
}

/** A member that others take for lost may show for so long that it is not; at most an eighth of the deadline. */
const GRACE_MS = 2_000;
/** Views that are tried one after the other when more members are lost while one is formed. */
const ATTEMPTS = 5;
/** Before a process that was not let in, or is not ready, asks again; and before a place is offered again that nobody came for. */
const [ASK_AGAIN_MS, OFFER_AGAIN_MS] = [50, 2_000];

export class Membership {
  private group: Group;
  private confirmed: View;
  /** Views after it that this member has agreed to. */
  private accepted: View[] = [];
  private completed = 0;
  private changing: Promise<void> | undefined;
  /** A view that is not adopted yet, or why there is none. */
  private next: NextView | MemberLostError | undefined;
  private hasLeft = false;
  private readonly before = { sentBytes: 0, receivedBytes: 0 };
  /** This process came for the place of one that was lost, and has not the state of the others yet. */
  private hasNoState: boolean;
  /** The first view that it has accepted then. */
  private since: number | undefined;
  private applicant: Applicant | undefined;
  private firstOffer: Offer | undefined;
  /** The members that are let in with the view that is formed now. */
  private readonly entering = new Set<number>();
  private offeredAtMs = -Infinity;
  private readonly applicants = new Set<Link>();
  /** The view is laid out: another process may be let in. */
  private isLaidOut = true;
  /** Hears of each view, and whom it has no more. */
  onChange: ((view: NextView, lost: readonly number[]) => void) | undefined;

  constructor(private readonly options: MembershipOptions) {
    const { joined, names } = options;
    this.firstOffer = joined.offer;
    this.hasNoState = joined.offer !== undefined;
    this.since = this.hasNoState ? NEVER : undefined;
    this.confirmed = { number: 0, members: this.hasNoState ? [] : names.map((_, member) => member) };
    this.group = this.groupOf(this.hasNoState ? [options.self] : this.confirmed.members, joined.links);
    if (!this.hasNoState) this.listen();
    joined.keep({
      isOut: (member) => !this.hasNoState && !this.confirmed.members.includes(member) && !this.entering.has(member),
      offers: (member) => this.isFirst && this.isFree(member),
      arrived: (member, link) => {
        this.applicants.add(link);
        answer(link, { told: (from) => options.told?.(from) ?? new Uint8Array(0), enter: () => this.offer(member) });
      },
    });
  }

  /** This process came for the place of one that was lost, and has not the state of the others yet. */
  get isNew(): boolean {
    return this.hasNoState;
  }

  private get isFirst(): boolean {
    return !this.hasNoState && this.confirmed.members[0] === this.options.self;
  }

  private isFree(member: number): boolean {
    const { onMemberLoss, names } = this.options;
    return onMemberLoss === 'continue' && !this.hasLeft && member < names.length && !this.confirmed.members.includes(member);
  }

  /** A process is ready for the place of a member that was lost: the members leave what they are at, and form a view with it. */
  private offer(member: number): readonly number[] | undefined {
    for (const link of this.applicants) if (!link.isOpen) this.applicants.delete(link);
    const { clock, names } = this.options;
    const { confirmed, group } = this;
    const isReady = this.isLaidOut && !this.changing && !group.end && (this.options.mayEnter?.() ?? true);
    if (!this.isFirst || !this.isFree(member) || !isReady) return undefined;
    if (clock.now() - this.offeredAtMs < OFFER_AGAIN_MS) return undefined;
    this.offeredAtMs = clock.now();
    // After the answer.
    clock.after(0, () => group.fail(new MemberLostError([member], `${names[member]!} has come again`, 'joins')));
    return confirmed.members;
  }

  /**
   * For a process that comes anew: what the others did, from so much on that it knows.
   * @throws MemberLostError when nobody answers who may let it in
   */
  async told(from: number): Promise<Uint8Array> {
    return this.asked((applicant) => applicant.told(from));
  }

  /**
   * Asks the others to be let in until they do. What they do is awaited then: adopt, and lay the work out.
   * @param known how much it knows of what they did; `entrant` of the view has it
   */
  async enter(known: number): Promise<NextView> {
    const { joined } = this.options;
    this.completed = known;
    this.next = undefined;
    return this.asked(async (applicant, untilMs) => {
      for (;;) {
        this.checkDue(untilMs);
        joined.awaits();
        const members = await applicant.enter();
        if (!members) {
          await this.soon();
          continue;
        }
        applicant.close();
        this.applicant = undefined;
        const view = await this.formed([], members);
        this.take(view);
        return view;
      }
    });
  }

  private get enterDeadlineMs(): number {
    return this.options.enterDeadlineMs ?? this.options.deadlineMs;
  }

  /** @throws MemberLostError `few` when nobody has let this process in for so long */
  private checkDue(untilMs: number, last?: Error): void {
    if (this.options.clock.now() <= untilMs) return;
    const why = last ? `: ${last.message}` : '';
    throw new MemberLostError([], `waited ${this.enterDeadlineMs} ms for the others to let this process in${why}`, 'few');
  }

  /** Something that a member is asked; when it is gone, or has gone on without this process, another one is, until the deadline. */
  private async asked<T>(ask: (applicant: Applicant, untilMs: number) => Promise<T>): Promise<T> {
    const { joined, names, clock } = this.options;
    const untilMs = clock.now() + this.enterDeadlineMs;
    for (;;) {
      if (!this.applicant) {
        const offer = this.firstOffer ?? (await joined.apply(this.enterDeadlineMs));
        this.firstOffer = undefined;
        this.applicant = new Applicant(offer, names[offer.member]!, clock);
      }
      try {
        return await ask(this.applicant, untilMs);
      } catch (error) {
        if (!(error instanceof MemberLostError) || error.kind === 'few' || error.kind === 'differs' || this.hasLeft) throw error;
        this.applicant?.close();
        this.applicant = undefined;
        this.checkDue(untilMs, error);
        await this.soon();
      }
    }
  }

  private soon(): Promise<void> {
    return new Promise((resolve) => void this.options.clock.after(ASK_AGAIN_MS, resolve));
  }

  get view(): View {
    return this.confirmed;
  }

  /** That count, completed by this member. */
  get operations(): number {
    return this.completed;
  }

  /** Bytes that this member has received and sent as payloads of data frames. */
  get counters(): { readonly sentBytes: number; readonly receivedBytes: number } {
    const { sentBytes, receivedBytes } = this.group.counters;
    return { sentBytes: this.before.sentBytes + sentBytes, receivedBytes: this.before.receivedBytes + receivedBytes };
  }

  /** The group as it is now, for whoever measures before the first operation. */
  get present(): Group {
    return this.group;
  }

  /**
   * @param counts whether the operation is one of those that all members do in the same order, and not one by which a view is laid out
   * @throws ViewChangedError when members were lost and the others go on
   * @throws MemberLostError
   */
  async run(collective: Collective, counts = true): Promise<Called> {
    await this.changing;
    if (this.next) throw endOf(this.next);
    const { group, confirmed } = this;
    try {
      const called = await group.run(collective);
      if (counts) this.completed++;
      return called;
    } catch (error) {
      await this.changing;
      if (this.next) throw endOf(this.next);
      throw inCluster(error, confirmed.members);
    }
  }

  /** The work is laid out for the members of this view: operations go on. */
  adopt(number: number): void {
    if (this.next && !(this.next instanceof MemberLostError) && this.next.number === number) this.next = undefined;
  }

  /** This member has got the state of the one that had completed most. */
  catchUp(completed: number): void {
    this.completed = completed;
    this.hasNoState = false;
    this.isLaidOut = true;
  }

  leave(reason: string): void {
    this.hasLeft = true;
    for (const { connection } of this.applicants) connection.close();
    this.group.leave(reason);
  }

  private groupOf(members: readonly number[], links: readonly (Link | undefined)[]): Group {
    const { self, names, clock, deadlineMs } = this.options;
    const named = members.map((member) => names[member]!);
    const own = members.map((member) => (member === self ? undefined : links[member]));
    return new Group({ self: members.indexOf(self), names: named, links: own, clock, deadlineMs });
  }

  private listen(): void {
    const { group, confirmed } = this;
    group.onLost = () => {
      const { end } = group; // none where a connection has ended between two operations: who has done all may go
      if (end?.kind === 'joins') this.entering.add(end.members[0]!);
      if ((end?.kind === 'gone' || end?.kind === 'joins') && this.options.onMemberLoss === 'continue' && !this.hasLeft)
        this.change(inCluster(end, confirmed.members) as MemberLostError);
    };
    if (group.end) group.onLost(group.end);
  }

  private change(lost: MemberLostError): void {
    this.next = undefined;
    this.changing = this.changed(lost).then(
      (view) => this.take(view),
      (error: unknown) => {
        this.next = error instanceof MemberLostError ? error : new MemberLostError(lost.members, (error as Error).message, 'few');
        this.changing = undefined;
      },
    );
  }

  private take(view: NextView): void {
    this.changing = undefined;
    this.next = view;
    const lost = this.confirmed.members.filter((member) => !view.members.includes(member));
    this.confirmed = { number: view.number, members: view.members };
    this.accepted = [];
    this.entering.clear();
    this.isLaidOut = false;
    if (view.entrant) this.offeredAtMs = -Infinity;
    this.onChange?.(view, lost);
    this.listen();
  }

  private async changed(lost: MemberLostError): Promise<NextView> {
    let { members: suspects } = lost;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.formed(suspects);
      } catch (error) {
        if (!(error instanceof MemberLostError) || error.kind !== 'gone' || this.hasLeft) throw error;
        const told = `${attempt} times somebody was lost while the others agreed on who goes on: ${error.message}`;
        if (attempt === ATTEMPTS) throw new MemberLostError(error.members, told, 'few');
        suspects = error.members;
      }
    }
  }

  /**
   * One attempt.
   * @param others whom a process comes together with that is new
   */
  private async formed(suspects: readonly number[], others: readonly number[] = []): Promise<NextView> {
    const { joined, clock, deadlineMs, self, names } = this.options;
    const { confirmed, accepted, entering, since } = this;
    const { links, dead } = await joined.again({
      among: [...new Set([...(others.length > 0 ? others : confirmed.members), ...entering])],
      suspects: [...suspects, ...entering],
      graceMs: Math.min(GRACE_MS, deadlineMs / 8),
      deadlineMs,
      isAwaited: others.length > 0,
    });
    const here = links.flatMap((link, member) => (link?.isOpen ? [member] : []));
    const { completed } = this; // one may have ended when the member was missed
    const anew = since === undefined ? {} : { since, isNew: this.hasNoState };
    const report = { confirmed, accepted, completed, here, dead, admits: [...entering], ...anew };
    const view = await agreement({ self, names, links, report, clock, deadlineMs });
    const { number, members } = view;
    this.accepted.push({ number, members });
    if (since !== undefined) this.since = Math.min(since, number);
    for (const [member, link] of links.entries()) if (!members.includes(member)) link?.connection.close();
    const group = this.groupOf(members, links);
    try {
      await group.run({ what: `view ${number}: ${JSON.stringify(view)}`, operations: [] });
    } catch (error) {
      const lost = inCluster(error, members);
      // A member that has heard of another view is in neither of the two yet.
      throw lost instanceof MemberLostError && lost.kind === 'differs' ? new MemberLostError(lost.members, lost.message) : lost;
    }
    this.before.sentBytes += this.group.counters.sentBytes;
    this.before.receivedBytes += this.group.counters.receivedBytes;
    this.group = group;
    return view;
  }
}

const endOf = (next: NextView | MemberLostError): Error => (next instanceof MemberLostError ? next : new ViewChangedError(next));

/** An error of a group, with the indices of its members in the cluster. */
function inCluster(error: unknown, members: readonly number[]): unknown {
  if (!(error instanceof MemberLostError) || error.kind === 'joins') return error;
  const named = error.members.map((member) => members[member]!);
  return new MemberLostError(named, error.message, error.kind);
}
