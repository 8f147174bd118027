/**
 * What the main thread and the compute thread of a worker say to each other. The main thread does sockets and never
 * computes; the compute thread holds the engine and never waits for a socket. Bulk data lies in shared memory:
 *
 *   parameter memory   two generations of the flat vector (one vector in modes async and ssp); the main thread writes, the compute
 *                      thread reads
 *   gradient memory    gradient nodes, in one arena or several (gradient-memory.ts); the compute thread allocates, writes and frees, the main thread reads
 *   control cells      [progress, committed round, stopping, a bell for each thread]; Atomics
 *   arrivals           which chunks of the parameters have come (arrivals.ts)
 *
 * With several compute threads all of them have the same memory and cells. The main thread allocates: it lends vectors with each step, gets those of nodes
 * with the nodes and the rest with `stepped`, and has sums of several threads added up by all of them, each in its chunks (thread-nodes.ts).
 *
 * With the strategy model-parallel each thread has a stage of the model (stage-thread.ts). All of them get the same steps and evaluations, with the same vectors, and
 * tell the same contributions and nodes, each what its stage has of them (stage-nodes.ts).
 *
 * With the strategy tpu the threads take all steps of a round by themselves (execution-thread.ts). All of them get the same rounds, with one vector each time, in which the weights
 * come to lie.
 */
import type { RunRowsSettings } from '@paceline/data';
import type { ResidualLoss } from '@paceline/codecs';
import type { EngineDevice, LeakLimits } from '@paceline/engine';
import type { Recording, ReplicaResidual, Rows, WorkItem } from '@paceline/exchange';
import type { BackendName, ModelDescription, RunData, RunSpec } from '@paceline/spec';
import type { ExecutionMemory } from './execution-cells.js';
import type { AttachedMemory, EncodedPart, PlacedNode, Vector } from './gradient-memory.js';
import type { Leak } from './leak-guard.js';
import type { FlowMemory, FlowSizes } from './stage-flow.js';
import type { GroupBytes } from './table-rows.js';

export const CELL_PROGRESS = 0;
export const CELL_COMMITTED = 1;
/** 1 when all requests are obsolete. */
export const CELL_STOPPING = 2;
/** The bell of the first thread, then those of the others. */
export const CELL_BELLS = 3;
export const cellBytes = (threads: number): number => (CELL_BELLS + threads) * Int32Array.BYTES_PER_ELEMENT;

/** The engine that the compute thread starts. */
export interface EngineChoice {
  readonly backend: BackendName;
  /** Folder of a tfjs-node package, for the backend `tensorflow`. */
  readonly tensorflowPackage?: string | undefined;
  /** Folder of the npm package `webgpu`, for the backend of that name. */
  readonly webgpuPackage?: string | undefined;
}

export interface ComputeInit {
  readonly spec: RunSpec;
  readonly data: RunData;
  readonly rowsSettings: RunRowsSettings;
  readonly engine: EngineChoice;
  readonly description: ModelDescription;
  /** Servers of the run. */
  readonly servers: number;
  readonly parameters: SharedArrayBuffer;
  readonly cells: SharedArrayBuffer;
  readonly arrivals: SharedArrayBuffer;
  readonly leakLimits: LeakLimits;
  /** Which of the compute threads of the seat it is; with the strategy model-parallel, which stage it has. */
  readonly thread: number;
  readonly threads: number;
  /** Where the vectors lie that it is lent; undefined for the only thread, which has memory of its own. */
  readonly lent: AttachedMemory | undefined;
  /** What the threads share in a round, with the strategy tpu. */
  readonly execution?: ExecutionMemory | undefined;
}

/** What a stage says of itself. */
export interface StageSizes {
  /** Names of its layers. */
  readonly layers: readonly string[];
  /** Elements of the tensor that it passes on, of one example; undefined for the last stage. */
  readonly width: number | undefined;
  /** Examples of the largest micro-batch, and those that the loader prepares for an evaluation at once. */
  readonly rows: number;
  readonly evaluationRows: number;
}

