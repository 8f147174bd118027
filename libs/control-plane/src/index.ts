/** Everything of the control plane that processes and the simulator use: its contract, what it decides, its loops, and the ports between. */
export {
  controlKey,
  PLACEMENT_QUEUE,
  WORKER_PLACEMENT_QUEUE,
  traceKey,
  tracedRunKey,
  REPORT_STREAM,
  REPORT_STREAM_MAX_ENTRIES,
  STEP_TASK_QUEUE,
} from './contract/redis-names.js';
export {
  type PlacementJob,
  placementJobId,
  placementJobSchema,
  type ServerAddress,
  serverAddressSchema,
  shouldYield,
  type StepTaskJob,
  stepTaskJobId,
  stepTaskJobSchema,
} from './contract/queues.js';
export { attemptKey, memberKey, tokenVerifier } from './token-verifier.js';
export { TOKEN_AUDIENCE, TOKEN_ISSUER, type TokenClaims, tokenClaimsSchema } from './contract/access-tokens.js';
export {
  type CheckpointRecord,
  type CoordinatorState,
  type EngineDeviceRecord,
  type EngineRecord,
  type FleetMember,
  type JournalEntry,
  type MeasuresRecord,
  type Report,
  reportSchema,
  type RunResult,
  runResultSchema,
  type ValidationRecord,
} from './contract/reports.js';
export {
  ackFieldName,
  acknowledgedOf,
  ackValue,
  type ControlFields,
  type LeadAnswer,
  leadFieldName,
  leadSchema,
  memberSeatsSchema,
} from './contract/control.js';
export {
  MAX_TRACED_ROUNDS,
  type TracedProcess,
  type TracedThread,
  type TraceRequest,
  traceRequestOf,
  MAX_TRACED_SPANS,
  traceRequestSchema,
} from './contract/traces.js';
export { chromeTrace, type ChromeTrace, type TraceEvent } from './trace/chrome-trace.js';
export { arbitrate, type Lead } from './arbiter.js';
export { connectRedis, RedisUnavailableError, withDeadline } from './redis.js';
export { type KeyOfReport, reportKey, reportSignature } from './report-signature.js';
export { controlFor, type FleetReporter, sendReport, startHeartbeats } from './report-stream.js';
export { type ControlPlane, type HeldJob, type JobQueue, redisControlPlane } from './process-ports.js';
export { ManualQueue } from './manual-queue.js';
export {
  DispatchLock,
  DispatchLockLostError,
  type DispatchLockPorts,
  HOLDER_STALE_AFTER_MS,
  wakefulClock,
} from './dispatch/dispatch-lock.js';
export { DispatchLoop, TICK_MS } from './dispatch/dispatch-loop.js';
export { ReportContinuity } from './dispatch/report-continuity.js';
export { JobStates } from './dispatch/job-states.js';
export {
  checkpointOf,
  compareStreamIds,
  endOf,
  type EntryOf,
  highWaterOf,
  type JournalAck,
  type JournalOutcome,
  type JournalReport,
  type KeptState,
  keptStateOf,
  mayHaveOutcomes,
  movesToRunning,
  mustStop,
  newEntriesOf,
  OUTCOMES,
  refusalOf,
  showsTraining,
} from './dispatch/journal-intake.js';
export { resultKeptBy, resultRounds } from './dispatch/kept-result.js';
export { type JobKind, jobKindOf, type PreparedJob, sendOutbox } from './dispatch/outbox.js';
export { type ConfirmLock, isPlacementWanted, type JobName, jobNameOf, Reconciler, type RunPage } from './dispatch/reconciler.js';
export { type ReportPorts, ReportReader, type StreamMessage } from './dispatch/report-reader.js';
export {
  coordinatorOf,
  observedRunOf,
  originOf,
  parentOf,
  placementJobOf,
  placesOf,
  priorityOf,
  serverProcesses,
  workersNeeded,
  neededOf,
  stepTaskJobOf,
  type StoredAttempt,
  type StoredCoordinator,
  type StoredRun,
  type StoredRunRows,
  type StoredServer,
  type StoredTask,
  waitingAt,
} from './dispatch/rows.js';
export { begunAttempt, endedAttempt } from './changes/attempts.js';
export { withOtherWorkers } from './changes/shard-workers.js';
export { ShardWorkerWatch } from './lifecycle/shard-worker-watch.js';
export { shardWorkersFor, spareWorkersFor, type SpareWorkers } from './lifecycle/worker-numbers.js';
export { leadAnswer, type SettledLead, settledLead } from './changes/leads.js';
export { isDue, type Moved, movedTo, type RunChange, type StatusMove, type StoredEvent } from './changes/moves.js';
export { claimed, endOfComplaint, madeAgain, suspectOf } from './changes/places.js';
export { type AskedOfRun, NO_CHECKPOINT, ONLY_BEYOND, requested, type RequestStep } from './changes/requests.js';
export { closedSeat, failedSeat, heldSeat, isToldOf, openedSeat } from './changes/seats.js';
export {
  type AfterEnd,
  afterEnd,
  ATTEMPT_END_ROWS,
  type AttemptEnd,
  type AttemptEndCause,
  causeOfComplaint,
  type SeatFailure,
} from './lifecycle/attempt-end.js';
export { ackFields, cancelField, claimantOf, isAttemptOver, openIncarnationOf } from './lifecycle/control-fields.js';
export { DEFAULT_TEAM_SHARE, type FairShares, fairShares, type PlacedRun, PLACES_PER_SERVER } from './lifecycle/fair-share.js';
export {
  type AttemptOrigin,
  firstRoundOf,
  foreignOrigin,
  letGo,
  lineageOf,
  type LineagePart,
  nextRestore,
  type RestoreDecision,
  type RestorePoint,
} from './lifecycle/lineage.js';
export type { DispatchAction, JobState, ObservedFleet, ObservedRun, ServerHealth } from './lifecycle/observed-run.js';
export { LOADING_AT_MOST_MS, LOST_AFTER_MS, REFUSED_SILENCE_MS } from './lifecycle/placing.js';
export { REQUEST_TABLE, RUN_REQUESTS, type RunRequest } from './lifecycle/requests.js';
export { restartsLeft } from './lifecycle/restarts.js';
export {
  ACTIVE_STATUSES,
  hasLiveAttempt,
  isOver,
  mayMove,
  RUN_MOVES,
  RUN_STATUS_MEANINGS,
  RUN_STATUSES,
  type RunStatus,
} from './lifecycle/run-status.js';
export { seatLimit } from './lifecycle/seating.js';
export {
  DEFAULT_TEAM_LIMITS,
  exceeded,
  exceededByBytes,
  type LimitExceeded,
  limitsOf,
  seatRoom,
  TEAM_LIMITS,
  type TeamLimits,
  type TeamUse,
} from './lifecycle/team-limits.js';
export { memoryWaits, type HeldPart, type RoomyServer, type UnplacedRun } from './lifecycle/server-room.js';
export { FEWER_AFTER_MS, type FleetCounts, type MemoryWait, waitsForServers } from './lifecycle/waiting-reason.js';
export { pinsOf, pinsText, type Pin } from './contract/pins.js';
