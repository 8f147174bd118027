/**
 * What a hosted run needs of the process around it. Everything that is real time, network, disk, Redis or memory comes through here: apps/ps gives
 * the real ones, the simulator those that it winds itself.
 */
import type { Clock, Connection } from '@paceline/exchange';
import type { ControlPlane, PlacementJob, ServerAddress } from '@paceline/control-plane';
import type { Layout } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';
import type { Checkpoints, TensorEntry } from '@paceline/storage';
import type { ParameterStore, StorePlan } from './parameter-store.js';
import type { Windows } from './create-shard.js';

export interface ServerContext {
  readonly serverId: string;
  readonly host: string;
  readonly clock: Clock;
  /** How long one run may keep the event loop; see slices.ts. */
  readonly sliceMs?: number;
  /** Milliseconds since 1970, for what people read. It may leap; nothing is measured with it. */
  wallMs(): number;
  readonly controlPlane: ControlPlane;
  readonly checkpoints: Checkpoints;
  readonly weights: WeightsFiles;
  readonly log: Log;
  /** Opens a connection within its own deadline. */
  connectTo(address: ServerAddress): Promise<Connection>;
  /** Two ends of one connection inside this process. */
  memoryPair(): [Connection, Connection];
  createStore(plan: StorePlan, job: PlacementJob): ParameterStore;
  /** The same on every server and worker of a run. @throws LearningError */
  layoutOf(model: ModelDescription): Layout;
  /** Refused frames and connections of the whole process. */
  refusals(): { frames: number; connections: number };
  /** When the process is told to end, its runs have this long for the present round and a last checkpoint; 3.2 s by default. */
  readonly stopDeadlineMs?: number;
  /** What one connection may have under way, in place of what the shard chooses. */
  readonly windows?: Windows | undefined;
}

/** Where the weights of a run that has finished go. */
export interface WeightsFiles {
  pathOf(job: PlacementJob): string;
  create(path: string, tensors: readonly TensorEntry[], metadata: Readonly<Record<string, string>>): Promise<WeightsFile>;
}

export interface WeightsFile {
  /** The bytes may be reused when the promise resolves. */
  append(bytes: Uint8Array): Promise<void>;
  finish(): Promise<void>;
  abort(): Promise<void>;
}

type Line = (fields: Readonly<Record<string, unknown>>, message: string) => void;
export interface Log {
  readonly debug: Line;
  readonly info: Line;
  readonly warn: Line;
  readonly error: Line;
}

/** A failure that could not be reported is reported again after this long, for this long: the api waits for a part that loads for as long. */
const AGAIN_AFTER_MS = 2_000;
const AGAIN_FOR_MS = 600_000;

/** This server cannot do its part: the attempt ends with that. */
export function reportFailed(
  { controlPlane, serverId, log, clock }: Pick<ServerContext, 'controlPlane' | 'serverId' | 'log' | 'clock'>,
  job: PlacementJob,
  code: string,
  message: string,
): void {
  const { runId, attempt, index } = job;
  const why = { code: code.slice(0, 100), message: message.slice(0, 2000) };
  const report = { kind: 'server.failed', runId, attempt, index, serverId, ...why } as const;
  const sinceMs = clock.now();
  const send = (): void =>
    void controlPlane.sendReport(report).catch((error: Error) => {
      log.error({ err: error, report }, 'a failure could not be reported');
      if (clock.now() - sinceMs < AGAIN_FOR_MS) clock.after(AGAIN_AFTER_MS, send);
    });
  send();
}
