/** GraphQL operations on runs. Nothing is decided here: rules are in create-run.ts and runs.ts, live reading in live-run.ts. */
import { Args, Context, Float, ID, Int, Mutation, Parent, Query, ResolveField, Resolver, Subscription } from '@nestjs/graphql';
import { EXPORT_FORMATS } from '@paceline/models';
import { specFromSurface } from '@paceline/spec';
import { ClusterSpec } from '../cluster-specs/cluster-spec.types.js';
import { ClusterSpecs } from '../cluster-specs/cluster-specs.js';
import { Fault } from '../fault.js';
import { FleetView } from '../fleet/fleet-view.js';
import { Worker } from '../fleet/fleet.types.js';
import { JsonScalar } from '../graphql/json.scalar.js';
import { pageCost, READ_COST, readCost } from '../graphql/cost.js';
import { AFTER, BEFORE, FIRST, LAST } from '../graphql/page.js';
import { CurrentViewer, type GraphqlContext } from '../graphql/viewer.decorator.js';
import { KEY_DESCRIPTION, OnReplay } from '../graphql/replayed.decorator.js';
import { Subscriptions } from '../graphql/subscriptions.js';
import type { Viewer } from '../teams/authentication.js';
import { PickedCodec } from './codec-choice.js';
import { LostResiduals } from './lost-residuals.js';
import { StrategyChoice } from './strategy-choice.js';
import { Courses } from './course.js';
import { RunCourse } from './course.types.js';
import { CreateRun } from './create-run.js';
import { LiveRun } from './live-run.js';
import { Metrics } from './metrics.js';
import { progressOf, resultTypeOf, trafficOf } from './run-row.js';
import { RunRequests } from './run-requests.js';
import { RunSpecInput } from './run-spec.input.js';
import { RunSpecs } from './run-specs.js';
import { RunTraffic } from './traffic.types.js';
import type { RunStatus } from '@paceline/control-plane';
import {
  CancelRunResult,
  CancelRunSuccess,
  ChangeRunResult,
  ChangeRunSuccess,
  CreateRunResult,
  CreateRunSuccess,
  MetricSeries,
  ModelExport,
  ResumeFromInput,
  Run,
  RunAttempt,
  RunCheckpoint,
  RunConnection,
  RunEventConnection,
  RunEventType,
  RunLedger,
  RunMetric,
  RunProgress,
  RunResultType,
  RunServerType,
  RunStatusChangeType,
  RunStatusEnum,
  StepTask,
} from './run.types.js';
import { LISTED, MAX_LISTED, Runs } from './runs.js';

const RUN_ID = { type: () => ID, description: 'Of the run.' };
const LIST_COST = pageCost(LISTED, MAX_LISTED);
const LISTED_ARGUMENT = { type: () => Int, nullable: true, defaultValue: LISTED, description: `At most ${MAX_LISTED}.` };

/** Decisions, the newest validation and the best. */
const COURSE_COST = 3 * READ_COST;

/** A series is one statement over all rows of the run, and its points are small. */
function metricsCost({ args, childComplexity }: { args: Record<string, unknown>; childComplexity: number }): number {
  const series = Array.isArray(args['names']) ? args['names'].length : 1;
  return series * (READ_COST + (Number(args['maxPoints'] ?? 300) || 0) / 2 + childComplexity);
}

@Resolver(() => Run)
export class RunsResolver {
  constructor(
    private readonly runs: Runs,
    private readonly createRuns: CreateRun,
    private readonly requests: RunRequests,
    private readonly measured: Metrics,
    private readonly courses: Courses,
    private readonly clusterSpecs: ClusterSpecs,
    private readonly specs: RunSpecs,
  ) {}

  @Query(() => Run, { nullable: true, description: 'A run of your team; null where there is none.', complexity: readCost })
  run(@CurrentViewer() viewer: Viewer, @Args('id', RUN_ID) id: string) {
    return this.runs.find(viewer, id);
  }

  @Query(() => RunConnection, { name: 'runs', description: 'Runs of your team, the newest first.', complexity: pageCost(20) })
  list(
    @CurrentViewer() viewer: Viewer,
    @Args('first', { type: () => Int, nullable: true, defaultValue: 20, description: FIRST }) first?: number,
    @Args('after', AFTER) after?: string,
    @Args('last', LAST) last?: number,
    @Args('before', BEFORE) before?: string,
    @Args('status', { type: () => [RunStatusEnum], nullable: true, description: 'Runs in one of these; all when left out.' })
    status?: RunStatus[],
    @Args('name', { nullable: true, description: 'A part of the name, in upper or lower case.' }) name?: string,
  ) {
    return this.runs.list(viewer, { first, after, last, before, status, name });
  }

