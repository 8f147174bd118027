/** What a compute thread computes with. */
import type { Engine } from '@paceline/engine';
import type { ThreadEngine } from './protocol.js';

/** @throws Error for an engine that was to compute on a GPU, and has found none */
export function onDevice({ fingerprint }: Pick<Engine, 'fingerprint'>, chosen: ThreadEngine | undefined): void {
  if (!chosen?.isOnGpu || fingerprint.includes('; device gpu')) return;
  throw new Error(
    `TensorFlow finds no GPU with CUDA_VISIBLE_DEVICES=${process.env['CUDA_VISIBLE_DEVICES'] ?? ''}: see its messages above, and \`paceline engine test tensorflow\`; the engine wasm needs none`,
  );
}
