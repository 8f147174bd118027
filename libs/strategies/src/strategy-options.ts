/** The options of the strategies. What becomes of each in a run of the service: run-options.ts. */
import type { ClusterResolver, Topology } from '@paceline/collectives';
import type { GradientCodecKind, MemberCodec } from './members/packed-sums.js';

export interface StrategyOptions {
  /** Seeds dropout and noise; 0 by default. */
  readonly seed?: number;
}

export interface OneDeviceOptions extends StrategyOptions {
  /** A step without progress for so long is given up, in milliseconds; 60,000 by default. */
  readonly deadlineMs?: number;
}

export interface ThreadStrategyOptions extends OneDeviceOptions {
  /** Compute threads; one per core by default, and at most one per replica. */
  readonly threads?: number;
  /** Copies of the model that share each batch; as many as threads by default. With the same number the results have the same bits, however many threads compute them. */
  readonly replicas?: number;
}

export interface MirroredOptions extends ThreadStrategyOptions {
  /**
   * What computes the replicas. `wasm`: the engine of the compute threads. `tensorflow`: TensorFlow, once it is installed, in a process for each device. `auto`, the
   * default: `tensorflow` where `paceline engine install tensorflow --cuda` has installed it, there are GPUs and `threads` is not given; also for devices `gpu:…`; else
   * `wasm`.
   */
  readonly engine?: 'auto' | 'wasm' | 'tensorflow';
  /**
   * Each has a process of its own: `gpu:0`, `gpu:1`, or `cpu:0`, `cpu:1`, which are processes on cores. All GPUs by default, and with the engine `tensorflow` and
   * without one a process for each core. As many replicas by default, and at least.
   */
  readonly devices?: readonly string[];
}

export interface ModelParallelOptions extends OneDeviceOptions {
  /** Parts that a model is cut into, each of which has a compute thread in every pipeline; 2 by default, and as many as `cutAfter` makes. */
  readonly stages?: number;
  /** Copies of the pipeline side by side, each of which has a part of every batch, and a compute thread for each stage; 1 by default. */
  readonly pipelines?: number;
  /**
   * Parts of the batch of a pipeline that go through its stages one after the other; 2 for each stage by default. With the same number in all pipelines together the
   * results have the same bits, however many stages and pipelines there are, and those of `MirroredStrategy` with as many replicas.
   */
  readonly microBatches?: number;
  /**
   * Names of the layers that end a stage, in the order of the model, without the last one. Layers of a nested model are called `model/layer`; the name of the nested
   * model stands for its last one. By default the stages are balanced by what they compute.
   */
  readonly cutAfter?: readonly string[];
}

export interface MultiWorkerOptions extends ThreadStrategyOptions {
  /** Says who takes part, and which of them this process is; from the environment variable TF_CONFIG by default. */
  readonly cluster?: ClusterResolver;
  /** What all processes know, and nobody else: who shows it may join. From the environment variable PACELINE_CLUSTER_SECRET by default. */
  readonly secret?: string;
  /** Copies of the model over all processes, the same number in each; as many as all processes have threads by default. */
  readonly replicas?: number;
  /** All processes have to join within so long, in milliseconds; 300,000 by default. */
  readonly joinDeadlineMs?: number;
  /** How members reach each other: `auto` takes a Unix socket where both are on one host, else TCP. */
  readonly transport?: 'auto' | 'tcp' | 'unix';
  /** Address of the interface where this process listens; that of the cluster by default, `0.0.0.0` for all. */
  readonly listenHost?: string;
  /** Which way gradients take: `direct` by default; `auto` measures when all have joined. */
  readonly communication?: Topology | 'auto';
  /** Names of the hosts of all members, in their order; equal where the host is. By default the hosts of their addresses. */
  readonly hosts?: readonly string[];
  /** `sharded`: each process keeps the state of the optimizer for its part of the parameters, and updates that. `replicated` by default. */
  readonly optimizerSharding?: 'replicated' | 'sharded';
  /** How sums of gradients travel between processes, both ways; as float32 by default. Bits then depend on the number of processes. */
  readonly codec?: MemberCodec;
  /** With the codec `power-sgd`: columns of the two factors that stand for each matrix, from 1 to 32; 1 by default. */
  readonly codecRank?: number;
  /**
   * What the other processes do when one dies, or is silent for `deadlineMs`: `stop`, as TensorFlow does, by default; or `continue` without it, from the step
   * that was in hand.
   */
  readonly onMemberLoss?: 'stop' | 'continue';
}

