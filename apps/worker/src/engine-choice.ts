/** Which engine a worker computes a run with. */
import { tensorflowEngines } from '@paceline/runtime';
import type { RunSpec } from '@paceline/spec';
import type { EngineChoice } from './compute-protocol.js';

/** Looked up for each seat: what is installed meanwhile is found. Without TensorFlow the compute thread refuses to start, with what to do. */
export function engineFor(wanted: RunSpec['engine']): EngineChoice {
  return wanted === 'tensorflow' ? { backend: wanted, tensorflowPackage: tensorflowEngines()[0]?.packageDir } : { backend: wanted };
}
