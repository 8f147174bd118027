/** Surroundings of a coordinator that is tested alone: they store nothing, and the end is said at once. */
import type { CoordinatorSurroundings } from './attempt-options.js';

export const surroundings = (over: CoordinatorSurroundings['over'] = () => undefined): CoordinatorSurroundings => ({
  publishCheckpoint: () => undefined,
  findCheckpoint: () => undefined,
  collectWeights: () => undefined,
  serverBack: () => undefined,
  concluded: (end) => end.say(),
  over,
});