export interface LocalUpdateOptions extends Omit<MultiWorkerOptions, 'optimizerSharding' | 'onMemberLoss' | 'codec' | 'codecRank'> {
  /** Steps that a replica takes between two averages; 8 by default. */
  readonly localSteps?: number;
  /**
   * Steps at the beginning that all replicas take together, as with MirroredStrategy (post-local SGD, arXiv:1808.07217); by the count of the model's
   * optimizer, so a model that is trained further takes none again. None by default; with `outer: 'average'` alone.
   */
  readonly syncSteps?: number;
  /**
   * What an average does: `average` makes it the common parameters; `nesterov` takes an outer step towards it, with Nesterov momentum (DiLoCo,
   * arXiv:2311.08105); with `elastic` every copy keeps its parameters, and they and the common ones are pulled towards each other (EASGD,
   * arXiv:1412.6651). `average` by default.
   */
  readonly outer?: 'average' | 'nesterov' | 'elastic';
  /**
   * What becomes of the state of the optimizers: with `average` every replica goes on with the mean; with `keep` it stays with its replica, as in DiLoCo, and is not
   * sent. `average` by default; with elastic, fragments and delay it is kept.
   */
  readonly innerState?: 'average' | 'keep';
  /**
   * Parts of the model that are exchanged one at a time, each once in `localSteps` steps, so that an exchange has so many times fewer bytes (Streaming
   * DiLoCo, arXiv:2501.18512); 1 by default, which is the whole model. At most one for each layer with weights.
   */
  readonly fragments?: number;
  /**
   * Steps that replicas take while an exchange is under way; its result is applied after them, so the steps do not wait for the network. At most
   * `localSteps / fragments`; 0 by default.
   */
  readonly delay?: number;
  /** With `delay`: the part of its own parameters that a replica keeps when the result is applied, the rest is that of the common ones; 0.5 by default. */
  readonly mixing?: number;
  /** Learning rate of the outer step; 0.7 by default. */
  readonly outerLearningRate?: number;
  /** Momentum of the outer step; 0.9 by default. */
  readonly outerMomentum?: number;
  /** Of elastic averaging: the part of the way that a copy and the common parameters go towards each other; at most 1 / replicas, and 0.9 / replicas by default. */
  readonly movingRate?: number;
}

export interface ParameterServerOptions extends StrategyOptions {
  /** What all processes know, and nobody else: who shows it may join. From the environment variable PACELINE_CLUSTER_SECRET by default. */
  readonly secret?: string;
  /** A step without progress for so long is given up, in milliseconds; 60,000 by default. */
  readonly deadlineMs?: number;
  /** All servers have to be reached within so long, in milliseconds; 300,000 by default. */
  readonly joinDeadlineMs?: number;
  /** How processes reach each other: `auto` takes a Unix socket where both are on one host, else TCP. */
  readonly transport?: 'auto' | 'tcp' | 'unix';
  /** How workers send their gradients to the servers; as float32 by default. `int4` and `sign` have error feedback. Parameters come back as float32. Bits then depend on the number of workers and servers. */
  readonly codec?: GradientCodecKind | 'none';
}

export interface HybridOptions extends ParameterServerOptions {
  /** Replicas of each worker, each in a compute thread: their gradients are added up before they leave. 2 by default. */
  readonly replicasPerWorker?: number;
  /**
   * Workers that are one group, in the order of the cluster: the first one of a group adds up the gradients of all and speaks with the parameter servers, the
   * others with workers of their group. 1 by default: each worker is a group by itself. The last group may have fewer.
   */
  readonly workersPerGroup?: number;
}
