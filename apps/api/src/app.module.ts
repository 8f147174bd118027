/** Everything that the api consists of, by capability. What is started, and when, is in api-process.ts. */
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo';
import type { DynamicModule } from '@nestjs/common';
import { GraphQLModule } from '@nestjs/graphql';
import type { Logger } from '@paceline/runtime';
import { ClusterSpecsResolver } from './cluster-specs/cluster-specs.resolver.js';
import { ClusterSpecs } from './cluster-specs/cluster-specs.js';
import { DatabaseClock } from './database/database-clock.js';
import { BackgroundDatabase, Database } from './database/database.js';
import { CommitVersion } from './datasets/commit-version.js';
import { DataStore } from './datasets/data-store.js';
import { DataSweep } from './datasets/data-sweep.js';
import { DatasetImports } from './datasets/dataset-imports.js';
import { DatasetShards } from './datasets/dataset-shards.js';
import { DatasetsResolver, DatasetVersionsResolver } from './datasets/datasets.resolver.js';
import { Datasets } from './datasets/datasets.js';
import { Preview } from './datasets/preview.js';
import { RawUploads } from './datasets/raw-uploads.js';
import { RemoveDataset } from './datasets/remove-dataset.js';
import { UnusedManifests } from './datasets/unused-manifests.js';
import { ShardLeads } from './dispatch/shard-leads.js';
import { ControlHashes } from './dispatch/control-hashes.js';
import { DispatchSignal } from './dispatch/dispatch-signal.js';
import { Dispatcher } from './dispatch/dispatcher.js';
import { Executor } from './dispatch/executor.js';
import { JobSender } from './dispatch/job-sender.js';
import { OpenWork } from './dispatch/open-work.js';
import { Queues } from './dispatch/queues.js';
import { ReconcileTick } from './dispatch/reconcile-tick.js';
import { RedisConnections } from './dispatch/redis-connections.js';
import { ServerRoom } from './dispatch/server-room.js';
import { Shares } from './dispatch/shares.js';
import { RedisWatch } from './dispatch/redis-watch.js';
import { AccessTokens } from './dispatch/access-tokens.js';
import { Settings } from './environment.js';
import { FleetView } from './fleet/fleet-view.js';
import { FleetResolver } from './fleet/fleet.resolver.js';
import { Fleet } from './fleet/fleet.js';
import { ServerHealthReader } from './fleet/server-health.js';
import { Documents } from './graphql/documents.js';
import { graphqlOptions } from './graphql/graphql.options.js';
import { NodeResolver } from './graphql/node.resolver.js';
import { RateLimitResolver } from './graphql/rate-limit.resolver.js';
import { SubscriptionServer } from './graphql/subscription-server.js';
import { Subscriptions } from './graphql/subscriptions.js';
import { DatasetsController } from './http/datasets.controller.js';
import { ModelsController } from './http/models.controller.js';
import { CheckpointStore } from './models/checkpoint-store.js';
import { WeightUploads } from './models/weight-uploads.js';
import { HealthController } from './http/health.controller.js';
import { MetricsController } from './http/metrics.controller.js';
import { OpenApiController } from './http/openapi.controller.js';
import { Prometheus } from './http/prometheus.js';
import { RateLimits } from './http/rate-limits.js';
import { RunsController } from './http/runs.controller.js';
import { IdempotencyKeys } from './idempotency/idempotency-keys.js';
import { LOGGER } from './logger.js';
import { ReportsConsumer } from './reports/consumer.js';
import { FleetReports } from './reports/fleet-reports.js';
import { JournalStore } from './reports/journal-store.js';
import { SteadyJournal } from './reports/steady-journal.js';
import { InitialWeights } from './models/initial-weights.js';
import { ModelAliases } from './models/model-aliases.js';
import { ModelAliasesResolver } from './models/model-aliases.resolver.js';
import { ModelExports } from './models/model-exports.js';
import { RunPredictionsResolver } from './models/predictions.resolver.js';
import { RunPredictions } from './models/run-predictions.js';
import { RunTraces } from './traces/run-traces.js';
import { TraceKeeper } from './traces/trace-keeper.js';
import { WeightsOfRounds } from './models/stored-weights.js';
import { TargetScales, TargetScalesResolver } from './models/target-scales.js';
import { Attempts } from './runs/attempts.js';
import { PinnedCheckpoints } from './runs/pinned-checkpoints.js';
import { Courses } from './runs/course.js';
import { CreateRun } from './runs/create-run.js';
import { StrategyChoices } from './runs/strategy-choice.js';
import { LiveRun } from './runs/live-run.js';
import { Metrics } from './runs/metrics.js';
import { FleetMemory } from './runs/fleet-memory.js';
import { PrepareRun } from './runs/prepare-run.js';
import { RunDatasets } from './runs/run-dataset.js';
import { RunHeads } from './runs/run-heads.js';
import { RunReads } from './runs/run-reads.js';
import { RunSpecs } from './runs/run-specs.js';
import { RunRequests } from './runs/run-requests.js';
import { RunSignals } from './runs/run-signals.js';
import { Runs } from './runs/runs.js';
import { RunsResolver, RunSubscriptionsResolver, StepTaskResolver } from './runs/runs.resolver.js';
import { StatusMoves } from './runs/status-moves.js';
import { Weights } from './runs/weights.js';
import { Authentication } from './teams/authentication.js';
import { Bootstrap } from './teams/bootstrap.js';
import { Revocations } from './teams/revocations.js';
import { TeamsResolver } from './teams/teams.resolver.js';
import { TeamsService } from './teams/teams.service.js';

