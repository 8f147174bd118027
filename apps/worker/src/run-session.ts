/** The SeatSession of libs/hosting with a compute thread over shared memory, and the real clock and sockets. */
import { hostname } from 'node:os';
import { connect, processClock } from '@paceline/exchange';
import { SeatSession, parameterBytes } from '@paceline/hosting';
import { sharedBuffer } from '@paceline/kernels';
import type { StepTaskJob } from '@paceline/control-plane';
import { createLayout } from '@paceline/learning';
import type { Logger } from '@paceline/runtime';
import { Compute, type ComputeOptions } from './compute.js';
import type { MeasuredChoice } from './engine-choice.js';
import type { Leak } from './leak-guard.js';
import { leakLeaveDeadlineMs } from './recycling.js';

const CONNECT_DEADLINE_MS = 2_000;
/** A finished node is queued as a whole. Queued bytes are references into the gradient arena, which is bounded. */
const MAX_QUEUED_BYTES = 2 ** 31;

export type RunSession = SeatSession<Compute>;

export interface RunSessionOptions extends ComputeOptions {
  readonly workerId: string;
  readonly transport: 'auto' | 'unix' | 'tcp';
  readonly log: Logger;
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
  const { workerId, transport, log } = options;
  const layout = createLayout(job.model);
  const parameters = sharedBuffer(parameterBytes(job.spec, layout));
  const compute = await Compute.start(job, engine, parameters, layout.totalLength * 4, options);
  const session = new SeatSession({
    job,
    workerId,
    host: hostname(),
    compute,
    parameters,
    layout,
    log,
    clock: processClock,
    speed: job.spec.engine === 'mixed' ? engine.examplesPerSecond || undefined : undefined,
    connect: (server) => connect(server, { deadlineMs: CONNECT_DEADLINE_MS, transport, maxQueuedBytes: MAX_QUEUED_BYTES }),
  });
  compute.onLeak = (leak) => {
    onLeak(leak);
    session.leave('its engine leaks memory and is started anew', leakLeaveDeadlineMs(job.spec));
  };
  session.begin();
  return session;
}
