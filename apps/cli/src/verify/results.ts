/** What came of a recorded training under one strategy. */
import type { Target } from './targets.js';
import type { Compared, TrainingResult } from './training.js';

export interface Replayed {
  readonly file: string;
  readonly kind: 'training';
  readonly strategy: string;
  readonly as: Target['as'];
  readonly tolerance: number;
  readonly unknownFields: readonly string[];
}

export type TrainingFile = Replayed &
  (
    | ({ readonly workers: number; readonly servers: number } & (Compared | TrainingResult))
    /** Why the strategy cannot follow the recording. */
    | { readonly ok: false; readonly notServed: string }
    /** What went wrong on the way. */
    | { readonly ok: false; readonly failed: string }
  );
