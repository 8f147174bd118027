/** How operations travel: queries by GET with the tag of the last answer, mutations by POST. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { HeldAnswers } from './held-answers.js';
import type { Operation } from './operation.js';
import { request } from './request.js';

const RUNS: Operation<{ n: number }, { first: number }> = { name: 'Runs', text: 'query Runs($first: Int!) { n(first: $first) }' };
const CANCEL: Operation<{ ok: boolean }, object> = { name: 'Cancel', text: 'mutation Cancel { ok }' };

/** What the api would answer now. */
let n = 1;
const sent: { readonly method: string; readonly address: URL; readonly tag: string | undefined }[] = [];
const api = async (address: string, { method, headers }: { method: string; headers: Record<string, string> }): Promise<Response> => {
  sent.push({ method, address: new URL(address, 'http://api.test'), tag: headers['if-none-match'] });
  if (method === 'POST') return Response.json({ data: { ok: true } });
  const etag = `W/"${n}"`;
  return headers['if-none-match'] === etag ? new Response(null, { status: 304 }) : Response.json({ data: { n } }, { headers: { etag } });
};
beforeEach(() => {
  n = 1;
  sent.length = 0;
  vi.stubGlobal('fetch', api);
});
afterEach(() => vi.unstubAllGlobals());

it('a query that is asked again has the same answer, the same object, as long as nothing has changed', async () => {
  const held = new HeldAnswers();
  const first = await request('key', RUNS, { first: 5 }, undefined, held);
  expect(await request('key', RUNS, { first: 5 }, undefined, held)).toBe(first);
  expect(sent.map(({ method, tag }) => [method, tag])).toEqual([
    ['GET', undefined],
    ['GET', 'W/"1"'],
  ]);
  expect(Object.fromEntries(sent[1]!.address.searchParams)).toEqual({ operationName: 'Runs', query: RUNS.text, variables: '{"first":5}' });
  n = 2;
  expect(await request('key', RUNS, { first: 5 }, undefined, held)).toEqual({ n: 2 });
  expect(await request('key', RUNS, { first: 6 }, undefined, held)).toEqual({ n: 2 });
  expect(sent.at(-1)!.tag, 'another question').toBeUndefined();
});

it('a mutation goes by POST each time', async () => {
  const held = new HeldAnswers();
  for (let i = 0; i < 2; i++) expect(await request('key', CANCEL, {}, undefined, held)).toEqual({ ok: true });
  expect(sent.map(({ method, address, tag }) => [method, address.pathname, address.search, tag])).toEqual(
    Array(2).fill(['POST', '/graphql', '', undefined]),
  );
});

it('answers that are held are few', () => {
  const held = new HeldAnswers();
  for (let i = 0; i < 100; i++) held.hold(`question ${i}`, 'tag', i);
  expect([held.of('question 0'), held.of('question 99')?.data]).toEqual([undefined, 99]);
  held.hold('question 99', null, 100);
  expect(held.of('question 99')).toBeUndefined();
});
