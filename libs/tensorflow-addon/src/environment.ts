/**
 * What TensorFlow reads when it is loaded. It reads the environment of the process, which a thread of Node cannot change: so the process sets
 * it before it starts a compute thread. What the user has set stays; the engine's fingerprint says what holds.
 *
 * One thread each, as for wasm: a worker process has one compute thread per device, and a pool of threads per worker would only get in the way of
 * the others. Equal bits from equal inputs on one machine.
 */
import { readdirSync } from 'node:fs';

const DEFAULTS: Readonly<Record<string, string>> = {
  TF_NUM_INTRAOP_THREADS: '1',
  TF_NUM_INTEROP_THREADS: '1',
  TF_DETERMINISTIC_OPS: '1',
  TF_ENABLE_ONEDNN_OPTS: '1',
  TF_CPP_MIN_LOG_LEVEL: '2',
  // A process takes what it needs of the GPU's memory, not all of it at once.
  TF_FORCE_GPU_ALLOW_GROWTH: 'true',
};

/** Where an engine is found and what it reads, the loader of Vulkan and its drivers among it: what a worker gets of its user's environment. */
const PASSED = /^((TF|VK|MESA)_\w+|CUDA_VISIBLE_DEVICES|PACELINE_HOME|XDG_CACHE_HOME|XDG_(CONFIG|DATA)_DIRS|LD_LIBRARY_PATH)$/;

/**
 * For one of several workers of a machine: one process per GPU, each seeing its own. Of the devices in CUDA_VISIBLE_DEVICES, or of all.
 * @param gpus number of NVIDIA devices
 */
export function engineVariables(index: number, env: NodeJS.ProcessEnv = process.env, gpus = countNvidiaDevices()): NodeJS.ProcessEnv {
  const passed = Object.fromEntries(Object.entries(env).filter(([name]) => PASSED.test(name)));
  const devices = nvidiaDevices(env, gpus);
  return devices.length > 0 ? { ...passed, CUDA_VISIBLE_DEVICES: devices[index % devices.length]! } : passed;
}

/**
 * The GPUs that processes of this one may use, as CUDA_VISIBLE_DEVICES names them: those that it lists, up to the first number that no device has, or all.
 * @param gpus number of NVIDIA devices
 */
export function nvidiaDevices(env: NodeJS.ProcessEnv = process.env, gpus = countNvidiaDevices()): readonly string[] {
  const given = env['CUDA_VISIBLE_DEVICES'];
  if (given === undefined) return Array.from({ length: gpus }, (_, i) => String(i));
  const names = given.split(',').map((name) => name.trim());
  const end = names.findIndex((name) => name === '' || (/^-?\d+$/.test(name) && !(Number(name) >= 0 && Number(name) < gpus)));
  return end < 0 ? names : names.slice(0, end);
}

function countNvidiaDevices(): number {
  try {
    return readdirSync('/dev').filter((name) => /^nvidia\d+$/.test(name)).length;
  } catch {
    return 0; // no such folder
  }
}

export function prepareForTensorflow(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  for (const [name, value] of Object.entries(DEFAULTS)) env[name] ||= value;
  return env;
}
