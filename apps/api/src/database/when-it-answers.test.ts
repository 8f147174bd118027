import { expect, test } from 'vitest';
import { UserError } from '@paceline/runtime';
import { whenItAnswers, type Waiting } from './when-it-answers.js';

const late = () => Object.assign(new Error('timeout exceeded when trying to connect'), { code: 'ETIMEDOUT' });

function surroundings() {
  let nowMs = 0;
  const warnings: string[] = [];
  const waiting: Waiting = {
    place: '127.0.0.1:5432',
    log: { warn: (_fields: unknown, text: string) => void warnings.push(text) } as Waiting['log'],
    nowMs: () => nowMs,
    sleep: (ms) => Promise.resolve((nowMs += ms)),
  };
  return { waiting, warnings };
}

test('a database that is slow at the start is asked again', async () => {
  const { waiting, warnings } = surroundings();
  let tries = 0;
  const done = await whenItAnswers(
    'the datasets of the release',
    () => (++tries < 3 ? Promise.reject(late()) : Promise.resolve('done')),
    waiting,
  );
  expect(done).toBe('done');
  expect(warnings).toEqual(Array(2).fill('PostgreSQL does not answer; trying again: the datasets of the release'));
});

test('after a minute the api gives up and says what was not done', async () => {
  const { waiting, warnings } = surroundings();
  const given = whenItAnswers('migrations', () => Promise.reject(late()), waiting);
  await expect(given).rejects.toMatchObject({ code: 'POSTGRES_UNREACHABLE', message: expect.stringContaining('within 60 s: migrations') });
  expect(warnings).toHaveLength(60);
});

test('a refusal and a fault of ours end the start at once', async () => {
  const { waiting, warnings } = surroundings();
  const newer = new UserError('DATABASE_NEWER', 'The database has a migration that this release does not know.', { exit: 'configuration' });
  await expect(whenItAnswers('migrations', () => Promise.reject(newer), waiting)).rejects.toBe(newer);
  const fault = new TypeError('x is not a function');
  await expect(whenItAnswers('migrations', () => Promise.reject(fault), waiting)).rejects.toBe(fault);
  expect(warnings).toEqual([]);
});
