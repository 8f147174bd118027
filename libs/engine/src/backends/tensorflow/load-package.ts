/**
 * Loads the backend of a @tensorflow/tfjs-node package into this thread, on our tf.js core. Its own entry point would load the whole union
 * package beside it: a second core, webgl, layers, the protobufs. Only two of its files are needed; what they ask for is put into
 * `require.cache` before, so that they find our modules, wherever the package lies. Nothing in the package is changed.
 */
import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { createRequire, Module } from 'node:module';
import { constants } from 'node:os';
import path from 'node:path';
import type { DataId, KernelBackend, TensorInfo } from '@tensorflow/tfjs-core';
import * as tf from '@tensorflow/tfjs-core';
import { EngineUnavailableError } from '../../errors/engine-unavailable.js';

/** The addon. What may be missing is there when this release of Paceline built it. */
export interface TensorflowBinding {
  readonly TF_Version: string;
  /** Runs an operation; the `id` of an output names it until it is deleted. */
  executeOp(name: string, attrs: readonly object[], inputs: readonly number[], outputs: number): readonly OperationOutput[];
  readonly TF_ATTR_TYPE: number;
  readonly TF_ATTR_INT: number;
  readonly TF_ATTR_STRING: number;
  readonly TF_ATTR_BOOL: number;
  readonly TF_FLOAT: number;
  readonly TF_INT32: number;
  readonly TF_INT64: number;
  readonly TF_BOOL: number;
  isUsingGpuDevice(): boolean;
  /** May keep the array and use its memory until the tensor is deleted. */
  createTensor(shape: readonly number[], dtype: number, values: Float32Array | Int32Array): number;
  deleteTensor(id: number): void;
  tensorDataSync(id: number): Float32Array;
  readTensorInto?(id: number, out: Float32Array): void;
  /** What the two passes below compute. */
  readonly poolingRevision?: number;
  /** Pools with bias and relu; -1 for no bias. Gives the pooled tensor and, if wanted, which cell of each window was the first largest, as bytes. */
  maxPool?(x: number, bias: number, withPlaces: boolean, window: readonly number[], relu: boolean): readonly OperationOutput[];
  /** The gradient [n, h, w, c] of what was pooled, from that of the pooled values. `image` is [h, w]. */
  maxUnpool?(dy: number, places: number, image: readonly number[], window: readonly number[]): OperationOutput;
  listDevices?(): { readonly name: string; readonly type: string; readonly memoryBytes: number }[];
}

export interface OperationOutput {
  readonly id: number;
  readonly shape: number[];
  readonly dtype: number;
}

export interface TensorflowBackend extends KernelBackend {
  getInputTensorIds(inputs: readonly TensorInfo[]): number[];
  createOutputTensor(output: OperationOutput): TensorInfo;
  executeSingleOutput(name: string, attrs: readonly object[], inputs: readonly TensorInfo[]): TensorInfo;
  readonly binding: TensorflowBinding;
  readonly tensorMap: {
    get(dataId: DataId): { readonly shape: number[]; readonly dtype: number; id: number; values: Float32Array | null };
  };
}

export interface LoadedPackage {
  /** Version of the package. */
  readonly version: string;
  readonly binding: TensorflowBinding;
}

const require = createRequire(import.meta.url);
let loaded: { readonly packageDir: string; readonly result: LoadedPackage } | undefined;

/** Registers the backend `tensorflow`. Once per thread. @throws EngineUnavailableError */
export function loadTensorflowPackage(packageDir: string): LoadedPackage {
  if (loaded) {
    if (loaded.packageDir === packageDir) return loaded.result;
    throw new Error(`this thread has loaded TensorFlow from ${loaded.packageDir} already`);
  }
  try {
    loaded = { packageDir, result: load(packageDir) };
    return loaded.result;
  } catch (error) {
    throw new EngineUnavailableError(
      `TensorFlow cannot be loaded from ${packageDir}: ${(error as Error).message.split('\n')[0]!.slice(0, 300)}. ` +
        'Run `paceline engine remove tensorflow` and `paceline engine install tensorflow`, or take `engine: wasm`.',
      { cause: error },
    );
  }
}

function load(packageDir: string): LoadedPackage {
  const fromPackage = createRequire(path.join(packageDir, 'package.json'));
  const manifest = JSON.parse(readFileSync(path.join(packageDir, 'package.json'), 'utf8')) as { name: string; version: string };
  restoreUtil();
  const core = require('@tensorflow/tfjs-core') as unknown;
  for (const name of ['@tensorflow/tfjs', '@tensorflow/tfjs-core']) provide(fromPackage.resolve(name), core);
  // Summaries for TensorBoard, which nothing here writes.
  provide(fromPackage.resolve('./dist/proto/api_pb'), {});
  const binding = fromPackage(bindingFile(packageDir)) as TensorflowBinding;
  keepLoaded(path.join(packageDir, 'deps/lib/libtensorflow.so'));
  fromPackage('./dist/register_all_kernels');
  const { NodeJSKernelBackend } = fromPackage('./dist/nodejs_kernel_backend') as {
    NodeJSKernelBackend: new (binding: TensorflowBinding, packageName: string) => TensorflowBackend;
  };
  tf.registerBackend('tensorflow', () => new NodeJSKernelBackend(binding, manifest.name), 0);
  return { version: manifest.version, binding };
}

/** RTLD_NODELETE of Linux: Node does not name it. */
const DLOPEN_NODELETE = 0x1000;

/**
 * Node unloads an addon, and with it TensorFlow's library, when the last thread that has it ends; what the library has left for the end of
 * the process (threads, destructors) then runs in memory that is gone: SIGSEGV or SIGABRT. Where the addon has found another library than
 * this one it stays as it is: to open this one would load a second TensorFlow.
 */
export function keepLoaded(library: string): void {
  if (!isMapped(library)) return;
  try {
    process.dlopen({ exports: {} }, library, constants.dlopen.RTLD_NOW | DLOPEN_NODELETE);
  } catch (error) {
    // It is no addon, Node says, and closes it again; the flag stays with it.
    // oxlint-disable-next-line messages/decide-nothing -- Node gives every failure of dlopen the same code
    if (!(error as Error).message.includes('did not self-register')) throw error;
  }
}

/** Whether this process has the file in its memory, under whatever name. Only Linux says. */
export function isMapped(file: string): boolean {
  if (process.platform !== 'linux' || !existsSync(file)) return false;
  const end = ` ${realpathSync(file)}`;
  return readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .some((line) => line.endsWith(end));
}

function provide(file: string, exports: unknown): void {
  if (require.cache[file]) return;
  const module = new Module(file);
  Object.assign(module, { filename: file, loaded: true, exports });
  require.cache[file] = module;
}

/** The package calls a function of `util` that Node 23 has taken out and Node 22 warns of. In this thread only. */
function restoreUtil(): void {
  (require('node:util') as { isNullOrUndefined: unknown }).isNullOrUndefined = (value: unknown) => value === null || value === undefined;
}

/** The binary for the newest Node-API that is there. */
function bindingFile(packageDir: string): string {
  const lib = path.join(packageDir, 'lib');
  const files = existsSync(lib)
    ? readdirSync(lib)
        .sort()
        .reverse()
        .map((napi) => path.join(lib, napi, 'tfjs_binding.node'))
    : [];
  const found = files.find(existsSync);
  if (!found) throw new Error('the package has no binary');
  return found;
}
