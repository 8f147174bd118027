/**
 * Deadlines of tests. They are written as for an idle machine of two cores and say that something hangs, not that it is slow: beside other work
 * everything takes several times as long, and a test that waits for an event passes all the same.
 */
const PATIENCE = 4;

/** @returns how long to wait for what an idle machine does within `idleMs` */
export function patient(idleMs: number): number {
  return idleMs * PATIENCE;
}