  @Query(() => [Run], {
    description:
      'What a person may mean by a text, at most 10, newest first: an id; @last, the newest run; a name; or the first or last characters of an id, 4 or more.',
  })
  runsMeant(@CurrentViewer() viewer: Viewer, @Args('reference', { description: 'What the person has typed.' }) reference: string) {
    return this.runs.meant(viewer, reference);
  }

  @Mutation(() => CreateRunResult, {
    description: 'Accepts a run. The same idempotency key with the same input answers with the run that was made first.',
  })
  async createRun(
    @CurrentViewer() viewer: Viewer,
    @Args('spec', { type: () => RunSpecInput, description: 'The run spec; fields that are left out have their defaults.' }) spec: object,
    @Args('clusterSpecId', {
      type: () => ID,
      nullable: true,
      description: 'It has at most as many servers as this cluster spec names. Which of the fleet they are is not said by it.',
    })
    clusterSpecId?: string,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) idempotencyKey?: string,
    @Args('resumeFrom', { type: () => ResumeFromInput, nullable: true, description: 'Begin with a checkpoint of another run.' })
    resumeFrom?: ResumeFromInput,
    @OnReplay() onReplay?: () => void,
  ) {
    const result = await this.createRuns.create(viewer, specFromSurface(spec), { clusterSpecId, idempotencyKey, resumeFrom, onReplay });
    return result instanceof Run ? new CreateRunSuccess(result) : result;
  }

  @Mutation(() => CancelRunResult, { description: 'The run ends within 10 s; asking twice is the same as asking once.' })
  async cancelRun(@CurrentViewer() viewer: Viewer, @Args('id', RUN_ID) id: string) {
    const result = await this.requests.cancel(viewer, id);
    return result instanceof Run ? new CancelRunSuccess(result) : result;
  }

  @Mutation(() => ChangeRunResult, {
    description: 'A RUNNING run writes a checkpoint at its next commit and is PAUSED within 10 s; one that only waits, at once.',
  })
  async pauseRun(@CurrentViewer() viewer: Viewer, @Args('id', RUN_ID) id: string) {
    return changed(await this.requests.pause(viewer, id));
  }

  @Mutation(() => ChangeRunResult, { description: 'A PAUSED run goes on from its last checkpoint, on other servers if wanted.' })
  async resumeRun(
    @CurrentViewer() viewer: Viewer,
    @Args('id', RUN_ID) id: string,
    @Args('servers', { type: () => Int, nullable: true, description: 'Parameter servers from here on.' }) servers?: number,
  ) {
    return changed(await this.requests.resume(viewer, id, servers));
  }

  @Mutation(() => ChangeRunResult, {
    description:
      'How many workers may hold a seat, 1 to replicas; surplus ones leave at a commit. Where workers hold the shards (multi-worker-mirrored, model-parallel, local-update with `workers`), the run goes on with so many, from a checkpoint and in a new attempt, as soon as they are connected; it takes no more by itself then, as `maxWorkers` is taken out of its spec.',
  })
  async scaleRun(
    @CurrentViewer() viewer: Viewer,
    @Args('id', RUN_ID) id: string,
    @Args('workers', {
      type: () => Int,
      description: 'From 1 to the replicas of the run; where workers hold the shards, 64 at most, and 2 at least with standbys.',
    })
    workers: number,
  ) {
    return changed(await this.requests.scale(viewer, id, workers));
  }

  @Mutation(() => ChangeRunResult, {
    description: 'So many rounds or epochs more for a PAUSED or SUCCEEDED run, in a new attempt from its last checkpoint.',
  })
  async extendRun(
    @CurrentViewer() viewer: Viewer,
    @Args('id', RUN_ID) id: string,
    @Args('rounds', { type: () => Int, nullable: true, description: 'So many rounds more; or epochs.' }) rounds?: number,
    @Args('epochs', { type: () => Int, nullable: true, description: 'So many passes over the training split more; or rounds.' })
    epochs?: number,
    @Args('idempotencyKey', { nullable: true, description: KEY_DESCRIPTION }) idempotencyKey?: string,
    @OnReplay() onReplay?: () => void,
  ) {
    const more = { ...(rounds === undefined ? {} : { rounds }), ...(epochs === undefined ? {} : { epochs }) };
    return changed(await this.requests.extend(viewer, id, more, { key: idempotencyKey, onReplay }));
  }

  @ResolveField(() => JsonScalar, {
    description:
      'The run spec with every default filled in. It may be large: a request for those of many runs is refused when they have more than 8 MiB together; see `shortSpec`.',
  })
  spec(@Context() context: GraphqlContext, @Parent() run: Run) {
    return this.specs.of(run, context);
  }

  @ResolveField(() => [RunAttempt], { description: 'Its attempts, the newest first.', complexity: LIST_COST })
  attempts(@Parent() run: Run, @Args('first', LISTED_ARGUMENT) first?: number) {
    return this.runs.attempts(run, first);
  }

  @ResolveField(() => [RunCheckpoint], {
    description: 'Its checkpoints, the newest first; those that were removed again are not shown.',
    complexity: LIST_COST,
  })
  checkpoints(@Parent() run: Run, @Args('first', LISTED_ARGUMENT) first?: number) {
    return this.runs.checkpoints(run, first);
  }

  @ResolveField(() => ClusterSpec, { nullable: true, description: 'Whose servers it is placed on; null: any.', complexity: readCost })
  clusterSpec(@CurrentViewer() viewer: Viewer, @Parent() run: Run) {
    return run.row.clusterSpecId ? this.clusterSpecs.find(viewer, run.row.clusterSpecId) : null;
  }

  @ResolveField(() => [ModelExport], { description: 'Of the result, or of the newest checkpoint of a run that has none.' })
  exports(@Parent() { id }: Run): ModelExport[] {
    return EXPORT_FORMATS.map((format) => ({ format, url: `/api/v1/runs/${id}/export?format=${format}` }));
  }

  @ResolveField(() => RunProgress, { description: 'Where it is.' })
  progress(@Parent() run: Run) {
    return progressOf(run.row);
  }

  @ResolveField(() => RunTraffic, {
    nullable: true,
    description:
      'Bytes between its workers and servers in the newest attempt, as of the last heartbeats; null before its coordinator has said any.',
  })
  traffic(@Parent() run: Run) {
    return trafficOf(run.row);
  }

  @ResolveField(() => PickedCodec, {
    nullable: true,
    description: 'With `codec: auto`: what was picked, and why; null before that, and where the spec names the codec.',
    complexity: readCost,
  })
  codec(@Parent() run: Run) {
    return this.runs.codec(run);
  }

  @ResolveField(() => LostResiduals, {
    nullable: true,
    description:
      'What its codec had kept of replicas and has lost; null where nothing was, so that the run has the bits of an undisturbed one.',
    complexity: readCost,
  })
  lostResiduals(@Parent() run: Run) {
    return this.runs.lostResiduals(run);
  }

  @ResolveField(() => StrategyChoice, {
    nullable: true,
    description: 'With `strategy: auto`: what was picked, and why; null before that, and where the strategy was named.',
    complexity: readCost,
  })
  pickedStrategy(@Parent() run: Run) {
    return this.runs.pickedStrategy(run);
  }

  @ResolveField(() => RunLedger, { description: 'What was committed, by count.', complexity: readCost })
  ledger(@Parent() run: Run) {
    return this.runs.ledger(run);
  }

  @ResolveField(() => RunResultType, { nullable: true, description: 'What it has come to; null before it has SUCCEEDED.' })
  result(@Parent() run: Run) {
    return resultTypeOf(run.row);
  }

  @ResolveField(() => RunCourse, {
    nullable: true,
    description: 'What its validations have come to; null before the first, and of a run that does not validate while it trains.',
    complexity: ({ childComplexity }) => COURSE_COST + childComplexity,
  })
  course(@Parent() run: Run) {
    return this.courses.of(run);
  }

  @ResolveField(() => [RunStatusChangeType], { description: 'The last so many changes, oldest first.', complexity: LIST_COST })
  statusHistory(@Parent() run: Run, @Args('last', LISTED_ARGUMENT) last?: number) {
    return this.runs.statusHistory(run, last);
  }

  @ResolveField(() => [StepTask], {
    description:
      'Step tasks (seats) of the present attempt: those that are held, then those that are open, then those that are closed, each newest first.',
    complexity: LIST_COST,
  })
  stepTasks(@Parent() run: Run, @Args('first', LISTED_ARGUMENT) first?: number) {
    return this.runs.stepTasks(run, first);
  }

  @ResolveField(() => [RunServerType], {
    description: 'Parameter servers of the present attempt that have claimed their part, standbys after their primaries.',
    complexity: readCost,
  })
  servers(@Parent() run: Run) {
    return this.runs.servers(run);
  }

  @ResolveField(() => RunEventConnection, { description: 'What happened in it, the oldest first.', complexity: pageCost(50) })
  events(
    @Parent() run: Run,
    @Args('first', { type: () => Int, nullable: true, defaultValue: 50, description: FIRST }) first?: number,
    @Args('after', AFTER) after?: string,
    @Args('last', LAST) last?: number,
    @Args('before', BEFORE) before?: string,
  ) {
    return this.runs.events(run, { first, after, last, before });
  }

  @ResolveField(() => [MetricSeries], {
    description: 'What was measured, downsampled on the server to at most maxPoints buckets between fromRound and toRound.',
    complexity: metricsCost,
  })
  metrics(
    @Parent() run: Run,
    @Args('names', {
      type: () => [String],
      description:
        'Of loss and the metrics of the run, the same with val_ on the evaluation split, examplesPerSecond, roundMs and staleness.',
    })
    names: string[],
    @Args('fromRound', { type: () => Int, nullable: true, description: 'The first round; 0 when left out.' }) fromRound?: number,
    @Args('toRound', { type: () => Int, nullable: true, description: 'The last round; the newest when left out.' }) toRound?: number,
    @Args('maxPoints', { type: () => Int, nullable: true, defaultValue: 300, description: 'Points of a series, at most 2000.' })
    maxPoints?: number,
  ) {
    return this.measured.series(run, { names, fromRound, toRound, maxPoints });
  }

  @ResolveField(() => [Float], {
    description: 'Modes async and ssp: how many updates had staleness 0, 1, 2, …, the last place counting all beyond. Empty in mode sync.',
    complexity: READ_COST,
  })
  staleness(@Parent() run: Run) {
    return this.measured.staleness(run);
  }
}

