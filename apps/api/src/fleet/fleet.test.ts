import { createLogger } from '@paceline/runtime';
import { expect, it } from 'vitest';
import type { BackgroundDatabase } from '../database/database.js';
import { Fleet } from './fleet.js';

it('all who ask for the fleet at once are answered by one read of each role, and the next ones within a second by none', async () => {
  const asked: string[] = [];
  const database = { statement: async (name: string) => Promise.resolve(void asked.push(name)).then(() => []) };
  const fleet = new Fleet(database as unknown as BackgroundDatabase, createLogger('test'));
  const ask = () => Promise.all([fleet.members('server'), fleet.members('worker'), fleet.list('server'), fleet.list('worker')]);
  await ask();
  await ask();
  expect(asked).toEqual(['workers-seen', 'servers-seen']);
});
