/**
 * Starts a tf.js backend in this thread and says precisely what it is: two engines with one fingerprint compute the same
 * bits from the same inputs.
 */
import { createRequire } from 'node:module';
import path from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import { setThreadsCount, setWasmPaths, version_wasm, type BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import type * as tfl from '@tensorflow/tfjs-layers';
import { fusesMultiplyAdd, type TrainingVariant } from '@paceline/kernels';
import type { BackendName } from '@paceline/spec';
import type { BackendOptions, EngineDevice } from '../engine.js';
import { EngineMemoryError } from '../errors/engine-memory-error.js';
import { EngineUnavailableError } from '../errors/engine-unavailable.js';
import { normaliseInKernels, normaliseInPasses } from '../layers/normalisation/batch-norm.js';
import { fuseConvLstm } from '../layers/convolution/conv-lstm.js';
import { fuseConv } from '../layers/convolution/fuse-conv.js';
import { fuseConvPool } from '../layers/pooling/fuse-conv-pool.js';
import { fuseDense, fuseDenseOfRows } from '../layers/dense/fuse-dense.js';
import type { Fusing } from '../layers/prepare.js';
import { fuseRecurrent } from '../layers/recurrent/fuse-recurrent.js';
import { fuseAttention } from '../layers/attention/fuse-attention.js';
import { fuseLayerNorm } from '../layers/normalisation/fuse-layer-norm.js';
import { mendKernels } from './cpu/install.js';
import { CpuMemory, WasmMemory, type TensorMemory } from './tensor-memory.js';
import { convMaxPool as convMaxPoolOnTensorflow, poolingOf } from '../layers/pooling/conv-pool-tensorflow.js';
import { tensorflowFingerprint } from './tensorflow/fingerprint.js';
import { installFusedKernels } from './tensorflow/install.js';
import { loadTensorflowPackage } from './tensorflow/load-package.js';
import { TensorflowMemory } from './tensorflow/tensorflow-memory.js';
import { convMaxPool as convMaxPoolOnWasm, type ConvMaxPool } from '../layers/pooling/conv-pool-wasm.js';
import { installTrainingKernels } from './wasm/install.js';

/** What is read at once, in the thread that computes. */
export type SynchronousBackend = Exclude<BackendName, 'webgpu'>;

export interface StartedBackend extends Fusing {
  readonly name: SynchronousBackend;
  /** Engine, version, instruction set, threads, flags. At most 300 characters. */
  readonly fingerprint: string;
  /** The devices that it computes on, as far as the engine reports them; GPUs among them. */
  readonly devices: readonly EngineDevice[];
  readonly memory: TensorMemory;
  /** Makes this the backend of the thread's next operations. Synchronous: the backend has been started. */
  activate(): void;
}

/** Raised when a kernel of ours computes different bits than before, so that old and new workers do not mix. */
const KERNELS_REVISION = 9;

/** One thread: XNNPACK would cut the work by the number of threads, and a worker process has one compute thread per device. */
const WASM_THREADS = 1;

/** @throws EngineUnavailableError */
export async function startBackend(name: SynchronousBackend, options: BackendOptions = {}): Promise<StartedBackend> {
  // Without this the cpu backend greets every user with an advertisement on the console.
  tf.enableProdMode();
  const { fingerprint, devices = [], convMaxPool } = await STARTERS[name](options);
  const tfjsName = name === 'wasm-relaxed' ? 'wasm' : name;
  const memory = tfjsName === 'wasm' ? new WasmMemory() : tfjsName === 'tensorflow' ? new TensorflowMemory() : new CpuMemory();
  const fused = FUSED[tfjsName];
  return {
    name,
    fingerprint,
    devices,
    memory,
    activate: () => {
      // setBackend is asynchronous only for a backend that has not been started.
      if (tf.getBackend() !== tfjsName) void tf.setBackend(tfjsName);
    },
    fuse: (layer) => fused[layer.getClassName()]?.(layer, memory),
    fusePair: (first, second) => {
      if (convMaxPool) fuseConvPool(first, second, convMaxPool);
    },
  };
}

/** As tf.js knows it: a thread has one kind of wasm kernels. */
type TfjsName = Exclude<SynchronousBackend, 'wasm-relaxed'>;

type Fused = Readonly<Record<string, (layer: tfl.layers.Layer, memory: TensorMemory) => void>>;

/** Layers that have kernels of their own. */
const FUSED_ON_WASM: Fused = {
  Dense: fuseDenseOfRows,
  Conv2D: fuseConv,
  BatchNormalization: normaliseInKernels,
  LSTM: fuseRecurrent,
  GRU: fuseRecurrent,
  RNN: fuseRecurrent,
  ConvLSTM2D: fuseConvLstm,
  MultiHeadAttention: fuseAttention,
  LayerNormalization: fuseLayerNorm,
};
const FUSED_ON_TENSORFLOW: Fused = {
  Dense: fuseDense,
  Conv2D: fuseConv,
  ConvLSTM2D: fuseConvLstm,
  BatchNormalization: normaliseInPasses,
};
const FUSED_ON_CPU: Fused = { BatchNormalization: normaliseInPasses };
const FUSED: Readonly<Record<TfjsName, Fused>> = { wasm: FUSED_ON_WASM, tensorflow: FUSED_ON_TENSORFLOW, cpu: FUSED_ON_CPU };

interface Started {
  readonly fingerprint: string;
  readonly devices?: readonly EngineDevice[];
  readonly convMaxPool?: ConvMaxPool;
}

/** Each makes its backend the present one. */
const STARTERS: Readonly<Record<SynchronousBackend, (options: BackendOptions) => Promise<Started>>> = {
  async wasm() {
    await startWasm('plain');
    const simd = (await tf.env().getAsync('WASM_HAS_SIMD_SUPPORT')) ? 'yes' : 'no';
    return { ...ours(`tfjs-wasm ${version_wasm}`, `simd ${simd}`, `threads ${WASM_THREADS}`), convMaxPool: convMaxPoolOnWasm };
  },
  async 'wasm-relaxed'() {
    if (!fusesMultiplyAdd())
      throw new EngineUnavailableError(
        `This processor, or Node ${process.version}, has no fused multiply-add for WebAssembly: take \`engine: wasm\`.`,
      );
    await startWasm('relaxed');
    return {
      ...ours(`tfjs-wasm-relaxed ${version_wasm}`, 'simd relaxed, fused', `threads ${WASM_THREADS}`),
      convMaxPool: convMaxPoolOnWasm,
    };
  },
  async cpu() {
    mendKernels();
    await use('cpu');
    return ours(`tfjs-cpu ${tf.version_core}`);
  },
  async tensorflow({ tensorflowPackage }) {
    if (tensorflowPackage === undefined)
      throw new EngineUnavailableError(
        'TensorFlow is not installed here: run `paceline engine install tensorflow`, or take `engine: wasm`.',
      );
    const loaded = loadTensorflowPackage(tensorflowPackage);
    const isOnGpu = loaded.binding.isUsingGpuDevice();
    installFusedKernels(isOnGpu);
    await use('tensorflow');
    return {
      fingerprint: tensorflowFingerprint(loaded),
      devices: loaded.binding.listDevices?.() ?? [],
      ...(poolingOf(loaded.binding) !== undefined ? { convMaxPool: convMaxPoolOnTensorflow } : {}),
    };
  },
};

async function startWasm(variant: TrainingVariant): Promise<void> {
  setThreadsCount(WASM_THREADS);
  // The package finds its own files in Node; the explicit folder keeps that true when this code is bundled.
  const require = createRequire(import.meta.url);
  setWasmPaths(path.dirname(require.resolve('@tensorflow/tfjs-backend-wasm')) + path.sep);
  installTrainingKernels(variant);
  await use('wasm');
  refuseNullMemory(tf.backend() as BackendWasm);
}

async function use(name: TfjsName): Promise<void> {
  if (!(await tf.setBackend(name))) throw new Error(`tf.js could not start its backend ${name}`);
}

/** Math.exp and Math.log belong to V8 and may change with it in the last bit. */
function ours(engine: string, ...more: readonly string[]): Started {
  return { fingerprint: [engine, `kernels ${KERNELS_REVISION}`, ...more, `v8 ${process.versions.v8}`].join('; ') };
}

const MAX_ALLOCATION_BYTES = 2 ** 31;
const guarded = new WeakSet<object>();

/** When the heap is full, malloc answers 0 and tf.js would go on writing tensors over the module's own data. */
function refuseNullMemory({ wasm }: BackendWasm): void {
  if (guarded.has(wasm)) return;
  guarded.add(wasm);
  const allocator = wasm as unknown as { _malloc(bytes: number): number; _free(address: number): void };
  // Emscripten's first call of an export replaces the export's stub on the module: it must have happened before ours is put there.
  allocator._free(allocator._malloc(1));
  const malloc = allocator._malloc.bind(wasm);
  allocator._malloc = (bytes) => {
    // Close to 4 GiB the allocator's rounding overflows, and sizes beyond wrap around: it would answer with too little.
    const address = bytes < MAX_ALLOCATION_BYTES ? malloc(bytes) : 0;
    if (address === 0 && bytes > 0) {
      throw new EngineMemoryError(
        `no ${bytes} bytes are left in the wasm engine's heap of 4 GiB: use a larger \`accumulate\`, a smaller batch, a smaller model or \`engine: tensorflow\``,
      );
    }
    return address;
  };
}
