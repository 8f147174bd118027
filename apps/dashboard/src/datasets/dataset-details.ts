import type { DatasetResult } from '../graphql/generated/operations.js';

/** A dataset as its page shows it. */
export type DatasetDetails = NonNullable<DatasetResult['dataset']>;
