/** What the codec of a run keeps of each replica from round to round, where a part of it is lost: an event of the run. */
import { z } from 'zod';

export const RESIDUAL_LOST = 'residual.lost';

/**
 * Why a replica began a round without what the round before had left: the attempt began with a checkpoint that lacks it, another worker computes the
 * replica now, or the worker has not computed it in the round before.
 */
export const residualLossCause = z.enum(['checkpoint', 'moved', 'gap']);
export type ResidualLossCause = z.output<typeof residualLossCause>;

/** `data` of the event: how many residuals the attempt has lost so, since the first round that such a loss has changed. */
export const residualLossSchema = z.object({
  cause: residualLossCause,
  fromRound: z.int().min(0),
  replicas: z.int().min(1),
});
