/**
 * The update of one work item at one chunk (modes async and ssp, docs/protocol.md §12.3).
 *
 *   trainable   g = grad / examples; with delay compensation g + lambda · g · g · (w_now − w_fetched) (DC-ASGD, Zheng et al. 2017);
 *               then the optimizer, its step size divided by 1 + staleness where the run asks for it (Zhang et al. 2016)
 *   state       s + change: what the replica's new state differs by from the state that it fetched
 */
import type { Kernels } from '@paceline/kernels';
import type { Optimizer } from './optimizers.js';

export interface AsyncUpdateOptions {
  readonly stalenessScaledRate: boolean;
  /** lambda; 0 is off. */
  readonly delayCompensation: number;
}

/** Pointers are into the arena of the kernels; all regions have `count` float32. */
export interface AsyncChunkUpdate {
  readonly section: 'trainable' | 'state';
  readonly paramIn: number;
  /** May be paramIn. */
  readonly paramOut: number;
  /** Trainable: the sum over the work item's examples; state: what its values change by. It is overwritten. */
  readonly grad: number;
  readonly slots: readonly number[];
  readonly count: number;
  /** Rows of the work item. */
  readonly examples: number;
  /** Number of the update, from 1. */
  readonly step: number;
  readonly staleness: number;
  /** Multiplies the learning rate: that of the work item's round. */
  readonly rateFactor?: number | undefined;
  /** The chunk as the worker fetched it; needed for the delay compensation. */
  readonly fetched: number | undefined;
  /** What comes between compensation and optimizer: cutting the gradient, decaying the weights. Says where the parameters lie then. */
  readonly prepare?: ((rates: { readonly gradScale: number; readonly rateDivisor: number }) => number) | undefined;
  /** `grad` is what `applyAsyncUpdate` has left there with the same parameters, at another server: the compensation is in it. */
  readonly isCompensated?: boolean | undefined;
}

/** @throws Error when the delay compensation lacks the fetched parameters */
export function applyAsyncUpdate(kernels: Kernels, optimizer: Optimizer, options: AsyncUpdateOptions, update: AsyncChunkUpdate): void {
  const { section, paramIn, paramOut, grad, count, examples, staleness } = update;
  if (section === 'state') {
    if (paramOut !== paramIn) kernels.copy(paramOut, paramIn, count);
    return kernels.add(paramOut, grad, count);
  }
  const mean = Math.fround(1 / examples);
  const isCompensated = options.delayCompensation > 0;
  if (isCompensated && !update.isCompensated) {
    if (update.fetched === undefined) throw new Error('delay compensation needs the parameters that were fetched');
    kernels.compensateDelay(grad, paramIn, update.fetched, count, options.delayCompensation, mean);
  }
  const gradScale = isCompensated ? 1 : mean;
  const rateDivisor = options.stalenessScaledRate ? 1 + staleness : 1;
  const prepared = update.prepare?.({ gradScale, rateDivisor }) ?? paramIn;
  optimizer.apply(kernels, {
    paramIn: prepared,
    paramOut,
    grad,
    slots: update.slots,
    count,
    step: update.step,
    gradScale,
    rateFactor: update.rateFactor ?? 1,
    rateDivisor,
  });
}

/** What a replica pushes for a state section: `state` holds its new state times its examples, and becomes the change from `fetched`. */
export function stateChange(state: Float32Array, fetched: Float32Array, examples: number): void {
  const mean = Math.fround(1 / examples);
  for (let i = 0; i < state.length; i++) state[i] = Math.fround(Math.fround(state[i]! * mean) - fetched[i]!);
}
