/** Starts tf.js's webgpu backend in this thread, on a device of Dawn, and says precisely what it is. */
import { cpus } from 'node:os';
import * as tf from '@tensorflow/tfjs-core';
import type { EngineDevice } from '../../engine.js';
import { EngineUnavailableError } from '../../errors/engine-unavailable.js';
import type { Fusing } from '../../layers/prepare.js';
import { messageOf } from '../../errors/model-error.js';
import { findAdapter, type FoundAdapter } from './adapter.js';
import { normaliseInOperations } from '../../layers/normalisation/norms-webgpu.js';
import { checkedOn, type Checked } from './device-errors.js';
import { GpuMemory } from './gpu-memory.js';
import { GPU_KERNELS_REVISION, installGpuKernels } from './kernels.js';
import { loadWebgpuBackend, type WebgpuBackend } from './tfjs-backend.js';

export interface StartedGpu extends Fusing {
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  readonly memory: GpuMemory;
  /** The device reports errors only on request; without asking, results would be zeros. */
  readonly checked: Checked;
  /** What was computed with is freed; nothing can be computed afterwards. */
  destroy(): void;
}

/** Once per thread. @throws EngineUnavailableError whatever is missing: another engine may be taken instead */
export async function startGpu(webgpuPackage: string | undefined): Promise<StartedGpu> {
  try {
    return await start(webgpuPackage);
  } catch (cause) {
    if (cause instanceof EngineUnavailableError) throw cause;
    throw new EngineUnavailableError(`WebGPU cannot be started here (${messageOf(cause)}): take \`engine: wasm\`.`, { cause });
  }
}

async function start(webgpuPackage: string | undefined): Promise<StartedGpu> {
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
  return {
    fingerprint: fingerprintOf(found),
    devices: [found.device],
    memory: new GpuMemory(backend),
    checked: checkedOn(device, found.device.name),
    fuse: normaliseInOperations,
    fusePair: () => undefined,
    destroy: () => {
      device.destroy();
      Reflect.deleteProperty(globalThis, 'navigator');
    },
  };
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
