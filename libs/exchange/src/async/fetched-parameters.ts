/** The fetches of workers: for which work item, how old the parameters are, and for the delay compensation the parameters themselves. */
import { releaseRegions, type Region } from '../attempt/regions.js';
import { ITEMS_OF_WORKER } from './async-shard-table.js';

export interface Fetched {
  /** Updates applied here by then. */
  readonly updates: number;
  /** Term of the coordinator that issued the work item. */
  readonly term: number;
  readonly regions: readonly Region[];
}

export class FetchedParameters {
  /** By worker, then by the number of the work item. */
  private readonly byWorker = new Map<string, Map<number, Fetched>>();

  get workers(): readonly string[] {
    return [...this.byWorker.keys()];
  }

  of(id: string, number: number): Fetched | undefined {
    return this.byWorker.get(id)?.get(number);
  }

  note(id: string, number: number, fetched: Fetched): void {
    let byItem = this.byWorker.get(id);
    if (!byItem) this.byWorker.set(id, (byItem = new Map<number, Fetched>()));
    drop(byItem, number);
    byItem.set(number, fetched);
    if (byItem.size > ITEMS_OF_WORKER) drop(byItem, byItem.keys().next().value!);
  }

  /** The work item is done. */
  done(number: number): void {
    for (const byItem of this.byWorker.values()) drop(byItem, number);
  }

  /** The worker is gone. */
  forget(id: string): void {
    const byItem = this.byWorker.get(id);
    if (!byItem) return;
    for (const number of [...byItem.keys()]) drop(byItem, number);
    this.byWorker.delete(id);
  }
}

function drop(byItem: Map<number, Fetched>, number: number): void {
  releaseRegions(byItem.get(number)?.regions ?? []);
  byItem.delete(number);
}
