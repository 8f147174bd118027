import { expect, test } from 'vitest';
import { DispatchLock, DispatchLockLostError, HOLDER_STALE_AFTER_MS } from './dispatch-lock.js';

/** PostgreSQL, as far as the lock goes: one holder, and when it was heard. */
class Store {
  nowMs = 0;
  isAway = false;
  holder: string | undefined;
  private heardAtMs = 0;
  beats = 0;
  readonly told: string[] = [];

  lock(name: string): DispatchLock {
    const reach = (): void => {
      if (this.isAway) throw new Error('PostgreSQL is away');
    };
    return new DispatchLock({
      now: () => this.nowMs,
      take: async (staleMs) => {
        reach();
        if (this.holder !== undefined && this.nowMs - this.heardAtMs <= staleMs) return Promise.resolve('another holds it');
        if (this.holder !== undefined) {
          this.holder = undefined;
          return Promise.resolve('ended its holder');
        }
        this.holder = name;
        this.heardAtMs = this.nowMs;
        return Promise.resolve('held');
      },
      beat: async () => {
        reach();
        this.beats++;
        if (this.holder === name) this.heardAtMs = this.nowMs;
        return Promise.resolve(this.holder === name);
      },
      letGo: async () => {
        if (this.holder === name) this.holder = undefined;
        return Promise.resolve();
      },
      told: (what) => void this.told.push(`${name} ${what}`),
    });
  }
}

test('one of two holds it; a holder that is heard keeps it however long, and lets it go in order', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  for (let i = 0; i < 100; i++, store.nowMs += 300) expect([await a.hold(), await b.hold()]).toEqual([true, false]);
  await a.letGo();
  expect([await b.hold(), await a.hold()]).toEqual([true, false]);
  expect(store.told).toEqual([]);
});

test('a holder that stands still is replaced after its time, and finds that out before it acts', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  expect(await a.hold()).toBe(true);
  store.nowMs += HOLDER_STALE_AFTER_MS;
  expect(await b.hold()).toBe(false);
  store.nowMs += 1;
  expect(await b.hold()).toBe(true);
  expect(store.told).toEqual(['b took over']);
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  await b.confirm();
  expect(await a.hold()).toBe(false);
  expect(store.told).toEqual(['b took over', 'a lost']);
});

test('a holder that takes long for a tick asks now and then, and keeps it', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  await a.hold();
  for (let ms = 0; ms < 60_000; ms += 500, store.nowMs += 500) {
    await a.confirm();
    expect(await b.hold()).toBe(false);
  }
  expect(store.beats).toBeGreaterThan(10);
  expect(store.beats).toBeLessThan(30);
});

test('it does not act on what it cannot confirm: while PostgreSQL is away, and after its connection has ended', async () => {
  const store = new Store();
  const a = store.lock('a');
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  await a.hold();
  store.isAway = true;
  await a.confirm(); // it was heard a moment ago
  store.nowMs += HOLDER_STALE_AFTER_MS / 2;
  await expect(a.confirm()).rejects.toThrow('PostgreSQL is away');
  store.isAway = false;
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  expect(await a.hold()).toBe(true);
});
