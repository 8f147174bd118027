export {
  type ClusterAddresses,
  type ClusterResolver,
  ClusterSpec,
  GivenResolver,
  type Task,
  type TaskType,
  TfConfigResolver,
} from '@paceline/collectives';
export {
  ArgumentError,
  BackendError,
  ClusterConfigError,
  ForeignModelError,
  MemberError,
  ReplicaError,
  ScopeError,
  StrategyError,
  type StrategyErrorCode,
  ThreadError,
  UnsupportedError,
} from './errors.js';
export { Strategy, type StrategyOptions } from './strategy.js';
export {
  CentralStorageStrategy,
  MirroredStrategy,
  OneDeviceStrategy,
  type OneDeviceOptions,
  type ThreadStrategyOptions,
} from './thread-strategies.js';
export { MultiWorkerMirroredStrategy, type MultiWorkerOptions } from './multi-worker.js';
