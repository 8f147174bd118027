/** Runs as GraphQL shows them. `row` on Run is what the fields with a resolver of their own are read from (runs.resolver.ts). */
import { createUnionType, Field, Float, ID, InputType, Int, ObjectType, registerEnumType } from '@nestjs/graphql';
import { countedAbove } from '../graphql/cost.js';
import { JsonScalar } from '../graphql/json.scalar.js';
import { Node, PageInfo } from '../graphql/node.type.js';
import { Conflict, InvalidInput, LimitReached, NotFound } from '../graphql/result.types.js';
import { RunStatus as RunStatusEnum } from '../generated/prisma/enums.js';
import { RUN_STATUS_MEANINGS, type RunStatus } from '@paceline/jobs';
import type { RunRow } from './run-row.js';

registerEnumType(RunStatusEnum, {
  name: 'RunStatus',
  valuesMap: Object.fromEntries(Object.entries(RUN_STATUS_MEANINGS).map(([status, description]) => [status, { description }])),
});

@ObjectType({ implements: () => [Node], description: 'One training job.' })
export class Run implements Node {
  id!: string;
  @Field()
  name!: string;
  @Field(() => RunStatusEnum)
  status!: RunStatus;
  @Field(() => String, { nullable: true, description: 'Why it is in this status, for people; a QUEUED run says what it waits for.' })
  statusReason!: string | null;
  @Field()
  statusChangedAt!: Date;
  @Field(() => JsonScalar, { description: 'The run spec with every default filled in.' })
  spec!: unknown;
  @Field(() => Int, { description: 'Raised whenever the run is restarted, resumed or rolled back.' })
  attempt!: number;
  @Field(() => Int, { description: 'Attempts that may still be started after failures without progress.' })
  restartsLeft!: number;
  @Field(() => Int, { description: 'Workers that may hold a seat at the same time (scaleRun).' })
  workersWanted!: number;
  @Field()
  createdAt!: Date;
  @Field(() => Date, { nullable: true, description: 'When training began.' })
  startedAt!: Date | null;
  @Field(() => Date, { nullable: true })
  finishedAt!: Date | null;
  @Field(() => Int)
  parameterCount!: number;
  /** Not a field: what the fields below are read from. */
  row!: RunRow;
  /** Not a field: of a run that this request has made, what else there is of it, so that its answer asks nothing of the database. */
  created?: { readonly attempts: RunAttempt[]; readonly statusHistory: RunStatusChangeType[] };
}

@ObjectType({ description: 'Where a run is, as its coordinator last said.' })
export class RunProgress {
  @Field({ description: 'waiting, training, evaluating, finished, cancelled or failed.' })
  phase!: string;
  @Field(() => Int, { description: 'Committed rounds.' })
  round!: number;
  @Field(() => Int)
  totalRounds!: number;
  @Field(() => Int, { description: 'The epoch of the round, from 0.' })
  epoch!: number;
  @Field(() => Float)
  totalEpochs!: number;
  @Field(() => Float, { nullable: true })
  loss!: number | null;
  @Field(() => Float, { nullable: true })
  accuracy!: number | null;
  @Field(() => Float, { nullable: true })
  examplesPerSecond!: number | null;
  @Field(() => Float, { nullable: true, description: 'Seconds until the last round, at the present speed.' })
  etaSeconds!: number | null;
  @Field(() => Int, { description: 'Workers that hold a seat.' })
  workers!: number;
  @Field(() => Int)
  replicas!: number;
  @Field(() => String, { nullable: true })
  waitingFor!: string | null;
}

@ObjectType({ description: 'What was committed: every example of an epoch exactly once in synchronous modes.' })
export class RunLedger {
  @Field(() => Int)
  committedRounds!: number;
  @Field(() => Float)
  committedExamples!: number;
  @Field(() => Float, {
    description: 'Examples of committed rounds that are in no update: of replicas that were too late, or of rounds that were left out.',
  })
  droppedExamples!: number;
  @Field(() => Float, { description: 'Examples that the committed rounds must have had: those committed and those dropped.' })
  expectedExamples!: number;
  @Field(() => Float, { description: 'Frames that the servers refused or dropped: old, double, or of nobody.' })
  refusedFrames!: number;
  @Field(() => Float)
  refusedConnections!: number;
}

@ObjectType('RunResult')
export class RunResultType {
  @Field(() => Int)
  rounds!: number;
  @Field(() => Float, { nullable: true, description: 'Mean loss on the evaluation split.' })
  loss!: number | null;
  @Field(() => Float, { nullable: true })
  accuracy!: number | null;
  @Field(() => Float)
  examplesPerSecond!: number;
  @Field(() => Float)
  trainedExamples!: number;
  @Field(() => Float)
  trainingMs!: number;
  @Field({ description: 'SHA-256 over the trainable section, then the state section, little-endian float32, layout order.' })
  weightsSha256!: string;
  @Field(() => String, { nullable: true, description: 'Path on this api; the safetensors file behind it needs the same key.' })
  weightsUrl!: string | null;
}

@ObjectType('RunStatusChange')
export class RunStatusChangeType {
  @Field(() => RunStatusEnum, { nullable: true })
  from!: RunStatus | null;
  @Field(() => RunStatusEnum)
  to!: RunStatus;
  @Field()
  reason!: string;
  @Field(() => Int)
  attempt!: number;
  @Field()
  at!: Date;
}

@ObjectType({ implements: () => [Node], description: 'A seat in a run for a bounded number of rounds, taken by any worker.' })
export class StepTask implements Node {
  id!: string;
  @Field(() => Int)
  seat!: number;
  @Field(() => Int, { description: 'How often this seat was made before.' })
  n!: number;
  @Field({ description: 'OPEN, HELD or CLOSED.' })
  state!: string;
  @Field(() => [Int])
  replicas!: number[];
  @Field()
  createdAt!: Date;
  workerId!: string | null;
}

