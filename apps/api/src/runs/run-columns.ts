/**
 * Which columns of a run are read. Specs and descriptions of model and data may be megabytes each, so whoever reads many runs leaves them out:
 * what a spec says that is small stands in `shortSpec`, a column that PostgreSQL makes.
 */
import type { RunSpec } from '@paceline/spec';
import { Prisma } from '../generated/prisma/client.js';

export const WITHOUT_MODEL = { spec: true, model: true, data: true } as const satisfies Prisma.RunOmit;
export type RunRow = Prisma.RunGetPayload<{ omit: typeof WITHOUT_MODEL }>;

/** Those columns for SQL. */
export const RUN_COLUMNS = Object.keys(Prisma.RunScalarFieldEnum)
  .filter((name) => !(name in WITHOUT_MODEL))
  .map((name) => `"${name}"`)
  .join(', ');

/** For one run at a time. */
export const WITH_SPEC = { model: true, data: true } as const satisfies Prisma.RunOmit;
export type RunRowWithSpec = Prisma.RunGetPayload<{ omit: typeof WITH_SPEC }>;

/** As the function shortSpecOf picks them (migration short_specs), which says the model by its name. */
export type ShortSpec = Pick<
  RunSpec,
  | ('dataset' | 'loss' | 'metrics' | 'optimizer' | 'gradient' | 'validation' | 'earlyStopping' | 'reduceLROnPlateau' | 'globalBatch')
  | ('replicas' | 'dropRemainder' | 'strategy' | 'codec' | 'length' | 'engine' | 'checkpoint' | 'restarts')
>;
