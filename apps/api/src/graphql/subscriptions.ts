/**
 * Turns generators into the iterators that a subscription needs. An async generator that is parked on an await does not end when
 * `return()` is called; here `return()` aborts a signal that every wait listens to, so a client that goes away frees everything
 * at once. Subscriptions are counted per key, because each costs a little forever.
 */
import { Injectable } from '@nestjs/common';
import { Fault } from '../fault.js';
import type { Viewer } from '../teams/authentication.js';

export const MAX_SUBSCRIPTIONS_PER_KEY = 100;

@Injectable()
export class Subscriptions {
  private readonly open_ = new Map<string, number>();

  /** @throws Fault TOO_BUSY */
  open<T>({ apiKeyId }: Viewer, start: (signal: AbortSignal) => AsyncGenerator<T, void, undefined>): AsyncIterableIterator<T> {
    const count = this.open_.get(apiKeyId) ?? 0;
    if (count >= MAX_SUBSCRIPTIONS_PER_KEY)
      throw new Fault('TOO_BUSY', `This key has ${MAX_SUBSCRIPTIONS_PER_KEY} subscriptions; end some first.`, 5);
    this.open_.set(apiKeyId, count + 1);
    const controller = new AbortController();
    const source = start(controller.signal);
    const closed = { done: true, value: undefined } as const;
    let over = false;
    const finish = (): void => {
      if (over) return;
      over = true;
      controller.abort();
      void source.return().catch(() => undefined); // parked on a row that nobody takes: lets it clean up
      const left = (this.open_.get(apiKeyId) ?? 1) - 1;
      if (left > 0) this.open_.set(apiKeyId, left);
      else this.open_.delete(apiKeyId);
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
    return [...this.open_.values()].reduce((sum, count) => sum + count, 0);
  }
}
