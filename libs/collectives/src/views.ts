/**
 * Which members go on when some are lost: pure decisions. A view is the members that do operations together. When one is lost, those that are left come
 * together again (join.ts `again`), and tell each other where they are. The lowest one that is there decides for all:
 *
 * | who | says | to whom | what follows |
 * |---|---|---|---|
 * | every member that is left | its report: views, operations that it has completed, whom it is connected to, who is dead | all others that are there | |
 * | the lowest that is there | the next view, or why there is none | all others that are there | those that are not in it are told that they are out |
 * | every member of the view | the call of an operation that names the view | all members of the view | with all calls here the view is confirmed |
 *
 * Two views may never go on side by side, also where a network is cut and nobody has died. So a next view needs a quorum of the last view that anybody
 * has confirmed, and of every later one that anybody has accepted: more than half of its members, or half with the lowest of them. Two quorums of a view
 * have a member in common, each member accepts the views one after the other, and no operation ends before all members of its view have called.
 *
 * Members whose hosts say that their processes have ended count as members: one of them may have confirmed another view before, with somebody that is not
 * here and lives. Only where all that are not here have ended is no quorum needed: then whoever could be in another view has ended.
 *
 * All members call the same operations, and none ends before all have called it. So when a member is lost, those that are left have completed n operations,
 * or n − 1. With n completed by one of them the operation has its effect: that one hands its state to the others. Otherwise all do it again.
 */
import { ProtocolError } from '@paceline/protocol';

export interface View {
  /** From 0, the members that the group began with. */
  readonly number: number;
  /** Their indices in the cluster, in order. */
  readonly members: readonly number[];
}

export interface Report {
  readonly confirmed: View;
  /** Views after the confirmed one. */
  readonly accepted: readonly View[];
  /** Operations. */
  readonly completed: number;
  /** Members that it is connected to. */
  readonly here: readonly number[];
  readonly dead: readonly number[];
}

export interface NextView extends View {
  /** Operations that count as completed for all. */
  readonly completed: number;
  /** Members that have completed one less. */
  readonly behind: readonly number[];
  /** The lowest member that has completed all. */
  readonly source: number;
}

/** @returns the next view; or, in words, why there is none */
export function nextView(reports: ReadonlyMap<number, Report>): NextView | string {
  const confirmed = [...reports.values()].map((report) => report.confirmed).reduce((a, b) => (b.number > a.number ? b : a));
  const members = connected(
    reports,
    [...reports.keys()].filter((member) => confirmed.members.includes(member)).sort((a, b) => a - b),
  );
  const dead = new Set([...reports.values()].flatMap((report) => report.dead).filter((member) => !reports.has(member)));
  const views = [...reports.values()].flatMap(({ accepted }) => accepted);
  for (const view of [confirmed, ...views.filter(({ number }) => number > confirmed.number)]) {
    const here = members.filter((member) => view.members.includes(member));
    const missing = view.members.filter((member) => !members.includes(member));
    if (missing.every((member) => dead.has(member))) continue;
    const { length: count } = view.members;
    if (here.length * 2 > count || (here.length * 2 === count && here[0] === view.members[0])) continue;
    return `${here.length} of ${count} processes are left: fewer than half, or half without the first of them. The others may go on by themselves, so these must not`;
  }
  const completedBy = (member: number): number => reports.get(member)!.completed;
  const completed = Math.max(...members.map(completedBy));
  return {
    number: Math.max(confirmed.number, ...views.map(({ number }) => number)) + 1,
    members,
    completed,
    behind: members.filter((member) => completedBy(member) < completed),
    source: members.find((member) => completedBy(member) === completed)!,
  };
}

/** Those that are all connected to each other: the highest one that misses somebody is left out, again and again. */
function connected(reports: ReadonlyMap<number, Report>, members: readonly number[]): readonly number[] {
  const misses = (a: number, b: number): boolean => a !== b && !reports.get(a)!.here.includes(b);
  const out = members.findLast((a) => members.some((b) => misses(a, b) || misses(b, a)));
  return out === undefined ? members : connected(reports, members.filter((member) => member !== out)); // prettier-ignore
}

const isCount = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;
const isCounts = (value: unknown): value is number[] => Array.isArray(value) && value.every(isCount);
const isView = (value: unknown): value is View => isCount((value as View | null)?.number) && isCounts((value as View).members);

export const encoded = (value: Report | NextView | { readonly none: string }): string =>
  Buffer.from(JSON.stringify(value)).toString('base64');

const decoded = (text: string): unknown => {
  try {
    return JSON.parse(Buffer.from(text, 'base64').toString());
  } catch (cause) {
    throw new ProtocolError('BAD_MESSAGE', `what a member says of its view is no JSON: ${(cause as Error).message}`);
  }
};

/** @throws ProtocolError BAD_MESSAGE */
export function reportIn(text: string): Report {
  const report = decoded(text) as Report;
  const isReport =
    isView(report?.confirmed) &&
    Array.isArray(report.accepted) &&
    report.accepted.every(isView) &&
    isCount(report.completed) &&
    isCounts(report.here) &&
    isCounts(report.dead);
  if (isReport) return report;
  throw new ProtocolError('BAD_MESSAGE', 'the report of a member has not the fields of one');
}

/** @returns as nextView @throws ProtocolError BAD_MESSAGE */
export function nextIn(text: string): NextView | string {
  const next = decoded(text) as NextView & { readonly none?: unknown };
  if (typeof next?.none === 'string') return next.none;
  if (isView(next) && isCount(next.completed) && isCounts(next.behind) && isCount(next.source)) return next;
  throw new ProtocolError('BAD_MESSAGE', 'the next view of a member has not the fields of one');
}
