/**
 * What a coordinator, workers and parameter servers ask each other. Bodies are JSON; vectors travel as parts, as little-endian float32; `sums` with a codec as packed-range.ts writes them.
 *
 * | who asks whom | name | body | parts | answer |
 * |---|---|---|---|---|
 * | coordinator, all | `begin` | Begin: a new session. What was there before is forgotten | | About |
 * | coordinator, all | `about` | | | About |
 * | coordinator, worker | `describe` | | DescribeText | `{ description }` |
 * | coordinator, worker | `open` | `{ model }` | WorkerPlan as text | |
 * | coordinator, server | `open` | `{ model, plan: ShardPlan }` | | |
 * | coordinator, all | `close` | `{ model }` | | |
 * | coordinator, all | `train` | Train: all but the frozen variables | | |
 * | coordinator, server | `write` | Write | its range of the parameters, of each slot, where it has them | `{ generation, steps }` |
 * | coordinator, worker; server | `read` | Read | | `{ generation, steps }`, its range of the parameters |
 * | coordinator, server | `slots` | `{ model }` | | its range of each slot |
 * | coordinator, worker | `step` | Step | rows of the worker: inputs, targets, weights | Stepped, and outputs where they are read |
 * | coordinator, worker | `predict` | Predict | rows of the worker: inputs | Stepped, outputs |
 * | worker, server | `sums` | Sums | for each node its range of the sum | |
 * | worker, worker above it in a group | `read`, `sums` | as to a server, of the range of the server that they name | | |
 * | coordinator, server | `commit` | `{ model }` and Commit | | `{ generation, steps }` |
 * | coordinator, server | `drop` | `{ model, round }` | | |
 * | worker, server | `push` | `{ model, session, rate }` | its range of a gradient | `{ generation, steps }` |
 * | worker of a group; the coordinator, a worker below | `awake` | while it is in a step: it does not stand still | | |
 * | coordinator, worker | `call` | Call | arguments, encoded | the result, encoded |
 * | coordinator, worker | `load` | Load: a function for the replicas | | |
 * | coordinator, worker | `run` | the function | arguments of its replicas, encoded | Reached; the sums of its nodes, or the results, encoded |
 * | coordinator, worker | `meet` | Meet: what follows for the replicas that wait | the sum of all workers | as of `run` |
 */
import { TaskError } from '@paceline/collectives';
import type { Range } from '../threads/ranges.js';
import type { Node } from '@paceline/learning';
import type { ModelDescription, RowFormat } from '@paceline/spec';
import type { PlanSpec, TrainingPlan } from '../exchange.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import type { CommonPoint } from '../threads/meeting.js';
import type { FromThread, Share } from '../threads/protocol.js';
import type { Commit, GradientCodec, ShardPlan } from './served-shard.js';
import type { GroupPlan } from './worker-groups.js';

export interface Begin {
  /** UUID. Workers name it to the servers, so that those of an earlier coordinator are not heard. */
  readonly session: string;
  /** Compute threads of a worker. */
  readonly threads: number;
  readonly deadlineMs: number;
}
/** The answer of a worker. */
export interface Begun {
  /** It goes on with its compute threads, and what their replicas keep. */
  readonly isKept: boolean;
}

/** One of the processes, as `strategy.servers()` gives it to a program. */
export interface About {
  readonly pid: number;
  /** Of parameters and optimizer slots that it keeps for all others. */
  readonly parameterBytes: number;
  readonly slotBytes: number;
  /** Vectors since the session began, to and from the coordinator and the others. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
}

export interface DescribeText {
  readonly spec: PlanSpec;
  readonly format: RowFormat;
}

export interface WorkerPlan extends TrainingPlan {
  readonly description: ModelDescription;
  readonly share: Share;
  /** Where several workers are a group. */
  readonly group?: GroupPlan | undefined;
  readonly codec: GradientCodec;
}