export type ToCompute =
  /** To each stage, before anything else: where the boundaries between stages lie, and the sizes of what goes over them. */
  | { readonly kind: 'flow'; readonly memory: FlowMemory; readonly sizes: FlowSizes }
  /** `free` is gradient memory that is given back; `codec` is what the coordinator has picked for the round, with `codec: auto`. */
  | {
      readonly kind: 'step';
      readonly round: number;
      readonly replicas: readonly number[];
      readonly codec?: string | undefined;
      readonly free: readonly Vector[];
      /** Vectors for this step. */
      readonly lent?: readonly Vector[] | undefined;
    }
  /** Adds nodes up to the one that they make, in the chunks of this thread: the sum comes to lie where the first of them is. */
  | { readonly kind: 'sum'; readonly sum: number; readonly nodes: readonly PlacedNode[] }
  /** Modes async and ssp: compute a work item from the parameters that are there now; `next` is what follows, as far as is known. */
  | { readonly kind: 'item'; readonly item: WorkItem; readonly next: WorkItem | undefined }
  | { readonly kind: 'evaluate'; readonly generation: number; readonly blocks: readonly { from: number; to: number }[] }
  /** Rows of a table that it wanted. */
  | { readonly kind: 'rows'; readonly generation: number; readonly group: number; readonly rows: Rows }
  | { readonly kind: 'free'; readonly vectors: readonly Vector[] }
  /** Wants copies of what the codec has kept of replicas in a round. */
  | { readonly kind: 'read-residuals'; readonly round: number; readonly replicas: readonly number[] }
  /** What a round has left of a replica, from a checkpoint. */
  | { readonly kind: 'take-residual'; readonly round: number; readonly replica: number; readonly values: Float32Array<ArrayBuffer> }
  /** Records its spans, or gives those that it has recorded. */
  | { readonly kind: 'trace'; readonly isOn: boolean }
  | { readonly kind: 'stop' };

export interface ContributionMessage {
  readonly kind: 'contribution';
  readonly round: number;
  readonly replica: number;
  readonly examples: number;
  readonly sums: readonly number[];
  /** What the codec had kept of the replica was not there. */
  readonly lost?: ResidualLoss | undefined;
}

export type FromCompute =
  | {
      readonly kind: 'ready';
      readonly fingerprint: string;
      readonly devices: readonly EngineDevice[];
      /** Undefined where vectors are lent. */
      readonly gradients: AttachedMemory | undefined;
      readonly stage?: StageSizes | undefined;
    }
  | ContributionMessage
  /** With what its replica contributes, where it is a leaf. */
  | {
      readonly kind: 'node';
      readonly round: number;
      readonly lo: number;
      readonly hi: number;
      readonly vector: Vector;
      readonly contribution: ContributionMessage | undefined;
      /** With a codec: where each chunk lies from there on, by part. */
      readonly encoded?: readonly EncodedPart[] | undefined;
      /** Of tables that are exchanged by rows. */
      readonly groups?: readonly GroupBytes[] | undefined;
    }
  /** A step is over: what it was lent and has not used. */
  | { readonly kind: 'stepped'; readonly vectors: readonly Vector[] }
  | { readonly kind: 'summed'; readonly sum: number }
  /** With the strategy tpu, from each thread: all of them have taken the steps of a round. Its weights lie in the vector that was lent, NaN in all of it where a sum was not finite. */
  | { readonly kind: 'executed'; readonly round: number; readonly isFinite: boolean }
  /** Those that it has. */
  | { readonly kind: 'residuals'; readonly round: number; readonly residuals: readonly ReplicaResidual[] }
  /** It cannot go on without these rows, or soon could not. */
  | { readonly kind: 'wants'; readonly generation: number; readonly group: number; readonly ids: Uint32Array }
  | {
      readonly kind: 'evaluated';
      readonly generation: number;
      readonly from: number;
      readonly to: number;
      readonly examples: number;
      readonly sums: readonly number[];
    }
  | { readonly kind: 'traced'; readonly recording: Recording }
  /** This thread leaks: it goes on until it is ended. */
  | { readonly kind: 'leak'; readonly leak: Leak }
  | { readonly kind: 'non-finite'; readonly round: number; readonly replica: number }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string; readonly round: number; readonly replica: number };
