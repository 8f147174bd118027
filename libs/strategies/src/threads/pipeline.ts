/** How much the threads of a model in stages share (stage-session.ts). */
import { maximalNodes, ReductionTree, type Node } from '@paceline/learning';
import type { Pipeline } from './protocol.js';

/** The counters of a boundary. */
export const [PASSED, RETURNED, COUNTERS] = [0, 1, 2];

/** Parts of a prediction whose tensors a boundary has room for: one is read while the next one is written. A part may be written when that of so many before has been taken out. */
export const BOUNDARY_PARTS = 2;

type Size = Pick<Pipeline, 'stages' | 'pipelines' | 'microBatches'>;

/** Bytes of the counters. */
export const flowBytes = ({ stages, pipelines }: Size): number => pipelines * (stages - 1) * COUNTERS * Int32Array.BYTES_PER_ELEMENT;

/** All micro-batches of a batch: the replicas of the reduction tree. Pipeline p has those from p · microBatches on. */
export const leavesOf = ({ pipelines, microBatches }: Size): number => pipelines * microBatches;

/** Losses of a step: of each micro-batch the loss that the last stage computes, then the penalties of each stage. */
export const lossesOfStages = (size: Size): number => size.stages * leavesOf(size);

/** The nodes of the reduction tree that a pipeline adds up, in order. */
export function nodesOf(size: Size, pipeline: number): Node[] {
  const own = Array.from({ length: size.microBatches }, (_, i) => pipeline * size.microBatches + i);
  return maximalNodes(leavesOf(size), new Set(own));
}

/** Vectors in which each pipeline adds its gradients up in the order of the tree, when they come one after the other. */
export const vectorsOf = (size: Size): number[] => Array.from({ length: size.pipelines }, (_, pipeline) => vectorsOfOne(size, pipeline));

function vectorsOfOne(size: Size, pipeline: number): number {
  let [held, most] = [0, 0];
  const tree = new ReductionTree<undefined>(leavesOf(size), { add: () => undefined, release: () => held-- });
  for (let leaf = pipeline * size.microBatches; leaf < (pipeline + 1) * size.microBatches; leaf++) {
    most = Math.max(most, ++held);
    tree.insert({ lo: leaf, hi: leaf + 1 }, undefined);
  }
  return most;
}

/** Bytes in which each thread writes where the sum of each of its nodes lies, in the order of `nodesOf`. */
export function sumsBytes(size: Size): number {
  const most = Math.max(...Array.from({ length: size.pipelines }, (_, pipeline) => nodesOf(size, pipeline).length));
  return size.pipelines * size.stages * most * Int32Array.BYTES_PER_ELEMENT;
}

/** The pointers of a stage in a pipeline. */
export function sumsOf(sums: SharedArrayBuffer, size: Size, stage: number, pipeline: number): Int32Array {
  const length = sums.byteLength / (size.pipelines * size.stages * Int32Array.BYTES_PER_ELEMENT);
  return new Int32Array(sums, (pipeline * size.stages + stage) * length * Int32Array.BYTES_PER_ELEMENT, length);
}

/** Rows of a prediction of so many that a boundary has room for in each pipeline. */
export const boundaryRoom = ({ pipelines }: Size, count: number, rowsAtOnce: number): number =>
  Math.min(Math.ceil(count / pipelines), rowsAtOnce * BOUNDARY_PARTS);

/** Where part `part` of a prediction lies in the room of a pipeline, in rows. */
export const roomOfPart = (part: number, rowsAtOnce: number): number => (part % BOUNDARY_PARTS) * rowsAtOnce;
