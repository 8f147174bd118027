/** What a compute thread does of a model, whatever part of it is its own: replicas of the whole (replica-session.ts), or a stage (stage-session.ts). */
import type { BatchBuffers, SessionCounts, ToThread } from './protocol.js';

export interface ModelSession {
  /** Replicas that it computes something of, in order. */
  readonly replicas: readonly number[];
  /** Replicas take the present step alone. */
  readonly isLocal: boolean;
  /** Parameter servers update what this process adds up. */
  readonly isServed: boolean;
  /** Each process updates a part of the parameters. */
  readonly isSharded: boolean;
  useBuffers(buffers: BatchBuffers, set?: number): void;
  /** A step or prediction begins. */
  useSet(set: number): void;
  freeze(paths: readonly string[]): void;
  /** The parameters, unless the engine has these already. */
  load(): void;
  /** What is computed of a replica in a step. @param moved hears that work has moved on */
  replica(replica: number, moved: () => void): void | Promise<void>;
  /** Where a model is in stages: the micro-batch that is computed, which has the numbers of that replica. */
  readonly microBatch?: number | undefined;
  /** The same in a prediction. */
  predict(replica: number, moved: () => void): void | Promise<void>;
  /** A step or prediction is computed, has failed, or is left out: nobody waits for this thread any more. */
  ended?(kind: number): void;
  /** After the gradients of all threads: what this thread updates. */
  updateChunks(): void;
  /** Where engines keep a copy of the parameters: loads it. */
  loadEarly(): void;
  readonly counts?: SessionCounts;
  sumNodes?(): void;
  average?(average: Pick<Extract<ToThread, { kind: 'average' }>, 'vectors' | 'part'>): void;
  exchangeFragment?(exchange: Omit<Extract<ToThread, { kind: 'fragment' }>, 'kind' | 'model'>): void;
  close(): void;
}
