/** Runs as GraphQL shows them. `row` on Run is what the fields with a resolver of their own are read from (runs.resolver.ts). */
import { createUnionType, Field, Float, ID, InputType, Int, ObjectType } from '@nestjs/graphql';
import { countedAbove } from '../graphql/cost.js';
import { JsonScalar } from '../graphql/json.scalar.js';
import { Node, PageInfo } from '../graphql/node.type.js';
import { Conflict, InvalidInput, LimitReached, NotFound } from '../graphql/result.types.js';
import type { MeasuresRecord, RunStatus, ValidationRecord } from '@paceline/control-plane';
import type { StepTaskState } from '../generated/prisma/enums.js';
import {
  CheckpointReasonEnum,
  CheckpointStateEnum,
  RunPhaseEnum,
  RunServerRoleEnum,
  RunServerStateEnum,
  RunStatusEnum,
  StepTaskStateEnum,
  type CheckpointReason,
  type CheckpointState,
  type RunPhase,
  type RunServerRole,
  type RunServerState,
} from './run-enums.js';
import type { RunRow } from './run-columns.js';

@ObjectType({ implements: () => [Node], description: 'One training job.' })
export class Run implements Node {
  id!: string;
  @Field({ description: 'A name for people; several runs may have the same.' })
  name!: string;
  @Field(() => RunStatusEnum, { description: 'Where it is in its life.' })
  status!: RunStatus;
  @Field(() => String, { nullable: true, description: 'Why it is in this status, for people; a QUEUED run says what it waits for.' })
  statusReason!: string | null;
  @Field({ description: 'Since when it has this status.' })
  statusChangedAt!: Date;
  @Field(() => JsonScalar, {
    description:
      'What the spec says that is small, for lists of runs: `model` is its zoo name or how many layers its topology has; data, features, weights and options of losses and metrics are not in it.',
  })
  shortSpec!: unknown;
  @Field(() => Int, { description: 'Raised whenever the run is restarted, resumed or rolled back.' })
  attempt!: number;
  @Field(() => Int, { description: 'Attempts that may still be started after failures without progress.' })
  restartsLeft!: number;
  @Field(() => Int, {
    description:
      'Workers that may hold a seat at the same time (scaleRun); where workers hold the shards, how many do, or will in the next attempt.',
  })
  workersWanted!: number;
  @Field({ description: 'When createRun accepted it.' })
  createdAt!: Date;
  @Field(() => Date, { nullable: true, description: 'When training began.' })
  startedAt!: Date | null;
  @Field(() => Date, { nullable: true, description: 'When it was over; null before.' })
  finishedAt!: Date | null;
  @Field(() => Int, { description: 'Trainable parameters of the model.' })
  parameterCount!: number;
  /** Not a field: what the fields below are read from. */
  row!: RunRow;
  /** Not a field: of a run that this request has made, what else there is of it, so that its answer asks nothing of the database. */
  created?: { readonly attempts: RunAttempt[]; readonly statusHistory: RunStatusChangeType[]; readonly spec: unknown };
}

@ObjectType({ description: 'Where a run is, as its coordinator last said.' })
export class RunProgress {
  @Field(() => RunPhaseEnum, { description: 'What its coordinator is doing.' })
  phase!: RunPhase;
  @Field(() => Int, { description: 'Committed rounds.' })
  round!: number;
  @Field(() => Int, { description: 'Rounds of the whole run.' })
  totalRounds!: number;
  @Field(() => Int, { description: 'The epoch of the round, from 0.' })
  epoch!: number;
  @Field(() => Float, { description: 'Passes over the training split of the whole run.' })
  totalEpochs!: number;
  @Field(() => Float, { nullable: true, description: 'Mean training loss of the last rounds; null before the first.' })
  loss!: number | null;
  @Field(() => Float, { nullable: true, description: 'Training accuracy of the last rounds, where the spec asks for it.' })
  accuracy!: number | null;
  @Field(() => JsonScalar, { description: 'Loss and metrics in training of the last rounds, by name.' })
  values!: MeasuresRecord;
  @Field(() => JsonScalar, {
    nullable: true,
    description: 'The newest validation: its round, its examples, and values by name. Null before the first.',
  })
  validation!: ValidationRecord | null;
  @Field(() => Float, { nullable: true, description: 'Examples per second at present; null while nothing is trained.' })
  examplesPerSecond!: number | null;
  @Field(() => Float, { nullable: true, description: 'Seconds until the last round, at the present speed.' })
  etaSeconds!: number | null;
  @Field(() => Int, { description: 'Workers that hold a seat.' })
  workers!: number;
  @Field(() => Int, { description: 'Replicas of the run.' })
  replicas!: number;
  @Field(() => String, { nullable: true, description: 'What the coordinator waits for, for people; null when it waits for nothing.' })
  waitingFor!: string | null;
}

