export { type CancelTimer, type Clock, processClock } from './clock.js';
export type { Connection, ConnectionClosed, FrameNumbers, FrameReceiver, TransportKind } from './connection.js';
export { StallTolerantClock } from './stall-tolerant-clock.js';
export { PeerTimeouts } from './transports/peer-timeouts.js';
export { ServerLinks } from './attempt/server-links.js';
export { ShardPlace } from './standby/shard-place.js';
export { type PlaceEnd, PLACE_TICK_MS, type PlaceSurroundings } from './standby/place-options.js';
export type { StateRows } from './attempt/state-table.js';
export { acquireRegion, Region } from './attempt/regions.js';
export type { ChunkScalars, RoundDecision, TwoPhaseOptions } from './sync/agreement.js';
export { SHARD_ROWS } from './sync/shard-table.js';
export { Shard } from './sync/shard.js';
export { ShardLink } from './transfer/shard-transfer.js';
export { checkChunk, type ChunkDecoder, type EncodedParameters } from './transfer/chunk-frames.js';
export type { ParameterEncoder, PublishedChunk } from './transfer/published.js';
export type { Slices } from './attempt/shard-work.js';
export type { CoordinatorPort, ShardHost } from './attempt/shard-ports.js';
export { REPLICATION_ROWS } from './standby/replication.js';
export { Standby, STANDBY_ROWS } from './standby/standby.js';
export type { KnownNumbers, Succession } from './attempt/succession.js';
export { Journal, type NumberedEntry, type ValidationPoint } from './attempt/journal.js';
export { COORDINATOR_ROWS } from './sync/coordinator-table.js';
export { type Measures, type Measuring, UNMEASURED } from './attempt/measures.js';
export type { EndWeights, ValidationPlan, Verdict } from './attempt/validations.js';
export type { CompletedCheckpoint } from './attempt/checkpoints.js';
export type { PublishedCheckpoint } from './attempt/stops.js';
export { Coordinator } from './attempt/coordinator.js';
export { Rounds } from './sync/rounds.js';
export { Member } from './sync/member.js';
export type { MemberOptions } from './sync/member-table.js';
export { type ComputePort, MEMBER_ROWS, type ParameterArrivals } from './sync/member-table.js';
export type { WorkItem } from './async/done-set.js';
export { ASYNC_COORDINATOR_ROWS, type AsyncCoordinatorOptions } from './async/async-coordinator-table.js';
export { WorkItems } from './async/work-items.js';
export { AsyncShard } from './async/async-shard.js';
export { type AppliedItem, ASYNC_SHARD_ROWS, type AsyncUpdate, type ItemStore } from './async/async-shard-table.js';
export { AsyncMember } from './async/async-member.js';
export { ASYNC_MEMBER_ROWS, type AsyncComputePort } from './async/async-member-table.js';
export { memoryPair } from './transports/memory.js';
export { type ServerAddress, connect } from './transports/connect.js';
export { createCounters } from './transports/counters.js';
export { type PeerName, type TlsFiles, TlsFilesError, TlsIdentity, type TlsRole, type TlsSettings } from './transports/tls/identity.js';
export { refusalLog } from './transports/tls/refusal-log.js';
export { listen, type SocketListener } from './transports/listen.js';
export type { ByteConsumer, ByteStream } from './transports/byte-stream.js';
export { RoundPace, type PaceClock } from './sync/round-pace.js';
export type { CodecPicker } from './attempt/codec-picking.js';
export { Link, type LinkSpeed } from './transports/link.js';
export { wireBytes, type ChunkSize } from './transports/outgoing-frame.js';
export { FramedConnection } from './transports/framed-connection.js';
export { resolveOptions } from './transports/limits.js';
export { MAX_SPANS, type Recording, type Span, SPAN_NAMES, type SpanName, SpanRecorder, spans } from './trace/spans.js';
export { printProtocolTables } from './protocol-tables.js';
export type { AttemptEnd, CoordinatorOptions, CoordinatorSurroundings, Outcome } from './attempt/attempt-options.js';
export { addRows, encodeRows, mostRowBytes, type Rows, RowsRegion } from './transfer/rows.js';
export type { MemberGroup } from './transfer/row-pulls.js';
export {
  type GatheredResiduals,
  type ReplicaResidual,
  ResidualLayout,
  type ResidualName,
  type StoredResiduals,
} from './transfer/residuals.js';
export type { ShardTables, TableGroup } from './sync/shard-table.js';
export { chunksOf, type ChunkBytes, type GradientNode, type MemberChunk, type OwnedChunk } from './transfer/chunks.js';
export type { ShardMachine } from './standby/shard-machine.js';
