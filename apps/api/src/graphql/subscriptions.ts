/**
 * Turns generators into the iterators that a subscription needs. An async generator that is parked on an await does not end when
 * `return()` is called; here `return()` aborts a signal that every wait listens to, so a client that goes away frees everything
 * at once. Subscriptions are counted per key and per team, because each costs a little forever.
 */
import { Injectable } from '@nestjs/common';
import { Fault } from '../fault.js';
import type { Viewer } from '../teams/authentication.js';

export const MAX_SUBSCRIPTIONS_PER_KEY = 100;
/** A team may have two hundred keys. */
export const MAX_SUBSCRIPTIONS_PER_TEAM = 400;

@Injectable()
export class Subscriptions {
  private readonly ofKeys = new Map<string, number>();
  private readonly ofTeams = new Map<string, number>();

  /** @throws Fault TOO_BUSY */
  open<T>({ apiKeyId, teamId }: Viewer, start: (signal: AbortSignal) => AsyncGenerator<T, void, undefined>): AsyncIterableIterator<T> {
    if ((this.ofKeys.get(apiKeyId) ?? 0) >= MAX_SUBSCRIPTIONS_PER_KEY)
      throw new Fault('TOO_BUSY', `This key has ${MAX_SUBSCRIPTIONS_PER_KEY} subscriptions; end some first.`, 5);
    if ((this.ofTeams.get(teamId) ?? 0) >= MAX_SUBSCRIPTIONS_PER_TEAM)
      throw new Fault('TOO_BUSY', `Your team has ${MAX_SUBSCRIPTIONS_PER_TEAM} subscriptions; end some first.`, 5);
    add(this.ofKeys, apiKeyId, 1);
    add(this.ofTeams, teamId, 1);
    const controller = new AbortController();
    const source = start(controller.signal);
    const closed = { done: true, value: undefined } as const;
    let over = false;
    const finish = (): void => {
      if (over) return;
      over = true;
      controller.abort();
      void source.return().catch(() => undefined); // parked on a row that nobody takes: lets it clean up
      add(this.ofKeys, apiKeyId, -1);
      add(this.ofTeams, teamId, -1);
    };
    return {
      [Symbol.asyncIterator]() {
        return this;
      },
      async next() {
        if (over) return closed;
        try {
          const result = await source.next();
          if (result.done) finish();
          return over ? closed : result;
        } catch (error) {
          finish();
          throw error;
        }
      },
      return() {
        finish();
        return Promise.resolve(closed);
      },
      throw(error: unknown) {
        finish();
        return Promise.reject(error instanceof Error ? error : new Error(String(error)));
      },
    };
  }

  get count(): number {
    return [...this.ofKeys.values()].reduce((sum, count) => sum + count, 0);
  }
}

function add(counts: Map<string, number>, key: string, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}