@ObjectType({ description: 'What was committed: every example of an epoch exactly once in synchronous modes.' })
export class RunLedger {
  @Field(() => Int, { description: 'Rounds that count.' })
  committedRounds!: number;
  @Field(() => Float, { description: 'Examples of these rounds that are in an update.' })
  committedExamples!: number;
  @Field(() => Float, {
    description: 'Examples of committed rounds that are in no update: of replicas that were too late, or of rounds that were left out.',
  })
  droppedExamples!: number;
  @Field(() => Float, { description: 'Examples that the committed rounds must have had: those committed and those dropped.' })
  expectedExamples!: number;
  @Field(() => Float, { description: 'Frames that the servers refused or dropped: old, double, or of nobody.' })
  refusedFrames!: number;
  @Field(() => Float, { description: 'Connections that the servers refused, for instance without a right token.' })
  refusedConnections!: number;
}

@ObjectType('RunResult', { description: 'What a run that SUCCEEDED has come to.' })
export class RunResultType {
  @Field(() => Int, { description: 'Committed rounds.' })
  rounds!: number;
  @Field(() => Float, { nullable: true, description: 'Mean loss on the evaluation split.' })
  loss!: number | null;
  @Field(() => Float, { nullable: true, description: 'Accuracy on the evaluation split, where the spec asks for it.' })
  accuracy!: number | null;
  @Field(() => Float, { nullable: true, description: 'On the evaluation split, of runs that measure it.' })
  meanAbsoluteError!: number | null;
  @Field(() => Float, { nullable: true, description: 'On the evaluation split, of runs that measure it.' })
  meanSquaredError!: number | null;
  @Field(() => JsonScalar, { description: 'Loss and metrics on the evaluation split, by name.' })
  values!: MeasuresRecord;
  @Field(() => Int, {
    description: 'Committed rounds in the weights: fewer than `rounds` where early stopping has restored the best ones.',
  })
  weightsRound!: number;
  @Field(() => Float, { description: 'Mean over the time of training.' })
  examplesPerSecond!: number;
  @Field(() => Float, { description: 'Examples of the committed rounds.' })
  trainedExamples!: number;
  @Field(() => Float, { description: 'Time of training, without waiting for the fleet.' })
  trainingMs!: number;
  @Field({ description: 'SHA-256 over the trainable section, then the state section, little-endian float32, layout order.' })
  weightsSha256!: string;
  @Field(() => String, { nullable: true, description: 'Path on this api; the safetensors file behind it needs the same key.' })
  weightsUrl!: string | null;
}

@ObjectType({ description: 'The trained model in a form that other programs load.' })
export class ModelExport {
  @Field({ description: 'tfjs or safetensors.' })
  format!: string;
  @Field({ description: 'Path on this api of a zip archive; it needs the same key. Add round=N for a kept checkpoint.' })
  url!: string;
}

@ObjectType('RunStatusChange', { description: 'A change of the status of a run.' })
export class RunStatusChangeType {
  @Field(() => RunStatusEnum, { nullable: true, description: 'The status before; null for the first.' })
  from!: RunStatus | null;
  @Field(() => RunStatusEnum, { description: 'The status after.' })
  to!: RunStatus;
  @Field({ description: 'Why, for people.' })
  reason!: string;
  @Field(() => Int, { description: 'The attempt that it happened in.' })
  attempt!: number;
  @Field({ description: 'When it happened.' })
  at!: Date;
}

@ObjectType({ implements: () => [Node], description: 'A seat in a run for a bounded number of rounds, taken by any worker.' })
export class StepTask implements Node {
  id!: string;
  @Field(() => Int, { description: 'Number of the seat, from 0.' })
  seat!: number;
  @Field(() => Int, { description: 'Which holder of this seat it is for, from 0.' })
  incarnation!: number;
  @Field(() => StepTaskStateEnum, { description: 'Whether somebody holds the seat.' })
  state!: StepTaskState;
  @Field(() => [Int], { description: 'The replicas that its holder computes.' })
  replicas!: number[];
  @Field({ description: 'When it was offered.' })
  createdAt!: Date;
  workerId!: string | null;
}

