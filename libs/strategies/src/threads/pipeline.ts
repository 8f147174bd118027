/** How much the threads of a model in stages share (stage-session.ts). */
import type { Pipeline } from './protocol.js';

/** The counters of a boundary. */
export const [PASSED, RETURNED, COUNTERS] = [0, 1, 2];

/** Parts of a prediction whose tensors a boundary has room for: one is read while the next one is written. */
export const BOUNDARY_PARTS = 2;

/** Bytes of the counters. */
export const flowBytes = (stages: number): number => (stages - 1) * COUNTERS * Int32Array.BYTES_PER_ELEMENT;

/** Losses of a step: of each micro-batch the loss that the last stage computes, then the penalties of each stage. */
export const lossesOfStages = ({ stages, microBatches }: Pipeline): number => stages * microBatches;

/** Vectors in which the gradients of micro-batches are added up in the order of the tree, when they come one after the other. */
export const vectorsOf = ({ microBatches }: Pipeline): number => Math.floor(Math.log2(microBatches)) + 1;