const changed = <T extends object>(result: Run | T) => (result instanceof Run ? new ChangeRunSuccess(result) : result);

@Resolver(() => StepTask)
export class StepTaskResolver {
  constructor(private readonly view: FleetView) {}

  @ResolveField(() => Worker, { nullable: true, description: 'Null when nobody holds the seat, or its worker is long gone.' })
  worker(@CurrentViewer() viewer: Viewer, @Parent() task: StepTask) {
    return task.workerId ? this.view.worker(viewer, task.workerId) : null;
  }
}

@Resolver()
export class RunSubscriptionsResolver {
  constructor(
    private readonly runs: Runs,
    private readonly live: LiveRun,
    private readonly subscriptions: Subscriptions,
  ) {}

  @Subscription(() => RunEventType, {
    resolve: (event: RunEventType) => event,
    description: 'Events of a run with seq > afterSeq, first those stored, then live; ends when the run is over and all were sent.',
  })
  async runEvents(
    @CurrentViewer() viewer: Viewer,
    @Args('runId', RUN_ID) runId: string,
    @Args('afterSeq', { type: () => Int, nullable: true, defaultValue: 0, description: 'The last event that you have; 0: all of them.' })
    afterSeq?: number,
  ) {
    const run = await this.existing(viewer, runId);
    return this.subscriptions.open(viewer, (signal) => this.live.events(run.id, Math.max(0, afterSeq ?? 0), signal));
  }

  @Subscription(() => RunMetric, {
    resolve: (metric: RunMetric) => metric,
    description: 'Metric rows as they are stored (at most 10 a second; rows in between are merged), after the round afterRound.',
  })
  async runMetrics(
    @CurrentViewer() viewer: Viewer,
    @Args('runId', RUN_ID) runId: string,
    @Args('afterRound', {
      type: () => Int,
      nullable: true,
      defaultValue: -1,
      description: 'The last round that you have; -1: all of them.',
    })
    afterRound?: number,
  ) {
    const run = await this.existing(viewer, runId);
    return this.subscriptions.open(viewer, (signal) => this.live.metrics(run.id, afterRound ?? -1, signal));
  }

  private async existing(viewer: Viewer, runId: string): Promise<Run> {
    const run = await this.runs.find(viewer, runId);
    if (!run) throw new Fault('NOT_FOUND', 'There is no run with this id.');
    return run;
  }
}
