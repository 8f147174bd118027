/** Which columns of a run are read. Descriptions of model and data stay out: they may be large and only jobs need them. */
import type { Prisma } from '../generated/prisma/client.js';

export const WITHOUT_MODEL = { model: true, data: true } as const satisfies Prisma.RunOmit;
export type RunRow = Prisma.RunGetPayload<{ omit: typeof WITHOUT_MODEL }>;