const database = [BackgroundDatabase, Database, DatabaseClock];
const teams = [Authentication, Bootstrap, Revocations, TeamsService, TeamsResolver];
const idempotency = [IdempotencyKeys];
const datasets = [
  CommitVersion,
  DataStore,
  DataSweep,
  DatasetImports,
  Datasets,
  DatasetShards,
  DatasetsResolver,
  DatasetVersionsResolver,
  Preview,
  RawUploads,
  RemoveDataset,
  UnusedManifests,
];
const clusterSpecs = [ClusterSpecs, ClusterSpecsResolver];
const fleet = [Fleet, FleetView, FleetResolver, ServerHealthReader];
const runs = [
  Attempts,
  PinnedCheckpoints,
  Courses,
  CreateRun,
  StrategyChoices,
  LiveRun,
  Metrics,
  FleetMemory,
  PrepareRun,
  RunDatasets,
  RunHeads,
  RunReads,
  RunSpecs,
  Runs,
  RunRequests,
  RunsResolver,
  RunSignals,
  RunSubscriptionsResolver,
  StatusMoves,
  StepTaskResolver,
  Weights,
];
const dispatch = [
  ShardLeads,
  ControlHashes,
  Dispatcher,
  DispatchSignal,
  Executor,
  JobSender,
  OpenWork,
  Queues,
  ReconcileTick,
  RedisConnections,
  RedisWatch,
  ServerRoom,
  Shares,
  AccessTokens,
];
const models = [
  CheckpointStore,
  InitialWeights,
  ModelAliases,
  ModelAliasesResolver,
  ModelExports,
  RunTraces,
  TraceKeeper,
  RunPredictions,
  RunPredictionsResolver,
  TargetScales,
  TargetScalesResolver,
  WeightsOfRounds,
  WeightUploads,
];
const reports = [FleetReports, JournalStore, SteadyJournal, ReportsConsumer];
const graphql = [NodeResolver, RateLimitResolver, Subscriptions, SubscriptionServer];
const http = [Prometheus, RateLimits];

export class AppModule {
  static with(settings: Settings, log: Logger): DynamicModule {
    const documents = new Documents();
    return {
      module: AppModule,
      imports: [GraphQLModule.forRoot<ApolloDriverConfig>({ driver: ApolloDriver, ...graphqlOptions(log, documents) })],
      controllers: [DatasetsController, HealthController, MetricsController, ModelsController, OpenApiController, RunsController],
      providers: [
        { provide: Settings, useValue: settings },
        { provide: LOGGER, useValue: log },
        { provide: Documents, useValue: documents },
        ...database,
        ...teams,
        ...idempotency,
        ...datasets,
        ...clusterSpecs,
        ...fleet,
        ...runs,
        ...models,
        ...dispatch,
        ...reports,
        ...graphql,
        ...http,
      ],
    };
  }
}
