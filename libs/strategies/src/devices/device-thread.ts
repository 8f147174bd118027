/** What a compute thread needs where the process of a device computes its replicas. */
import { Meeting } from '../threads/meeting.js';
import type { FromThread, ToThread } from '../threads/protocol.js';
import { replicaRows } from '@paceline/learning';
import { DeviceFunctions, leavesOf } from './device-functions.js';
import { DeviceFailure, DeviceGone, type DeviceLink } from './device-link.js';
import { DeviceModelError } from './device-session.js';

export { DeviceFunctions } from './device-functions.js';
export { DeviceLink } from './device-link.js';
export { DeviceSession } from './device-session.js';

interface ThreadPlace {
  readonly cells: Int32Array;
  readonly index: number;
  readonly threads: number;
}

export function deviceFunctions(
  link: DeviceLink,
  { cells, index, threads }: ThreadPlace,
  { memory, share }: Extract<ToThread, { kind: 'load' }>,
): DeviceFunctions {
  const { from, to } = replicaRows(share.replicas, threads, index); // replicas are shared out as rows are
  const own = Array.from({ length: to - from }, (_, i) => from + i);
  const meeting = new Meeting(cells, memory, share.replicas, threads, index, undefined, true);
  return new DeviceFunctions(link, leavesOf(own, share.replicas), meeting);
}

type Failed = Extract<FromThread, { kind: 'failed' }>;

/** What the process has failed with, and whether it is gone; undefined for any other error. */
export function failedOnDevice(error: unknown): Partial<Failed> | undefined {
  if (error instanceof DeviceGone) return { device: error.device };
  if (error instanceof DeviceFailure) return { ...(error.replica === undefined ? {} : { replica: error.replica }), layer: error.layer };
  if (error instanceof DeviceModelError) return { path: error.path };
  return undefined;
}
