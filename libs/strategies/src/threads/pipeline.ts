/** How much the threads of a model in stages share (stage-session.ts). */
import { maximalNodes, ReductionTree, type Node } from '@paceline/learning';
import type { Pipeline } from './protocol.js';

/** The counters of a boundary. */
export const [PASSED, RETURNED, COUNTERS] = [0, 1, 2];

/** Parts of a prediction whose tensors a boundary has room for: one is read while the next one is written. */
const BOUNDARY_PARTS = 2;

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

/** Vectors in which a pipeline adds its gradients up in the order of the tree, when they come one after the other: the most of any. */
export function vectorsOf(size: Size): number {
  let most = 0;
  for (let pipeline = 0; pipeline < size.pipelines; pipeline++) {
    let held = 0;
    const tree = new ReductionTree<undefined>(leavesOf(size), { add: () => undefined, release: () => held-- });
    for (let leaf = pipeline * size.microBatches; leaf < (pipeline + 1) * size.microBatches; leaf++) {
      most = Math.max(most, ++held);
      tree.insert({ lo: leaf, hi: leaf + 1 }, undefined);
    }
  }
  return most;
}

/** Each thread says where the sum of each of its nodes lies, in the order of `nodesOf`. */
const sumsOfThread = (size: Size): number => Math.max(...Array.from({ length: size.pipelines }, (_, p) => nodesOf(size, p).length));

export const sumsBytes = (size: Size): number => size.pipelines * size.stages * sumsOfThread(size) * Int32Array.BYTES_PER_ELEMENT;

/** The pointers of a stage in a pipeline. */
export function sumsOf(sums: SharedArrayBuffer, size: Size, stage: number, pipeline: number): Int32Array {
  const length = sumsOfThread(size);
  return new Int32Array(sums, (pipeline * size.stages + stage) * length * Int32Array.BYTES_PER_ELEMENT, length);
}

/** Rows of a prediction of so many that a boundary has room for in each pipeline. */
export const boundaryRoom = ({ pipelines }: Size, count: number, rowsAtOnce: number): number =>
  Math.min(Math.ceil(count / pipelines), rowsAtOnce * BOUNDARY_PARTS);

/** Where part `part` of a prediction lies in the room of a pipeline, in rows. */
export const roomOfPart = (part: number, rowsAtOnce: number): number => (part % BOUNDARY_PARTS) * rowsAtOnce;

/** A tensor may be put into a boundary when that of so many parts before has been taken out. */
export const partsInBoundary = BOUNDARY_PARTS;
