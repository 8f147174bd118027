/** How members that have come together again agree on a view: every one reports to all, and the lowest decides (views.ts has the table). */
import type { Clock } from '@paceline/exchange';
import { ProtocolError, type Message } from '@paceline/protocol';
import { MemberLostError } from './errors.js';
import { NUMBERS } from './greeting.js';
import type { Link } from './link.js';
import { encoded, nextIn, nextView, reportIn, type NextView, type Report } from './views.js';

export interface AgreementOptions {
  readonly self: number;
  readonly names: readonly string[];
  /** By member of the cluster; undefined for those that are not here. */
  readonly links: readonly (Link | undefined)[];
  readonly report: Report;
  readonly clock: Clock;
  readonly deadlineMs: number;
}

/** Operations of a group are numbered from 1: what is said before them has this number. */
const BEFORE = 0;
const [REPORT, NEXT] = ['report', 'next view'];

/** @throws MemberLostError `gone` when somebody is lost meanwhile, `few` when those that are left must not go on, `out` for a member that is in no view */
export async function agreement(options: AgreementOptions): Promise<NextView> {
  const agreeing = new Agreeing(options);
  const next = await agreeing.decided();
  if (typeof next === 'string') throw new MemberLostError([], next, 'few');
  const { self } = options;
  if (!next.members.includes(self)) throw new MemberLostError([self], 'the others do not reach this process, and go on without it', 'out');
  return next;
}

class Agreeing {
  private readonly links: ReadonlyMap<number, Link>;
  private readonly reports = new Map<number, Report>();
  private readonly closed = new Set<number>();
  private readonly unread = new Map<number, Message[]>();
  private readonly lowest: number;
  private settle: (next: NextView | string) => void = () => undefined;
  private fail: (error: Error) => void = () => undefined;
  private isSettled = false;

  constructor(private readonly options: AgreementOptions) {
    const { self, links } = options;
    this.links = new Map(links.flatMap((link, member) => (link ? [[member, link] as const] : [])));
    this.lowest = Math.min(self, ...this.links.keys());
    this.reports.set(self, options.report);
  }

  async decided(): Promise<NextView | string> {
    const { clock, deadlineMs, report, names } = this.options;
    let cancel = (): void => undefined;
    try {
      return await new Promise<NextView | string>((resolve, reject) => {
        this.settle = resolve;
        this.fail = reject;
        cancel = clock.after(deadlineMs, () => {
          const late = [...this.links.keys()].filter((member) => (this.isFirst ? !this.reports.has(member) : member === this.lowest));
          const who = late.map((member) => names[member]!).join(', ');
          reject(new MemberLostError(late, `waited ${deadlineMs} ms for ${who} to agree on who goes on`));
        });
        for (const link of this.links.values()) say(link, REPORT, encoded(report));
        for (const [member, link] of this.links) this.take(member, link);
        this.check();
      });
    } finally {
      cancel();
      this.isSettled = true;
      for (const [member, link] of this.links) link.release(this.unread.get(member) ?? []);
    }
  }

  private get isFirst(): boolean {
    return this.lowest === this.options.self;
  }

  private take(member: number, link: Link): void {
    const refuse = (): never => {
      throw new ProtocolError('BAD_ROUND', 'data came before there is a view');
    };
    link.take({
      payloadFor: refuse,
      data: refuse,
      message: (message) => this.heard(member, message),
      closed: () => {
        this.closed.add(member);
        if (member === this.lowest) this.fail(this.lostMeanwhile([member], 'it had not decided who goes on'));
        this.check();
      },
    });
  }

  private lostMeanwhile(members: readonly number[], why: string): MemberLostError {
    return new MemberLostError(members, `${members.map((member) => this.options.names[member]!).join(', ')} was lost: ${why}`);
  }

  private heard(member: number, message: Message): void {
    if (message.type !== 'call' || message.number !== BEFORE) {
      this.unread.set(member, [...(this.unread.get(member) ?? []), message]); // of an operation in the view that this member does not know yet
      return;
    }
    if (message.what === REPORT) this.reports.set(member, reportIn(message.values));
    else if (member === this.lowest) this.settle(nextIn(message.values));
    this.check();
  }

  /** The lowest decides when all have reported that are still here. */
  private check(): void {
    if (!this.isFirst || this.isSettled) return;
    if (![...this.links.keys()].every((member) => this.reports.has(member) || this.closed.has(member))) return;
    this.isSettled = true;
    const reports = new Map([...this.reports].filter(([member]) => !this.closed.has(member)));
    const next = nextView(reports);
    // Whether somebody who was lost meanwhile has ended is known when those that are left come together again.
    if (typeof next === 'string' && this.closed.size > 0) return this.fail(this.lostMeanwhile([...this.closed], next));
    const told = encoded(typeof next === 'string' ? { none: next } : next);
    for (const link of this.links.values()) say(link, NEXT, told);
    this.settle(next);
  }
}

function say({ connection }: Link, what: string, values: string): void {
  if (connection.isOpen) connection.sendMessage({ type: 'call', number: BEFORE, what, values, failures: [] }, NUMBERS);
}
