/** What the control plane writes into a run's control hash. Every field names its attempt, so an older one changes nothing. */
import type { ServerAddress } from '../contract.js';

export const startField = (attempt: number, servers: readonly ServerAddress[]): string => JSON.stringify({ attempt, servers });
export const ackField = (attempt: number, n: bigint | number): string => `${attempt}:${n}`;
/** Also for an attempt that is over here, while somebody may still go on with it. */
export const cancelField = (attempt: number): string => `${attempt}:cancel`;
export const pauseField = (attempt: number): string => `${attempt}:pause`;
export const workersField = (attempt: number, workers: number): string => `${attempt}:${workers}`;
