export {
  type ClusterAddresses,
  type ClusterResolver,
  ClusterSpec,
  GivenResolver,
  type MemberAddress,
  type Resolved,
  memberIndex,
  memberName,
  type Task,
  type TaskType,
  TfConfigResolver,
} from './cluster-spec.js';
export { ApiClusterResolver, type ApiClusterOptions, type ClusterSpecSource } from './api-resolver.js';
export { type SlurmOptions, SlurmClusterResolver } from './slurm-resolver.js';
export { type KubernetesOptions, KubernetesClusterResolver } from './kubernetes-resolver.js';
export { type DnsOptions, DnsClusterResolver } from './dns-resolver.js';
export { ClusterError, MemberLostError } from './errors.js';
export { groupId, LEAST_SECRET_CHARACTERS } from './proof.js';
export { nodesOf, PIECE_LENGTH, type Range, rangeOf, replicasOf } from './parts.js';
export { add, AllReducePlan, type AllReduceOptions } from './all-reduce.js';
export { packedBytes, type Packing } from './packing.js';
export { type Add } from './sums.js';
export { keepsOrder, type Topology, TOPOLOGIES } from './routes.js';
export { type Choice, choose, probe, type Timing } from './probe.js';
export { type Operation } from './operation.js';
export { Spread } from './spread.js';
export { type Called, type Failure, Group } from './group.js';
export { Membership, ViewChangedError } from './membership.js';
export { type NextView, type View } from './views.js';
export { joinGroup, type Joined, type Transport } from './join.js';
export { processClock } from '@paceline/exchange';
export { socketTransport } from './socket-transport.js';
export { TreeSum } from './sums.js';
export { COORDINATOR, placeOf, type Roster, rosterOf, type TaskPlace, Tasks } from './tasks/meet.js';
export { type Arrival } from './tasks/greet.js';
export { type Content, GONE, type Handler, Peer, type Received, TaskError } from './tasks/peer.js';
