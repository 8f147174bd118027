export {
  type ApiClusterOptions,
  ApiClusterResolver,
  type ClusterAddresses,
  ClusterError,
  type ClusterResolver,
  ClusterSpec,
  type ClusterSpecSource,
  DnsClusterResolver,
  type DnsOptions,
  GivenResolver,
  KubernetesClusterResolver,
  type KubernetesOptions,
  type Resolved,
  SlurmClusterResolver,
  type SlurmOptions,
  type Task,
  type TaskType,
  TfConfigResolver,
} from '@paceline/collectives';
export {
  ArgumentError,
  BackendError,
  ClusterConfigError,
  DeviceError,
  EngineError,
  ForeignModelError,
  FunctionError,
  MemberError,
  ReplicaError,
  ScopeError,
  StrategyError,
  type StrategyErrorCode,
  ThreadError,
  UnsupportedError,
} from './errors.js';
export { BackupAndRestore, type BackupOptions } from './backup.js';
export { type Evaluation, SidecarEvaluator, type SidecarOptions } from './sidecar-evaluator.js';
export type { DistributedEvaluateArgs, DistributedFitArgs, ModelData, Numbers, TakesArrays } from './model/given-arrays.js';
export { PerReplica, ReduceOp, type ValueContext } from './replicas/per-replica.js';
export type { ReplicaContext, ReplicaFunction } from './replicas/replica-function.js';
export type { BatchSource, DistributedDataset, InputContext } from './replicas/distributed-dataset.js';
export type { RunStrategy } from './run-options.js';
export { type OptimizerOptions, optimizers, type RunOptimizer } from './optimizers.js';
export { Strategy } from './strategy.js';
export type {
  HybridOptions,
  LocalUpdateOptions,
  MirroredOptions,
  ModelParallelOptions,
  MultiWorkerOptions,
  OneDeviceOptions,
  ParameterServerOptions,
  StrategyOptions,
  ThreadStrategyOptions,
} from './strategy-options.js';
export type { DeviceReport } from './devices/device-processes.js';
export { CentralStorageStrategy, MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';
export { LocalUpdateStrategy } from './local-update.js';
export { ModelParallelStrategy } from './model-parallel.js';
export { type Communication, type Members, MultiWorkerMirroredStrategy } from './multi-worker.js';
export { type LostMember, type ModelCommunication } from './members/group-link.js';
export { HybridStrategy, ParameterServerStrategy, type ServerState } from './parameter-server.js';
export { Server, type ServerOptions } from './servers/server.js';
export { ClusterCoordinator, type CoordinatorOptions, PerWorkerDataset, RemoteValue } from './coordinator/cluster-coordinator.js';
export type { ServedParameters, WorkerContext } from './coordinator/worker-context.js';
