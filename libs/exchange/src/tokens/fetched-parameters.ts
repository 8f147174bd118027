/** Who has fetched parameters for which token, how old they are, and, for the delay compensation, what they were. */
import { releaseRegions, type Region } from '../rounds/regions.js';
import { TOKENS_OF_WORKER } from './token-shard-table.js';

export interface Fetched {
  /** Updates applied here by then. */
  readonly updates: number;
  /** In which the coordinator came to coordinate that issued the token. */
  readonly term: number;
  readonly regions: readonly Region[];
}

export class FetchedParameters {
  /** By worker, then by the number of the token. */
  private readonly byWorker = new Map<string, Map<number, Fetched>>();

  get workers(): readonly string[] {
    return [...this.byWorker.keys()];
  }

  of(id: string, number: number): Fetched | undefined {
    return this.byWorker.get(id)?.get(number);
  }

  note(id: string, number: number, fetched: Fetched): void {
    let byToken = this.byWorker.get(id);
    if (!byToken) this.byWorker.set(id, (byToken = new Map<number, Fetched>()));
    drop(byToken, number);
    byToken.set(number, fetched);
    if (byToken.size > TOKENS_OF_WORKER) drop(byToken, byToken.keys().next().value!);
  }

  /** The token is done. */
  done(number: number): void {
    for (const byToken of this.byWorker.values()) drop(byToken, number);
  }

  /** The worker is gone. */
  forget(id: string): void {
    const byToken = this.byWorker.get(id);
    if (!byToken) return;
    for (const number of [...byToken.keys()]) drop(byToken, number);
    this.byWorker.delete(id);
  }
}

function drop(byToken: Map<number, Fetched>, number: number): void {
  releaseRegions(byToken.get(number)?.regions ?? []);
  byToken.delete(number);
}
