/**
 * Fields of a run that have one of a few values, as GraphQL shows them. The values are spelt as REST, the SDK and the database spell them, so
 * a client that reads texts reads the same ones. Names that grow with the engines, models and events (engine, type of an event, cause of an
 * end) stay texts: a client must not break on a new one.
 */
import { registerEnumType } from '@nestjs/graphql';
import { RUN_STATUS_MEANINGS, type CheckpointRecord, type CoordinatorState } from '@paceline/control-plane';
import { RunStatus as RunStatusEnum, StepTaskState as StepTaskStateEnum } from '../generated/prisma/enums.js';

/** Values of an enum, each with its meaning. */
function enumOf<Value extends string>(
  name: string,
  description: string,
  meanings: Readonly<Record<Value, string>>,
): { readonly [V in Value]: V } {
  const values = Object.fromEntries(Object.keys(meanings).map((value) => [value, value])) as { [V in Value]: V };
  register(name, description, values, meanings);
  return values;
}

function register(name: string, description: string, values: object, meanings: Readonly<Record<string, string>>): void {
  const valuesMap = Object.fromEntries(Object.entries(meanings).map(([value, meaning]) => [value, { description: meaning }]));
  registerEnumType(values, { name, description, valuesMap });
}

export type CheckpointReason = CheckpointRecord['reason'];
export type RunPhase = CoordinatorState['phase'];
export const RunPhaseEnum = enumOf<RunPhase>('RunPhase', 'What the coordinator of a run is doing.', {
  waiting: 'It waits for servers or workers.',
  training: 'Rounds are being committed.',
  pausing: 'The round in hand is finished and a checkpoint is written.',
  evaluating: 'The evaluation split is measured.',
  finished: 'The run is trained to its end.',
  paused: 'The checkpoint is written, and the attempt is over.',
  cancelled: 'Somebody asked for the end.',
  failed: 'The attempt has failed.',
});

export type RunServerRole = 'PRIMARY' | 'STANDBY';
export const RunServerRoleEnum = enumOf<RunServerRole>('RunServerRole', 'What a server is to its shard.', {
  PRIMARY: 'It leads the shard: workers and the coordinator speak to it.',
  STANDBY: 'It applies what the primary has reduced, and takes over when the primary is lost.',
});

export type RunServerState = 'CLAIMED' | 'STARTED' | 'LOST';
export const RunServerStateEnum = enumOf<RunServerState>('RunServerState', 'How far a server is with its part of a run.', {
  CLAIMED: 'It has taken the part, and waits until all parts are taken.',
  STARTED: 'It was told to begin.',
  LOST: 'It is no longer heard, or has given up the part.',
});

export const CheckpointReasonEnum = enumOf<CheckpointReason>('CheckpointReason', 'Why a checkpoint was written.', {
  cadence: 'The set number of rounds or seconds had passed.',
  best: 'A validation was better than those before.',
  pause: 'The run was paused.',
  final: 'The run was trained to its end.',
  shutdown: 'A server was told to end.',
});

export type CheckpointState = 'USABLE' | 'VOID' | 'INVALID';
export const CheckpointStateEnum = enumOf<CheckpointState>('CheckpointState', 'Whether a run can begin with a checkpoint.', {
  USABLE: 'A run can begin with it.',
  VOID: 'A restore went back before it.',
  INVALID: 'A server could not load it.',
});

register('RunStatus', 'Where a run is in its life.', RunStatusEnum, RUN_STATUS_MEANINGS);
register('StepTaskState', 'Whether somebody holds a seat.', StepTaskStateEnum, {
  OPEN: 'It is offered to workers, or one has taken it and is not seated yet.',
  HELD: 'A worker holds it.',
  CLOSED: 'It is given up.',
});

export { RunStatusEnum, StepTaskStateEnum };
