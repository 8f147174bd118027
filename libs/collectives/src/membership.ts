/**
 * A group whose members may be lost while the others go on: `run` does operations as a Group does. When a member is lost, those that are left form a
 * next view (views.ts), and `run` ends with a ViewChangedError: who had called an operation learns whether it counts as done. It does nothing more
 * before `adopt`: whoever uses it has to lay its work out anew for other members first.
 */
import type { Clock } from '@paceline/exchange';
import { agreement } from './agreement.js';
import { MemberLostError } from './errors.js';
import { Group, type Called, type Collective } from './group.js';
import type { Joined } from './join.js';
import type { Link } from './link.js';
import type { NextView, View } from './views.js';

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
  /** Hears of each view, and whom it has no more. */
  onChange: ((view: NextView, lost: readonly number[]) => void) | undefined;

  constructor(private readonly options: MembershipOptions) {
    const { joined, names } = options;
    this.confirmed = { number: 0, members: names.map((_, member) => member) };
    this.group = this.groupOf(this.confirmed.members, joined.links);
    this.listen();
    joined.keepOut((member) => !this.confirmed.members.includes(member));
  }

  get view(): View {
    return this.confirmed;
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
  }

  leave(reason: string): void {
    this.hasLeft = true;
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
      if (end?.kind === 'gone' && this.options.onMemberLoss === 'continue' && !this.hasLeft)
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

  /** One attempt. */
  private async formed(suspects: readonly number[]): Promise<NextView> {
    const { joined, clock, deadlineMs, self, names } = this.options;
    const { confirmed, accepted } = this;
    const { links, dead } = await joined.again({
      among: confirmed.members,
      suspects,
      graceMs: Math.min(GRACE_MS, deadlineMs / 8),
      deadlineMs,
    });
    const here = links.flatMap((link, member) => (link?.isOpen ? [member] : []));
    const { completed } = this; // one may have ended when the member was missed
    const view = await agreement({ self, names, links, report: { confirmed, accepted, completed, here, dead }, clock, deadlineMs });
    const { number, members } = view;
    this.accepted.push({ number, members });
    for (const [member, link] of links.entries()) if (!members.includes(member)) link?.connection.close();
    const group = this.groupOf(members, links);
    try {
      await group.run({ what: `view ${number}: ${JSON.stringify(view)}`, operations: [] });
    } catch (error) {
      const lost = inCluster(error, members);
      // Who has heard of another view is in none of both yet.
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
  if (!(error instanceof MemberLostError)) return error;
  const named = error.members.map((member) => members[member]!);
  return new MemberLostError(named, error.message, error.kind);
}
