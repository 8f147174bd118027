/** Whether a run has lost what its codec keeps of replicas, as its events tell: from that round on it does not have the bits of an undisturbed one. */
import { Field, Int, ObjectType } from '@nestjs/graphql';
import { RESIDUAL_LOST, residualLossSchema } from '@paceline/protocol';
import { keepsRest, sendsDeltas, type RunSpec } from '@paceline/spec';
import type { Database } from '../database/database.js';
import { readLineage } from './stored-lineage.js';

@ObjectType({
  description:
    'Residuals that a codec with error feedback, dgc or power-sgd has lost, or what workers had of parameters that are sent as differences: the run does not have the bits of an undisturbed one.',
})
export class LostResiduals {
  @Field(() => Int, { description: 'The first round with other bits.' })
  fromRound!: number;
  @Field(() => Int, {
    description:
      'How many replicas have begun a round without what the round before had left of them, at least; all of them where it was of the parameters.',
  })
  replicas!: number;
  @Field(() => [String], {
    description:
      'Why: `checkpoint`, an attempt began with a checkpoint that lacks them; `moved`, another worker computes the replica; `gap`, the worker has missed a round.',
  })
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
    }),
  ]);
  /** The newest of each cause in each attempt has the largest count. */
  const newest = new Map<string, LostResiduals>();
  for (const { attempt, data } of events) {
    const { cause, fromRound, replicas } = residualLossSchema.parse(data);
    const counts = lineage.some((part) => part.attempt === attempt && part.fromRound <= fromRound && fromRound < part.toRound);
    if (counts) newest.set(`${attempt} ${cause}`, { fromRound, replicas, causes: [cause] });
  }
  if (newest.size === 0) return null;
  const losses = [...newest.values()];
  return {
    fromRound: Math.min(...losses.map(({ fromRound }) => fromRound)),
    replicas: losses.reduce((sum, { replicas }) => sum + replicas, 0),
    causes: [...new Set(losses.flatMap(({ causes }) => causes))],
  };
}
