export {
  type ClusterAddresses,
  type ClusterResolver,
  ClusterSpec,
  GivenResolver,
  type MemberAddress,
  memberIndex,
  memberName,
  type Task,
  type TaskType,
  TfConfigResolver,
} from './cluster-spec.js';
export { ClusterError, MemberLostError } from './errors.js';
export { groupId, LEAST_SECRET_CHARACTERS } from './proof.js';
export { type Node, nodesOf, replicasOf } from './parts.js';
export { type Add, AllReducePlan } from './all-reduce.js';
export { Spread } from './spread.js';
export { type Called, type Failure, Group } from './group.js';
export { joinGroup, type Joined, type Transport } from './join.js';
export { processClock } from '@paceline/exchange';
export { socketTransport } from './socket-transport.js';
