export {
  ArgumentError,
  BackendError,
  ForeignModelError,
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
