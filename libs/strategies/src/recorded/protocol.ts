/** A training that another program has recorded, what a process is told to train it with, and what it answers: plain data, which goes from process to process. */
import type { OptimizerSpec } from '@paceline/spec';

export interface RecordedProgram {
  /** As tf.js writes it. */
  readonly topology: Readonly<Record<string, unknown>>;
  /** Class names of the layers. */
  readonly layers: readonly string[];
  readonly weights: readonly { readonly path: string; readonly shape: readonly number[]; readonly initial: Float32Array }[];
  /** Rows that the steps take, one after the other; after the last one they begin again. */
  readonly rows: { readonly count: number; readonly inputs: Float32Array; readonly targets: Float32Array };
  /** Number of classes where the target is one; undefined where it is values. */
  readonly classes: number | undefined;
  readonly loss: { readonly name: string; readonly fromLogits: boolean };
  readonly optimizer: OptimizerSpec;
  readonly globalBatch: number;
  readonly replicas: number;
  readonly steps: number;
}

export const RECORDED_STRATEGIES = [
  'one-device',
  'mirrored',
  'central-storage',
  'model-parallel',
  'local-update',
  'multi-worker-mirrored',
  'parameter-server',
  'hybrid',
] as const;
export const RECORDED_TOPOLOGIES = ['direct', 'ring', 'tree', 'hierarchical'] as const;

/** What one process of several is. */
export interface RecordedMember {
  readonly task: { readonly type: 'chief' | 'worker' | 'ps'; readonly index: number };
  readonly cluster: Readonly<Record<string, readonly string[]>>;
  readonly hosts: readonly string[];
  readonly secret: string;
}

/** The strategy of one process. */
export interface RecordedStrategy {
  readonly kind: (typeof RECORDED_STRATEGIES)[number];
  readonly communication?: (typeof RECORDED_TOPOLOGIES)[number] | undefined;
  /** With hybrid: worker processes that are one group, with a replica each. Without it each worker is a group, with its threads. */
  readonly workersPerGroup?: number | undefined;
  /** What computes, with mirrored: a process on each core; the threads of wasm where left out. */
  readonly engine?: 'tensorflow' | undefined;
  /** This process among the others, with the kinds that have several. */
  readonly member?: RecordedMember | undefined;
}

export interface RecordedTask {
  readonly program: RecordedProgram;
  readonly strategy: RecordedStrategy;
  readonly deadlineMs: number;
}

export interface RecordedResult {
  /** Of every step, before its update. */
  readonly losses: readonly number[];
  /** In the order of the weights of the program. */
  readonly weights: readonly Float32Array[];
}

export type RecordedAnswer = { readonly ok: true; readonly result: RecordedResult } | { readonly ok: false; readonly message: string };
