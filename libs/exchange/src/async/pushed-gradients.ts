/** What the connection of one worker to a shard is in the middle of, in modes async and ssp: gradients, chunk by chunk, and fetches behind them. */
import { ProtocolError } from '@paceline/protocol';
import { releaseRegions, type Region } from '../attempt/regions.js';
import type { WorkItem } from './done-set.js';
import { ITEMS_OF_WORKER } from './async-shard-table.js';

/** A gradient that is coming in, or is whole. */
export interface PushedGradient {
  readonly item: WorkItem;
  /** View of its last frame. */
  view: number;
  /** By the index of the chunk. */
  readonly regions: Map<number, Region>;
}

export interface Fetch extends WorkItem {
  /** Its number, which the answer repeats. */
  readonly n: number;
  /** Term of the coordinator that issued the work item. */
  readonly term: number;
}

export class PushedGradients {
  /** By the number of the work item. */
  private readonly arriving = new Map<number, PushedGradient>();
  /** Whole gradients that wait for a view, then fetches that came behind them. */
  readonly held: PushedGradient[] = [];
  readonly fetches: Fetch[] = [];
  /** In the line of the shard. */
  readonly inLine = { gradients: 0, fetches: 0 };

  /** @throws ProtocolError when a worker sends gradients of more work items than it holds */
  checkRoom(number: number): void {
    const others = this.arriving.size + this.held.length + this.inLine.gradients;
    if (others + (this.arriving.has(number) ? 0 : 1) > ITEMS_OF_WORKER)
      throw new ProtocolError('BAD_ROUND', `more than ${ITEMS_OF_WORKER} work items at once`);
  }

  /** A chunk has come. Returns the gradient when it has all `chunks`: it is the caller's then. */
  add(number: number, item: WorkItem, view: number, chunk: number, region: Region, chunks: number): PushedGradient | undefined {
    let gradient = this.arriving.get(number);
    if (!gradient) this.arriving.set(number, (gradient = { item, view, regions: new Map() }));
    gradient.regions.get(chunk)?.release(); // sent again
    gradient.regions.set(chunk, region);
    gradient.view = view;
    if (gradient.regions.size < chunks) return undefined;
    this.arriving.delete(number);
    return gradient;
  }

  /** The work item is done. */
  forget(number: number): void {
    const gradient = this.arriving.get(number);
    if (gradient) releaseGradient(gradient);
    this.arriving.delete(number);
  }

  /** The connection is gone. */
  letGo(): void {
    for (const gradient of [...this.arriving.values(), ...this.held]) releaseGradient(gradient);
  }
}

export function releaseGradient({ regions }: PushedGradient): void {
  releaseRegions([...regions.values()]);
}
