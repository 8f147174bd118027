/** The parts of a coordinator that all modes share, as a plan finds them: coordinator.ts makes them. */
import type { Attempt } from './attempt.js';
import type { Attendance } from './attendance.js';
import type { Ending } from './ending.js';
import type { Finish } from './finish.js';
import type { Measurements } from './measurements.js';
import type { StallWatch } from './stall-watch.js';
import type { Stops } from './stops.js';
import type { Validations } from './validations.js';
import type { ServerTakeovers } from '../standby/server-takeovers.js';

export interface CoordinatorParts {
  readonly attempt: Attempt;
  readonly attendance: Attendance;
  readonly measurements: Measurements;
  readonly validations: Validations;
  readonly stall: StallWatch;
  readonly stops: Stops;
  readonly takeovers: ServerTakeovers;
  readonly finish: Finish;
  readonly ending: Ending;
  /** What keeps the run from going on, in words, or null. */
  waitingFor(): string | null;
  /** First start: work is given out as soon as everything is there. */
  begin(): void;
}
