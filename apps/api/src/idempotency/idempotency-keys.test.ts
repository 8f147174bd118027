import { createLogger } from '@paceline/runtime';
import { expect, test } from 'vitest';
import type { Database } from '../database/database.js';
import type { Viewer } from '../teams/authentication.js';
import { IdempotencyKeys, type Remember } from './idempotency-keys.js';

const viewer: Viewer = { teamId: 't', apiKeyId: 'k', isAdmin: false, isReadOnly: false };

/** The table in memory, and as many processes on it as are asked for. */
function onOneTable() {
  const rows = new Map<string, object>();
  const table = {
    findUnique: async ({ where }: { where: { teamId_key: object } }) => rows.get(JSON.stringify(where.teamId_key)) ?? null,
    create: async ({ data }: { data: { teamId: string; key: string } }) => {
      const at = JSON.stringify({ teamId: data.teamId, key: data.key });
      if (rows.has(at)) throw Object.assign(new Error('unique'), { code: 'P2002' });
      rows.set(at, data);
    },
  };
  const database = { idempotencyKey: table } as unknown as Database;
  return {
    transaction: database as unknown as Parameters<Remember>[0],
    process: () => new IdempotencyKeys(database, createLogger('api')),
  };
}

const request = (input: string, key = 'one') => ({ operation: 'createRun', key, input });
const replay = async (id: string) => `again ${id}`;

test('of equal requests at once one is carried out, and all others are answered with what it made', async () => {
  const { transaction, process } = onOneTable();
  const keys = process();
  let made = 0;
  const act = async (remember: Remember) => {
    await remember(transaction, `${++made}`);
    return `made ${made}`;
  };
  const answers = await Promise.all(Array.from({ length: 200 }, () => keys.once<string>(viewer, request('a'), act, replay)));
  expect([made, answers[0], new Set(answers.slice(1))]).toEqual([1, 'made 1', new Set(['again 1'])]);
});

test('equal requests at once are refused alike by one attempt; another request under the key is then carried out', async () => {
  const keys = onOneTable().process();
  const attempts: string[] = [];
  const ask = (input: string, by = viewer) =>
    keys.once<string>(
      by,
      request(input),
      async () => {
        attempts.push(input);
        if (input === 'thrown') throw new Error('no');
        return `refused ${input}`;
      },
      replay,
    );
  expect(await Promise.all([ask('a'), ask('a'), ask('b'), ask('a')])).toEqual(['refused a', 'refused a', 'refused b', 'refused a']);
  expect(attempts.splice(0)).toEqual(['a', 'b']);
  const thrown = await Promise.allSettled([ask('thrown'), ask('thrown')]);
  expect([thrown.map(({ status }) => status), attempts.splice(0)]).toEqual([['rejected', 'rejected'], ['thrown']]);
  // What one API key may not do, another may.
  await Promise.all([ask('a'), ask('a', { teamId: 't', apiKeyId: 'other', isAdmin: false, isReadOnly: false })]);
  expect(attempts.splice(0)).toEqual(['a', 'a']);
  expect([await ask('a'), attempts.length], 'nothing of a refusal is kept').toEqual(['refused a', 1]);
});

test('what is refused because another process carried out the same request meanwhile is answered with what that made', async () => {
  const { transaction, process } = onOneTable();
  const [here, elsewhere] = [process(), process()];
  let replays = 0;
  const refused = async () => {
    const made = async (remember: Remember) => {
      await remember(transaction, '7');
      return 'made 7';
    };
    expect(await elsewhere.once<string>(viewer, request('a'), made, replay)).toBe('made 7');
    return 'There is one of this name already.';
  };
  const asked = Object.assign(request('a'), { onReplay: () => void replays++ });
  expect([await here.once<string>(viewer, asked, refused, replay), replays]).toEqual(['again 7', 1]);
});
