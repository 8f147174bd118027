/** Starts tf.js's webgpu backend in this thread, on a device of Dawn, and says precisely what it is. */
import { cpus } from 'node:os';
import * as tf from '@tensorflow/tfjs-core';
import type { EngineDevice } from '../backend.js';
import { EngineMemoryError } from '../engine-memory-error.js';
import { EngineUnavailableError } from '../engine-unavailable.js';
import type { Fusing } from '../layers/prepare.js';
import { findAdapter, type FoundAdapter } from './adapter.js';
import { normaliseInOperations } from './batch-norm.js';
import { GpuMemory } from './gpu-memory.js';
import { GPU_KERNELS_REVISION, installGpuKernels } from './kernels.js';
import { loadWebgpuBackend, type WebgpuBackend } from './tfjs-backend.js';

export interface StartedGpu extends Fusing {
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  readonly memory: GpuMemory;
  /**
   * Waits for work on the device. What the device refuses it tells nobody who does not ask, and results would be zeros.
   * @throws EngineMemoryError, or an Error with the device's words, also when the device is lost
   */
  checked<T>(work: () => Promise<T>): Promise<T>;
  /** What was computed with is freed; nothing can be computed afterwards. */
  destroy(): void;
}

/** Once per thread. @throws EngineUnavailableError */
export async function startGpu(webgpuPackage: string | undefined): Promise<StartedGpu> {
  tf.enableProdMode();
  const found = await findAdapter(webgpuPackage);
  // tf.js looks for what browsers have; the adapter it asks for is the one that was found.
  Object.assign(globalThis, found.globals);
  Object.defineProperty(globalThis, 'navigator', {
    value: { gpu: { requestAdapter: () => Promise.resolve(found.adapter) } },
    configurable: true,
  });
  loadWebgpuBackend();
  // Whether a small operation goes to the JavaScript backend would depend on where its operands happen to lie, and so on what was computed before.
  tf.env().set('WEBGPU_CPU_FORWARD', false);
  installGpuKernels();
  if (!(await tf.setBackend('webgpu')))
    throw new EngineUnavailableError(`tf.js could not start its backend webgpu on ${found.device.name}: take \`engine: wasm\`.`);
  const backend = tf.backend() as unknown as WebgpuBackend;
  const { device } = backend;
  let lost: Error | undefined;
  const losing = device.lost.then(({ message }) => {
    lost = new Error(`the GPU device ${found.device.name} is lost: ${message || 'no reason was given'}`);
    throw lost;
  });
  losing.catch(() => undefined); // it is thrown to who waits for work
  return {
    fingerprint: fingerprintOf(found),
    devices: [found.device],
    memory: new GpuMemory(backend),
    checked: async (work) => {
      if (lost) throw lost;
      return Promise.race([inErrorScopes(device, work), losing]);
    },
    fuse: (layer) => {
      if (layer.getClassName() === 'BatchNormalization') normaliseInOperations(layer);
    },
    fusePair: () => undefined,
    destroy: () => {
      device.destroy();
      Reflect.deleteProperty(globalThis, 'navigator');
    },
  };
}

const SCOPES: readonly GPUErrorFilter[] = ['validation', 'out-of-memory', 'internal'];

async function inErrorScopes<T>(device: GPUDevice, work: () => Promise<T>): Promise<T> {
  for (const scope of SCOPES) device.pushErrorScope(scope);
  const outcome = await work().then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  const told = await Promise.all(SCOPES.map(() => device.popErrorScope()));
  const error = told.find((each) => each !== null);
  if (error instanceof GPUOutOfMemoryError)
    throw new EngineMemoryError(
      `the memory of the GPU is full (${error.message.slice(0, 300)}): use a larger \`accumulate\`, a smaller batch or a smaller model`,
    );
  if (error) throw new Error(`the GPU refused a step: ${error.message.slice(0, 500)}`);
  if ('error' in outcome) throw outcome.error;
  return outcome.value;
}

/** Shaders are compiled by the driver for its device; a software driver compiles them for the processor. */
function fingerprintOf({ device, dawn }: FoundAdapter): string {
  const processor = (cpus()[0]?.model ?? process.arch).replace(/[;\s]+/g, ' ').trim();
  return [
    `tfjs-webgpu ${tf.version_core}`,
    `kernels ${GPU_KERNELS_REVISION}`,
    `Dawn ${dawn}`,
    device.name,
    `${process.platform} ${process.arch}`,
    ...(device.type === 'CPU' ? [processor.slice(0, 60)] : []),
    `v8 ${process.versions.v8}`,
  ].join('; ');
}
