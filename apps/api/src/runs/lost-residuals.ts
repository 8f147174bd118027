/** Whether a run has lost what its codec keeps of replicas, as its events tell: from that round on it does not have the bits of an undisturbed one. */
import { Field, Int, ObjectType } from '@nestjs/graphql';
import type { LineagePart } from '@paceline/control-plane';
import { RESIDUAL_LOST, residualLossSchema } from '@paceline/protocol';
import { keepsRest, sendsDeltas, type RunSpec } from '@paceline/spec';
import type { Database } from '../database/database.js';
import { readLineage } from './stored-lineage.js';

/** The largest Int of GraphQL. */
const MOST = 2 ** 31 - 1;
/** A coordinator writes at most some 40 of each cause. */
const MOST_EVENTS = 10_000;

/** GraphQL and REST say the same. */
export const LOST_RESIDUALS = {
  itself:
    'Residuals that a codec with error feedback, dgc or power-sgd has lost, or what workers had of parameters that are sent as differences: the run does not have the bits of an undisturbed one.',
  fromRound: 'The first round with other bits.',
  replicas:
    'How many times a replica has begun a round without what the round before had left of it, at least: a coordinator that is lost may not have told the last ones. All replicas, where it was of the parameters.',
  causes:
    'Why: `checkpoint`, an attempt began with a checkpoint that lacks them; `moved`, another worker computes the replica; `gap`, the worker has missed a round.',
} as const;

@ObjectType({ description: LOST_RESIDUALS.itself })
export class LostResiduals {
  @Field(() => Int, { description: LOST_RESIDUALS.fromRound })
  fromRound!: number;
  @Field(() => Int, { description: LOST_RESIDUALS.replicas })
  replicas!: number;
  @Field(() => [String], { description: LOST_RESIDUALS.causes })
  causes!: string[];
}

/** Events of an attempt that a restart has undone do not count. Null where nothing was lost, or nothing is kept. */
export async function lostResidualsOf(
  database: Database,
  run: { id: string; attempt: number; spec: unknown },
): Promise<LostResiduals | null> {
  const { codec } = run.spec as Pick<RunSpec, 'codec'>;
  if (!codec || !(keepsRest(codec) || sendsDeltas({ codec }))) return null;
  const [lineage, events] = await Promise.all([
    readLineage(database, run.id, run.attempt),
    database.runEvent.findMany({
      where: { runId: run.id, type: RESIDUAL_LOST },
      orderBy: { seq: 'asc' },
      select: { attempt: true, data: true },
      take: MOST_EVENTS,
    }),
  ]);
  return lossesAlong(lineage, events);
}

/** What one cause has spoiled in one attempt: what its earlier coordinators have counted, and the newest count of the present one. */
interface Tally {
  readonly cause: string;
  readonly fromRound: number;
  readonly before: number;
  readonly newest: { readonly fromRound: number; readonly replicas: number };
}

/**
 * The count of a coordinator rises, and its first round stays. One that takes over inside an attempt begins at nothing: its events have a later first round
 * or a smaller count, and add to those before. Data that no coordinator of ours writes says nothing.
 * @param events in their order
 */
export function lossesAlong(
  lineage: readonly LineagePart[],
  events: readonly { readonly attempt: number; readonly data: unknown }[],
): LostResiduals | null {
  const tallies = new Map<string, Tally>();
  for (const { attempt, data } of events) {
    const loss = residualLossSchema.safeParse(data).data;
    if (!loss || loss.fromRound > MOST) continue;
    const { cause, fromRound, replicas } = loss;
    if (!lineage.some((part) => part.attempt === attempt && part.fromRound <= fromRound && fromRound < part.toRound)) continue;
    const key = `${attempt} ${cause}`;
    const known = tallies.get(key) ?? { cause, fromRound, before: 0, newest: { fromRound, replicas: 0 } };
    const isAnother = fromRound !== known.newest.fromRound || replicas < known.newest.replicas;
    tallies.set(key, {
      cause,
      fromRound: Math.min(known.fromRound, fromRound),
      before: known.before + (isAnother ? known.newest.replicas : 0),
      newest: { fromRound, replicas },
    });
  }
  const losses = [...tallies.values()];
  if (losses.length === 0) return null;
  return {
    fromRound: Math.min(...losses.map(({ fromRound }) => fromRound)),
    replicas: Math.min(
      MOST,
      losses.reduce((sum, { before, newest }) => sum + before + newest.replicas, 0),
    ),
    causes: [...new Set(losses.map(({ cause }) => cause))],
  };
}
