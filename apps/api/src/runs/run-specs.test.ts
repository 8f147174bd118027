import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { expect, it } from 'vitest';
import type { Database } from '../database/database.js';
import { RunSpecs } from './run-specs.js';
import type { Run } from './run.types.js';

const MiB = 1 << 20;
const asked: string[][] = [];
const database = {
  rows: async (_name: string, _text: string, [ids]: readonly string[][]) => {
    asked.push(ids!);
    return ids!.map((id) => ({ id, spec: `spec of ${id}` }));
  },
} as unknown as Database;

const run = (id: string, specBytes: number, teamId = 'a') => ({ id, row: { specBytes, teamId } }) as unknown as Run;
const httpRequest = (isClosed = false) => ({
  reply: { raw: Object.assign(new EventEmitter(), { closed: isClosed }) as unknown as ServerResponse },
});

it('reads the specs of a page together, a few at a time', async () => {
  const specs = new RunSpecs(database);
  const request = httpRequest();
  const page = Array.from({ length: 25 }, (_, i) => run(`${i}`, 1000));
  expect(await Promise.all(page.map((one) => specs.of(one, request)))).toEqual(page.map(({ id }) => `spec of ${id}`));
  expect(asked.map(({ length }) => length)).toEqual([10, 10, 5]);
});

it('gives a request so many bytes, and all requests together, until they are answered', async () => {
  const specs = new RunSpecs(database);
  const [first, second, third] = [httpRequest(), httpRequest(), httpRequest()];
  await specs.of(run('a', 5 * MiB), first);
  await expect(specs.of(run('b', 5 * MiB), first)).rejects.toMatchObject({ code: 'INVALID_INPUT' });
  await specs.of(run('c', 3 * MiB), first);
  await expect(specs.of(run('d', MiB), second), 'a team has half of it').rejects.toMatchObject({ code: 'TOO_BUSY' });
  await specs.of(run('d', 7 * MiB, 'b'), second);
  await expect(specs.of(run('e', 2 * MiB, 'c'), third)).rejects.toMatchObject({ code: 'TOO_BUSY' });
  first.reply.raw.emit('close');
  expect(await specs.of(run('e', 2 * MiB, 'c'), third)).toBe('spec of e');
});

it('counts nothing for a client that has gone before its specs were read', async () => {
  const specs = new RunSpecs(database);
  for (let i = 0; i < 20; i++) {
    const gone = httpRequest(true);
    for (const id of ['a', 'b']) await specs.of(run(id, 2 * MiB), gone);
  }
  expect(await specs.of(run('c', 8 * MiB), httpRequest())).toBe('spec of c');
});

it('asks nothing for a run that the request has made', async () => {
  const made = Object.assign(run('new', MiB), { created: { attempts: [], statusHistory: [], spec: 'its own' } });
  expect(await new RunSpecs({} as Database).of(made, httpRequest())).toBe('its own');
});
