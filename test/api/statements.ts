/** What an api in this process asks of PostgreSQL. */
import pg from 'pg';
import type { RunningApi } from '../../apps/api/src/api-process.js';
import { ticks } from './services.js';

/** @returns statements that this process sends meanwhile, by their first words */
export async function statementsOf(act: () => Promise<unknown>): Promise<string[]> {
  const prototype = pg.Client.prototype as unknown as { query: (...args: unknown[]) => unknown };
  const { query } = prototype;
  const seen: string[] = [];
  prototype.query = function (this: unknown, ...args: unknown[]) {
    const [asked] = args as [string | { text: string }];
    seen.push((typeof asked === 'string' ? asked : asked.text).trim().replaceAll(/\s+/g, ' ').slice(0, 80));
    return query.apply(this, args);
  };
  try {
    await act();
  } finally {
    prototype.query = query;
  }
  return seen;
}

/** Ten ticks, and how many statements there may be: so many in each, and some a second: the lock, imports that wait, and the fleet, both roles, read and written. */
export async function statementsOfTicks(api: RunningApi, perTick: number, perSecond: number): Promise<{ seen: string[]; most: number }> {
  await ticks(api, 4); // what is done once is done
  const from = performance.now();
  const seen = await statementsOf(() => ticks(api, 10));
  const seconds = (performance.now() - from) / 1000;
  return { seen, most: perTick * 11 + Math.ceil(perSecond * seconds) };
}
