/** What the bits of TensorFlow depend on, as far as it can be known from outside. */
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { poolingOf } from '../../layers/pooling/conv-pool-tensorflow.js';
import { TENSORFLOW_KERNELS_REVISION } from './install.js';
import type { LoadedPackage } from './load-package.js';

const FEATURES = ['avx', 'avx2', 'fma', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_tile', 'asimd', 'sve'] as const;

export function tensorflowFingerprint({ version, binding }: LoadedPackage, env: NodeJS.ProcessEnv = process.env): string {
  const threads = `${env['TF_NUM_INTRAOP_THREADS'] || 'all'}/${env['TF_NUM_INTEROP_THREADS'] || 'all'}`;
  const isOn = (variable: string, standard: boolean): string => {
    const value = env[variable];
    return (value ? value === '1' || value === 'true' : standard) ? 'yes' : 'no';
  };
  const pooling = poolingOf(binding, env);
  const device = binding.isUsingGpuDevice() ? `gpu ${env['CUDA_VISIBLE_DEVICES'] ?? 'first'}` : 'cpu';
  return [
    `tfjs-tensorflow ${version}`,
    // Apart from ours, pooling comes after bias and relu, which may make equals of values that ours tells apart.
    `kernels ${TENSORFLOW_KERNELS_REVISION}${pooling === undefined ? '' : `, pooling ${pooling}`}`,
    `TensorFlow ${binding.TF_Version}`,
    `device ${device}`,
    `threads ${threads}`,
    `onednn ${isOn('TF_ENABLE_ONEDNN_OPTS', process.arch === 'x64')}`,
    `deterministic ${isOn('TF_DETERMINISTIC_OPS', false)}`,
    // Libraries choose their loops by the instruction set and by the caches, which go with the model.
    (cpus()[0]?.model ?? process.arch)
      .replace(/[;\s]+/g, ' ')
      .trim()
      .slice(0, 60),
    features(),
    `v8 ${process.versions.v8}`,
  ].join('; ');
}

function features(): string {
  const flags = new Set(/^(?:flags|Features)\s*:(.*)$/m.exec(cpuinfo())?.[1]?.trim().split(/\s+/));
  return FEATURES.filter((feature) => flags.has(feature)).join('+') || process.arch;
}

function cpuinfo(): string {
  try {
    return readFileSync('/proc/cpuinfo', 'latin1');
  } catch {
    return ''; // not Linux
  }
}
