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
 *
 * A process that comes for the place of one that was lost (admission.ts) is new until it has the state of the others. It decides nothing before: it has
 * completed nothing, and is no part of a quorum of a view that was before it came, where it counts as one that has ended. It is in the next view if
 * all others let it in, and if the view is formed for that; when somebody is lost before it has the state, the next view is without it.
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
  /** Members that come anew and that it lets in. */
  readonly admits?: readonly number[];
  /** The first view that this process has accepted, where it came anew; `NEVER` before. */
  readonly since?: number;
  /** It has not the state of the others yet. `completed` is how much of what they did it knows, in their measure. */
  readonly isNew?: boolean;
}

/** No view has that number. */
export const NEVER = 2 ** 40;

export interface Entrant {
  readonly member: number;
  readonly known: number;
}

export interface NextView extends View {
  /** Operations that count as completed for all. */
  readonly completed: number;
  /** Members that have completed one less. */
  readonly behind: readonly number[];
  /** The lowest member that has completed all. */
  readonly source: number;
  /** A member that comes anew, and how much it knows of what the others did. */
  readonly entrant?: Entrant;
}

const NOBODY = 'nobody is left that has the state of the training: those that went on have ended';

/** @returns the next view; or, in words, why there is none */
export function nextView(reports: ReadonlyMap<number, Report>): NextView | string {
  const isNew = (member: number): boolean => reports.get(member)!.isNew === true;
  const isSince = (member: number, { number }: View): boolean => (reports.get(member)!.since ?? 0) <= number;
  const all = [...reports.keys()].sort((a, b) => a - b);
  const known = all.map((member) => reports.get(member)!).filter((report) => (report.since ?? 0) <= report.confirmed.number);
  if (known.length === 0) return NOBODY;
  const confirmed = known.map((report) => report.confirmed).reduce((a, b) => (b.number > a.number ? b : a));
  const members = connected(
    reports,
    all.filter((member) => !isNew(member) && confirmed.members.includes(member)),
  );
  if (members.length === 0) return NOBODY;
  // Who is new decides with the others about views that it has accepted, whether it is in the next one or not.
  const reached = all.filter((member) => isNew(member) && members.every((other) => !misses(reports, member, other)));
  const entrant = reached.find((member) => members.every((other) => reports.get(other)!.admits?.includes(member)));
  const dead = new Set([...reports.values()].flatMap((report) => report.dead).filter((member) => !reports.has(member)));
  const views = [...reports.values()].flatMap(({ accepted }) => accepted);
  for (const view of [confirmed, ...views.filter(({ number }) => number > confirmed.number)]) {
    const here = [...members, ...reached].sort((a, b) => a - b).filter((member) => view.members.includes(member) && isSince(member, view));
    const missing = view.members.filter((member) => !here.includes(member));
    const hasEnded = (member: number): boolean => dead.has(member) || (reports.has(member) && !isSince(member, view));
    if (missing.every(hasEnded)) continue;
    const { length: count } = view.members;
    if (here.length * 2 > count || (here.length * 2 === count && here[0] === view.members[0])) continue;
    return `${here.length} of ${count} processes are left: fewer than half, or half without the first of them. The others may go on by themselves, so these must not`;
  }
  const completedBy = (member: number): number => reports.get(member)!.completed;
  const completed = Math.max(...members.map(completedBy));
  return {
    number: Math.max(confirmed.number, ...views.map(({ number }) => number)) + 1,
    members: entrant === undefined ? members : [...members, entrant].sort((a, b) => a - b),
    completed,
    behind: members.filter((member) => completedBy(member) < completed),
    source: members.find((member) => completedBy(member) === completed)!,
    ...(entrant !== undefined && { entrant: { member: entrant, known: completedBy(entrant) } }),
  };
}

/** Those that are all connected to each other: the highest one that misses somebody is left out, again and again. */
function connected(reports: ReadonlyMap<number, Report>, members: readonly number[]): readonly number[] {
  const out = members.findLast((a) => members.some((b) => misses(reports, a, b)));
  return out === undefined ? members : connected(reports, members.filter((member) => member !== out)); // prettier-ignore
}

/** Whether one of both is not connected to the other. */
const misses = (reports: ReadonlyMap<number, Report>, a: number, b: number): boolean =>
  a !== b && (!reports.get(a)!.here.includes(b) || !reports.get(b)!.here.includes(a));

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
    isCounts(report.dead) &&
    isCounts(report.admits ?? []) &&
    isCount(report.since ?? 0) &&
    typeof (report.isNew ?? false) === 'boolean';
  if (isReport) return report;
  throw new ProtocolError('BAD_MESSAGE', 'the report of a member has not the fields of one');
}

/** @returns as nextView @throws ProtocolError BAD_MESSAGE */
export function nextIn(text: string): NextView | string {
  const next = decoded(text) as NextView & { readonly none?: unknown };
  if (typeof next?.none === 'string') return next.none;
  const isEntrant = ({ member, known }: Entrant): boolean => isCount(member) && isCount(known);
  const isNext = isView(next) && isCount(next.completed) && isCounts(next.behind) && isCount(next.source);
  if (isNext && (next.entrant === undefined || isEntrant(next.entrant))) return next;
  throw new ProtocolError('BAD_MESSAGE', 'the next view of a member has not the fields of one');
}