@ObjectType('RunServer')
export class RunServerType {
  @Field(() => Int)
  index!: number;
  @Field({ description: 'PRIMARY, or STANDBY of a shard that has two servers.' })
  role!: string;
  @Field(() => Int, { description: 'Raised by each takeover of a standby inside the attempt; 1 at the start.' })
  term!: number;
  @Field()
  serverId!: string;
  @Field()
  address!: string;
  @Field({ description: 'CLAIMED, STARTED or LOST.' })
  state!: string;
}

@ObjectType({ description: 'One uninterrupted life of a run.' })
export class RunAttempt {
  @Field(() => Int)
  number!: number;
  @Field()
  createdAt!: Date;
  @Field(() => Date, { nullable: true, description: 'When its servers were told to begin.' })
  startedAt!: Date | null;
  @Field(() => Date, { nullable: true })
  endedAt!: Date | null;
  @Field(() => String, { nullable: true, description: 'Why it ended, in one word, for example SERVER_LOST.' })
  endCause!: string | null;
  @Field(() => String, { nullable: true })
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
  @Field(() => Int)
  attempt!: number;
  @Field(() => Int, { description: 'Committed rounds in it.' })
  round!: number;
  @Field(() => Int)
  totalRounds!: number;
  @Field(() => Float)
  bytes!: number;
  @Field({ description: 'SHA-256 of its manifest.' })
  sha256!: string;
  @Field(() => Float, { nullable: true, description: 'Mean training loss since the checkpoint before.' })
  loss!: number | null;
  @Field({ description: 'cadence, pause, final or shutdown.' })
  reason!: string;
  @Field({ description: 'USABLE; VOID: a restore went back before it; INVALID: a server could not load it.' })
  state!: string;
  @Field()
  createdAt!: Date;
}

@ObjectType('RunEvent')
export class RunEventType {
  @Field(() => Int, { description: 'Numbers of a run from 1, without gaps: give the last one to runEvents(afterSeq) after a reconnect.' })
  seq!: number;
  @Field()
  type!: string;
  @Field()
  message!: string;
  @Field(() => JsonScalar)
  data!: unknown;
  @Field()
  at!: Date;
  @Field(() => Int)
  attempt!: number;
}

@ObjectType()
export class RunEventEdge {
  @Field()
  cursor!: string;
  @Field(() => RunEventType)
  node!: RunEventType;
}

@ObjectType()
export class RunEventConnection {
  @Field(() => [RunEventEdge], { complexity: countedAbove })
  edges!: RunEventEdge[];
  @Field(() => PageInfo)
  pageInfo!: PageInfo;
}

@ObjectType()
export class RunEdge {
  @Field()
  cursor!: string;
  @Field(() => Run)
  node!: Run;
}

@ObjectType()
export class RunConnection {
  @Field(() => [RunEdge], { complexity: countedAbove })
  edges!: RunEdge[];
  @Field(() => PageInfo)
  pageInfo!: PageInfo;
  @Field(() => Int)
  totalCount!: number;
}

@ObjectType()
export class MetricPoint {
  @Field(() => Int, { description: 'The last round of the bucket.' })
  round!: number;
  @Field(() => Int, { description: 'How many rounds it stands for.' })
  rounds!: number;
  @Field(() => Float, { description: 'Mean over the examples of the bucket.' })
  value!: number;
  @Field(() => Float)
  min!: number;
  @Field(() => Float)
  max!: number;
  @Field(() => Float)
  atMs!: number;
}

@ObjectType()
export class MetricSeries {
  @Field()
  name!: string;
  @Field(() => [MetricPoint], { complexity: countedAbove })
  points!: MetricPoint[];
}

@ObjectType()
export class RunMetric {
  @Field(() => Int)
  seq!: number;
  @Field(() => Int)
  round!: number;
  @Field(() => Int)
  rounds!: number;
  @Field(() => Int)
  epoch!: number;
  @Field(() => Float, { nullable: true })
  loss!: number | null;
  @Field(() => Float, { nullable: true })
  accuracy!: number | null;
  @Field(() => Float)
  examplesPerSecond!: number;
  @Field(() => Float)
  roundMs!: number;
  @Field(() => Float, { nullable: true, description: 'Modes async and ssp: mean staleness of the updates. Null in mode sync.' })
  staleness!: number | null;
}

@ObjectType()
export class CreateRunSuccess {
  @Field(() => Run)
  readonly run: Run;
  constructor(run: Run) {
    this.run = run;
  }
}

@ObjectType()
export class CancelRunSuccess {
  @Field(() => Run)
  readonly run: Run;
  constructor(run: Run) {
    this.run = run;
  }
}

export const CreateRunResult = createUnionType({
  name: 'CreateRunResult',
  types: () => [CreateRunSuccess, InvalidInput, NotFound, Conflict, LimitReached] as const,
});
@ObjectType()
export class ChangeRunSuccess {
  @Field(() => Run)
  readonly run: Run;
  constructor(run: Run) {
    this.run = run;
  }
}

@InputType({ description: 'A checkpoint of another run of the team.' })
export class ResumeFromInput {
  @Field(() => ID)
  runId!: string;
  @Field(() => Int, { nullable: true, description: 'Committed rounds in it; by default the newest.' })
  round?: number | null;
}

export const ChangeRunResult = createUnionType({
  name: 'ChangeRunResult',
  types: () => [ChangeRunSuccess, InvalidInput, NotFound, Conflict, LimitReached] as const,
});
export const CancelRunResult = createUnionType({ name: 'CancelRunResult', types: () => [CancelRunSuccess, NotFound, Conflict] as const });

export { RunStatusEnum };
