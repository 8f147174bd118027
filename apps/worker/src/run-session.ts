/** The SeatSession of libs/hosting with compute threads over shared memory, and the real clock and sockets. */
import { availableParallelism, hostname } from 'node:os';
import { connect, processClock, type Connection, type Link, type TlsIdentity, type TlsRole } from '@paceline/exchange';
import { SeatSession, parameterBytes, seatLayout, type AppliedRounds } from '@paceline/hosting';
import { sharedBuffer } from '@paceline/kernels';
import type { ServerAddress, StepTaskJob } from '@paceline/control-plane';
import { createLayout } from '@paceline/learning';
import type { Logger } from '@paceline/runtime';
import { shardHosts, stagesOf, threadsOf } from '@paceline/spec';
import { Compute, type ComputeOptions } from './compute.js';
import type { MeasuredChoice } from './engine-choice.js';
import type { Leak } from './leak-guard.js';
import { leakLeaveDeadlineMs } from './recycling.js';
import { linkOfRun } from './run-link.js';

const CONNECT_DEADLINE_MS = 2_000;
/** A finished node is queued as a whole. Queued bytes are references into the gradient arena, which is bounded. */
const MAX_QUEUED_BYTES = 2 ** 31;

export type RunSession = SeatSession<Compute>;

export interface RunSessionOptions extends ComputeOptions {
  readonly workerId: string;
  readonly transport: 'auto' | 'unix' | 'tcp';
  /** Between this worker and all servers, for tests of slow links; a run may name one of its own. */
  readonly link: Link | undefined;
  /** For connections by TCP; undefined: they are not encrypted. */
  readonly identity: TlsIdentity | undefined;
  readonly log: Logger;
  /** The shard of an attempt that this process has, where the worker applies the optimizer. */
  readonly shardOf?: ((job: Pick<StepTaskJob, 'runId' | 'attempt'>) => AppliedRounds | undefined) | undefined;
  /** In place of `connect`, for a worker that holds shards itself. */
  readonly connect?:
    | ((server: ServerAddress, deadlineMs: number, peer: TlsRole, link: Link | undefined) => Promise<Connection>)
    | undefined;
}

/**
 * Starts the engine, then connects.
 * @param onLeak its engine leaks: the session ends by itself, at the end of a round
 * @throws ComputeStartError
 */
export async function startSession(
  job: StepTaskJob,
  engine: MeasuredChoice,
  options: RunSessionOptions,
  onLeak: (leak: Leak) => void,
): Promise<RunSession> {
  const { workerId, transport, identity, log } = options;
  const link = linkOfRun(job.spec) ?? options.link;
  // Whoever holds the shards shows a certificate of this role.
  const peer = shardHosts(job.spec.strategy) === 'workers' ? 'worker' : 'server';
  const tls = identity && { identity, peers: [peer] as const };
  const layout = createLayout(job.model);
  const parameters = sharedBuffer(parameterBytes(job.spec, seatLayout(job, layout)));
  const cores = availableParallelism();
  const threads = stagesOf(job.spec.strategy) ?? threadsOf(job.spec, cores);
  const compute = await Compute.start(job, engine, parameters, { ...options, threads, shard: () => options.shardOf?.(job) });
  const { stageLayers } = compute;
  if (threads > cores && stageLayers)
    log.warn({ run: job.runId, stages: threads, cores }, 'the model has more stages than this worker may use cores: they take turns');
  if (stageLayers) log.info({ run: job.runId, stages: stageLayers }, 'the model is cut into stages');
  const session = new SeatSession({
    job,
    workerId,
    host: hostname(),
    compute,
    parameters,
    layout,
    log,
    clock: processClock,
    cores,
    speed: job.spec.engine === 'mixed' ? (engine.examplesPerSecond ?? 0) * Math.min(threads, cores) || undefined : undefined,
    connect: (server) =>
      options.connect?.(server, CONNECT_DEADLINE_MS, peer, link) ??
      connect(server, { deadlineMs: CONNECT_DEADLINE_MS, transport, link, tls, maxQueuedBytes: MAX_QUEUED_BYTES }),
  });
  compute.onLeak = (leak) => {
    onLeak(leak);
    session.leave('its engine leaks memory and is started anew', leakLeaveDeadlineMs(job.spec));
  };
  session.begin();
  return session;
}
