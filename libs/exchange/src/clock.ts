/**
 * Time as an argument. What runs between machines and sockets (reconnects, silence, heartbeats) takes a clock, so that the
 * apps hand it the real one and the simulator one that it winds itself.
 */

/** Ends a timer; calling it again, or after the timer has fired, does nothing. */
export type CancelTimer = () => void;

export interface Clock {
  /** Milliseconds that never go back; their zero means nothing. */
  now(): number;
  /** Calls `act` once, `ms` from now. */
  after(ms: number, act: () => void): CancelTimer;
  /** Calls `act` every `ms`; a process that was stopped meanwhile makes one call up, not all. */
  every(ms: number, act: () => void): CancelTimer;
  /** Calls `act` when the present call stack has returned, before anything else is read or timed. */
  soon(act: () => void): void;
}

export const processClock: Clock = {
  now: () => performance.now(),
  after(ms, act) {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
  every(ms, act) {
    const timer = setInterval(act, ms);
    return () => clearInterval(timer);
  },
  soon: (act) => process.nextTick(act),
};