@ObjectType('RunServer', {
  description:
    'A part of the parameters in the present attempt, and the server that holds it, or the worker (strategies multi-worker-mirrored, model-parallel, mirrored, one-device and tpu).',
})
export class RunServerType {
  @Field(() => Int, { description: 'Number of the shard, from 0; the server of 0 is the coordinator.' })
  index!: number;
  @Field(() => RunServerRoleEnum, { description: 'Whether it leads its shard.' })
  role!: RunServerRole;
  @Field(() => Int, { description: 'Raised by each takeover of a standby inside the attempt; 1 at the start.' })
  term!: number;
  @Field({ description: 'The parameter server (see `servers`) or worker (see `workers`) that holds it.' })
  serverId!: string;
  @Field({ description: 'Where workers reach it, host:port.' })
  address!: string;
  @Field(() => RunServerStateEnum, { description: 'How far it is.' })
  state!: RunServerState;
}

@ObjectType({ description: 'One uninterrupted life of a run.' })
export class RunAttempt {
  @Field(() => Int, { description: 'From 1.' })
  number!: number;
  @Field({ description: 'When it was decided on.' })
  createdAt!: Date;
  @Field(() => Date, { nullable: true, description: 'When its servers were told to begin.' })
  startedAt!: Date | null;
  @Field(() => Date, { nullable: true, description: 'When it ended; null as long as it goes on.' })
  endedAt!: Date | null;
  @Field(() => String, { nullable: true, description: 'Why it ended, in one word, for example SERVER_LOST.' })
  endCause!: string | null;
  @Field(() => String, { nullable: true, description: 'Why it ended, for people.' })
  endReason!: string | null;
  @Field(() => Int, { nullable: true, description: 'Committed rounds when it ended.' })
  endRound!: number | null;
  @Field(() => Int, { description: 'Committed rounds of the checkpoint that it began with; 0 without one.' })
  fromRound!: number;
  @Field(() => Int, { nullable: true, description: 'The attempt that wrote this checkpoint.' })
  parentNumber!: number | null;
  @Field(() => ID, { nullable: true, description: 'The run of this checkpoint, when it is another one.' })
  parentRunId!: string | null;
}

@ObjectType({ description: 'A complete checkpoint.' })
export class RunCheckpoint {
  @Field(() => Int, { description: 'The attempt that wrote it.' })
  attempt!: number;
  @Field(() => Int, { description: 'Committed rounds in it.' })
  round!: number;
  @Field(() => Int, { description: 'Rounds of the whole run, as it was planned then.' })
  totalRounds!: number;
  @Field(() => Float, { description: 'Size of all of its files.' })
  bytes!: number;
  @Field({ description: 'SHA-256 of its manifest.' })
  sha256!: string;
  @Field(() => Float, { nullable: true, description: 'Mean training loss since the checkpoint before.' })
  loss!: number | null;
  @Field(() => CheckpointReasonEnum, { description: 'Why it was written.' })
  reason!: CheckpointReason;
  @Field(() => CheckpointStateEnum, { description: 'Whether a run can begin with it.' })
  state!: CheckpointState;
  @Field({ description: 'When it was complete.' })
  createdAt!: Date;
}

@ObjectType('RunEvent', { description: 'Something that happened in a run.' })
export class RunEventType {
  @Field(() => Int, { description: 'Numbers of a run from 1, without gaps: give the last one to runEvents(afterSeq) after a reconnect.' })
  seq!: number;
  @Field({ description: 'What happened, for programs, for example `worker.lost`. New types may be added.' })
  type!: string;
  @Field({ description: 'What happened, for people.' })
  message!: string;
  @Field(() => JsonScalar, { description: 'More about it, for programs; what is in it depends on the type.' })
  data!: unknown;
  @Field({ description: 'When it happened.' })
  at!: Date;
  @Field(() => Int, { description: 'The attempt that it happened in.' })
  attempt!: number;
}

@ObjectType({ description: 'An event and its place in the list.' })
export class RunEventEdge {
  @Field({ description: 'Its place, to be given as `after` or `before`.' })
  cursor!: string;
  @Field(() => RunEventType, { description: 'The event.' })
  node!: RunEventType;
}

@ObjectType({ description: 'A page of events.' })
export class RunEventConnection {
  @Field(() => [RunEventEdge], { complexity: countedAbove, description: 'The events of the page, in the order of the list.' })
  edges!: RunEventEdge[];
  @Field(() => PageInfo, { description: 'What there is before and after the page.' })
  pageInfo!: PageInfo;
}

@ObjectType({ description: 'A run and its place in the list.' })
export class RunEdge {
  @Field({ description: 'Its place, to be given as `after` or `before`.' })
  cursor!: string;
  @Field(() => Run, { description: 'The run.' })
  node!: Run;
}

@ObjectType({ description: 'A page of runs.' })
export class RunConnection {
  @Field(() => [RunEdge], { complexity: countedAbove, description: 'The runs of the page, in the order of the list.' })
  edges!: RunEdge[];
  @Field(() => PageInfo, { description: 'What there is before and after the page.' })
  pageInfo!: PageInfo;
  @Field(() => Int, { description: 'Runs in the whole list.' })
  totalCount!: number;
}

