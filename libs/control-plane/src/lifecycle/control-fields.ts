/** What the control plane writes into a run's control hash. Every field names its attempt, so an older one changes nothing. */
import { z } from 'zod';
import {
  ackFieldName,
  ackValue,
  claimsSchema,
  leadSchema,
  type Acknowledged,
  type Claims,
  type ControlFields,
  type MemberSeats,
} from '../contract/control.js';
import type { ServerAddress } from '../contract/queues.js';
import type { Lead } from '../arbiter.js';
import { controlFor } from '../report-stream.js';

export const startField = (attempt: number, servers: readonly ServerAddress[], standbys: readonly ServerAddress[] = []): string =>
  JSON.stringify({ attempt, servers, ...(standbys.length > 0 ? { standbys } : {}) });
export const ackFields = (attempt: number, term: number, acknowledged: Acknowledged): ControlFields => ({
  [ackFieldName(attempt)]: ackValue(acknowledged, term),
});
/** Also for an attempt that is over here, while somebody may still go on with it. */
export const cancelField = (attempt: number): string => `${attempt}:cancel`;
export const pauseField = (attempt: number): string => `${attempt}:pause`;
export const workersField = (attempt: number, workers: number): string => `${attempt}:${workers}`;

export const seatsField = (attempt: number, seats: MemberSeats['seats']): string =>
  JSON.stringify({ attempt, seats } satisfies MemberSeats);

export const claimsField = (attempt: number, claims: Claims['claims'], open: NonNullable<Claims['open']> = []): string =>
  JSON.stringify({ attempt, claims, ...(open.length > 0 ? { open } : {}) } satisfies Claims);

/**
 * Whether nothing of an attempt goes on: it was cancelled, or a field names a later one. A pause that is taken back at once begins the next attempt before
 * anybody is told of the end of this one, and Redis may have lost that word. The next attempt writes `start`, or `claims` while it misses a part.
 */
export function isAttemptOver({ action, start, claims }: ControlFields, attempt: number): boolean {
  if (controlFor(action, attempt) === 'cancel') return true;
  return Number.parseInt(action ?? '', 10) > attempt || [start, claims].some((field) => (attemptIn(field) ?? 0) > attempt);
}

const ofAttempt = z.object({ attempt: z.int().min(1) });

function attemptIn(field: string | undefined): number | undefined {
  if (field === undefined) return undefined;
  try {
    return ofAttempt.parse(JSON.parse(field)).attempt;
  } catch {
    return undefined; // written by nobody that we know
  }
}

interface Part {
  readonly attempt: number;
  readonly index: number;
  readonly role: 'primary' | 'standby';
  readonly incarnation: number;
}

/** The server whose claim counts in place of that of this placement, or of a later one; undefined when there is none. */
export const claimantOf = (field: string | undefined, part: Part): string | undefined => {
  const isSame = isOfPart(part);
  return claimsIn(field, part.attempt)?.claims.find((claim) => isSame(claim) && claim.incarnation >= part.incarnation)?.serverId;
};

/** The incarnation that a claim of this part has to name, if that is a later one and nobody has claimed it. */
export const openIncarnationOf = (field: string | undefined, part: Part): number | undefined => {
  const isSame = isOfPart(part);
  return claimsIn(field, part.attempt)?.open?.find((open) => isSame(open) && open.incarnation > part.incarnation)?.incarnation;
};

const isOfPart =
  (part: Part) =>
  ({ index, role }: Pick<Part, 'index' | 'role'>): boolean =>
    index === part.index && role === part.role;

function claimsIn(field: string | undefined, attempt: number): Claims | undefined {
  if (field === undefined) return undefined;
  try {
    const claims = claimsSchema.parse(JSON.parse(field));
    return claims.attempt === attempt ? claims : undefined;
  } catch {
    return undefined; // written by nobody that we know
  }
}

/** Whether the field of a shard says what the arbiter has decided about it. */
export function saysLead(field: string | undefined, attempt: number, { term, primary, standby }: Lead): boolean {
  if (field === undefined) return false;
  try {
    const said = leadSchema.parse(JSON.parse(field));
    return said.attempt === attempt && said.term === term && said.primary === primary && said.standby === standby;
  } catch {
    return false; // written by nobody that we know: written again
  }
}