export interface OpenShard {
  readonly model: number;
  readonly plan: ShardPlan;
}

export interface Train {
  readonly model: number;
  readonly ranges: readonly Range[];
}

/** What the message does not have stays as it is. */
export interface Write {
  readonly model: number;
  readonly steps?: number | undefined;
  readonly hasParameters: boolean;
  readonly hasSlots: boolean;
}

export interface OfModel {
  readonly model: number;
}

export interface OfSession extends OfModel {
  readonly session: string;
}

export interface Read extends OfSession {
  /** In a group: the parameters that count, by the coordinator's count, and the server whose range is wanted. */
  readonly generation?: number;
  readonly server?: number;
}

export interface Standing {
  readonly generation: number;
  readonly steps: number;
}

export interface Predict extends OfModel {
  /** The parameters that count. */
  readonly generation: number;
  /** In groups: what the servers count for these parameters. */
  readonly served?: number | undefined;
  readonly count: number;
  readonly step: number;
  readonly rowsAtOnce: number;
}

export interface Step extends OfModel, Commit {
  readonly generation: number;
  /** As in Predict. */
  readonly served?: number | undefined;
  /** The last round of the model that counts; 0: none yet. */
  readonly committed: number;
  /** Metrics read the outputs. */
  readonly readsOutputs: boolean;
}

export interface StepFailure {
  readonly replica?: number | undefined;
  readonly layer?: string | undefined;
  readonly message: string;
}

/** A number of a body that may be none: JSON has no NaN and no infinities, and they travel by their names. `Number` reads it. */
export type JsonNumber = number | 'NaN' | 'Infinity' | '-Infinity';
export const jsonNumber = (value: number): JsonNumber => (Number.isFinite(value) ? value : (String(value) as JsonNumber));

export interface Stepped {
  /** For each replica of the worker the sum over its examples. */
  readonly losses: readonly JsonNumber[];
  readonly failures: readonly StepFailure[];
}

export interface Load extends NamedFunction {
  readonly share: Share;
}

/** Where the replicas of a worker have come together, in a function of `run`. */
export interface Reached {
  /** The function has ended in all of them, or they have given up. */
  readonly isOver: boolean;
  readonly point: CommonPoint;
  readonly failures: readonly StepFailure[];
}

export interface Meet {
  /** False: the function ends in all replicas. */
  readonly goesOn: boolean;
}

export interface Sums extends OfSession {
  readonly round: number;
  readonly nodes: readonly Node[];
  /** In a group: the server whose range it is. */
  readonly server?: number;
  /** In a group: a replica has failed, of this worker or of one below it, and no sums come in this round. */
  readonly hasFailed?: boolean;
}

export type CommitShard = OfModel & Omit<Commit, 'rate'> & { readonly rate: JsonNumber };

/** Codes of what is answered with an error. */
export const CODES = {
  /** The session is over, or has not begun: another coordinator, or this process was started again. */
  session: 'SESSION',
  thread: 'THREAD',
  unsupported: 'UNSUPPORTED',
  /** A parameter server that a worker cannot reach. */
  member: 'MEMBER',
  /** Parameters of another generation than a step needs. */
  generation: 'GENERATION',
  function: 'FUNCTION',
  replica: 'REPLICA',
} as const;

export const textBytes = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
export const fromBytes = <T>(bytes: Uint8Array | undefined): T => JSON.parse(new TextDecoder().decode(bytes)) as T;
export const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array => new Uint8Array(buffer, byteOffset, byteLength);

/** What a compute thread answered. @throws TaskError */
export function answered(answer: FromThread | undefined): Extract<FromThread, { kind: 'ok' }> {
  if (answer?.kind === 'ok') return answer;
  if (answer?.path !== undefined) throw new TaskError(CODES.unsupported, JSON.stringify([answer.path, answer.message]));
  throw new TaskError(CODES.thread, answer?.message ?? 'a compute thread did not answer');
}