@ObjectType({ description: 'A bucket of one or more rounds.' })
export class MetricPoint {
  @Field(() => Int, { description: 'The last round of the bucket.' })
  round!: number;
  @Field(() => Int, { description: 'How many rounds it stands for.' })
  rounds!: number;
  @Field(() => Float, { description: 'Mean over the examples of the bucket.' })
  value!: number;
  @Field(() => Float, { description: 'Least value of a row in the bucket.' })
  min!: number;
  @Field(() => Float, { description: 'Greatest value of a row in the bucket.' })
  max!: number;
  @Field(() => Float, { description: 'When the last round was committed, in milliseconds since 1970.' })
  atMs!: number;
}

@ObjectType({ description: 'One metric over the rounds of a run.' })
export class MetricSeries {
  @Field({ description: 'As it was asked for.' })
  name!: string;
  @Field(() => [MetricPoint], { complexity: countedAbove, description: 'By round, the oldest first.' })
  points!: MetricPoint[];
}

@ObjectType({ description: 'What was measured in one committed round, or in several that were merged.' })
export class RunMetric {
  @Field(() => Int, { description: 'Number of the row in its run.' })
  seq!: number;
  @Field(() => Int, { description: 'The last round of the row.' })
  round!: number;
  @Field(() => Int, { description: 'How many rounds the row stands for.' })
  rounds!: number;
  @Field(() => Int, { description: 'The epoch of the round, from 0.' })
  epoch!: number;
  @Field(() => Float, { nullable: true, description: 'Mean training loss over the examples.' })
  loss!: number | null;
  @Field(() => Float, { nullable: true, description: 'Training accuracy, where the spec asks for it.' })
  accuracy!: number | null;
  @Field(() => Float, { nullable: true, description: 'Mean absolute error in training, where the spec asks for it.' })
  meanAbsoluteError!: number | null;
  @Field(() => Float, { nullable: true, description: 'Mean squared error in training, where the spec asks for it.' })
  meanSquaredError!: number | null;
  @Field(() => JsonScalar, { description: 'Loss and metrics in training, by name.' })
  values!: MeasuresRecord;
  @Field(() => JsonScalar, {
    nullable: true,
    description: 'Where the evaluation split was measured in these rounds: the round, its examples, and values by name.',
  })
  validation!: ValidationRecord | null;
  @Field(() => Float, { description: 'Speed of these rounds.' })
  examplesPerSecond!: number;
  @Field(() => Float, { description: 'Mean time of a round.' })
  roundMs!: number;
  @Field(() => Float, { nullable: true, description: 'Modes async and ssp: mean staleness of the updates. Null in mode sync.' })
  staleness!: number | null;
}

@ObjectType({ description: 'The run was accepted, or had been accepted before under the same idempotency key.' })
export class CreateRunSuccess {
  @Field(() => Run, { description: 'The run.' })
  readonly run: Run;
  constructor(run: Run) {
    this.run = run;
  }
}

@ObjectType({ description: 'The run is cancelled, or will be shortly.' })
export class CancelRunSuccess {
  @Field(() => Run, { description: 'The run.' })
  readonly run: Run;
  constructor(run: Run) {
    this.run = run;
  }
}

export const CreateRunResult = createUnionType({
  name: 'CreateRunResult',
  description: 'The run, or why there is none.',
  types: () => [CreateRunSuccess, InvalidInput, NotFound, Conflict, LimitReached] as const,
});
@ObjectType({ description: 'What was asked is under way.' })
export class ChangeRunSuccess {
  @Field(() => Run, { description: 'The run.' })
  readonly run: Run;
  constructor(run: Run) {
    this.run = run;
  }
}

@InputType({ description: 'A checkpoint of another run of the team.' })
export class ResumeFromInput {
  @Field(() => ID, { description: 'The run that has the checkpoint.' })
  runId!: string;
  @Field(() => Int, { nullable: true, description: 'Committed rounds in it; by default the newest.' })
  round?: number | null;
}

export const ChangeRunResult = createUnionType({
  name: 'ChangeRunResult',
  description: 'The run, or why it was not changed.',
  types: () => [ChangeRunSuccess, InvalidInput, NotFound, Conflict, LimitReached] as const,
});
export const CancelRunResult = createUnionType({
  name: 'CancelRunResult',
  description: 'The run, or why it cannot be cancelled.',
  types: () => [CancelRunSuccess, NotFound, Conflict] as const,
});

export { RunStatusEnum };
