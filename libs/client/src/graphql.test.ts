/** How operations travel: held queries by GET with the tag of the last answer, long ones and all else by POST; the same from Node and from a browser. */
import { createServer } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ApiConnection } from './api-connection.js';
import type { TypedDocument } from './graphql.js';
import { HeldAnswers } from './held-answers.js';
import * as browser from './platform/browser.js';
import * as node from './platform/node.js';

const RUNS = 'query Runs($first: Int!) {\n  n(first: $first)\n}' as TypedDocument<{ n: number }, { first: number }>;
const CANCEL = 'mutation Cancel { ok }' as TypedDocument<{ ok: boolean }, object>;

/** What the api would answer now. */
let n = 1;
let url: string;
const sent: { readonly method: string | undefined; readonly address: URL; readonly tag: string | undefined }[] = [];
const api = createServer((request, response) => {
  sent.push({ method: request.method, address: new URL(request.url!, 'http://api.test'), tag: request.headers['if-none-match'] });
  const etag = `W/"${n}"`;
  if (request.method === 'POST') return response.end(JSON.stringify({ data: { ok: true } }));
  if (request.headers['if-none-match'] === etag) return response.writeHead(304).end();
  return response.writeHead(200, { etag }).end(JSON.stringify({ data: { n } }));
});
beforeAll(async () => {
  await new Promise<void>((done) => api.listen(0, '127.0.0.1', done));
  url = `http://127.0.0.1:${(api.address() as { port: number }).port}`;
});
afterAll(async () => {
  api.closeAllConnections();
  await new Promise((done) => api.close(done));
});
beforeEach(() => {
  n = 1;
  sent.length = 0;
});

describe('answers that are held', () => {
  it('are the same object as long as nothing has changed', async () => {
    const connection = new ApiConnection({ url, holdsAnswers: true });
    const first = await connection.request(RUNS, { first: 5 });
    expect(await connection.request(RUNS, { first: 5 })).toBe(first);
    expect(sent.map(({ method, tag }) => [method, tag])).toEqual([
      ['GET', undefined],
      ['GET', 'W/"1"'],
    ]);
    const query = 'query Runs($first: Int!) { n(first: $first) }';
    expect(Object.fromEntries(sent[1]!.address.searchParams)).toEqual({ operationName: 'Runs', query, variables: '{"first":5}' });
    n = 2;
    expect(await connection.request(RUNS, { first: 5 })).toEqual({ n: 2 });
    expect(await connection.request(RUNS, { first: 6 })).toEqual({ n: 2 });
    expect(sent.at(-1)!.tag, 'another question').toBeUndefined();
  });

  it('are none of mutations: they go by POST each time', async () => {
    const connection = new ApiConnection({ url, holdsAnswers: true });
    for (let i = 0; i < 2; i++) expect(await connection.request(CANCEL, {})).toEqual({ ok: true });
    expect(sent.map(({ method, address, tag }) => [method, address.pathname, address.search, tag])).toEqual(
      Array(2).fill(['POST', '/graphql', '', undefined]),
    );
  });

  it('are none of questions that are too long for an address', async () => {
    const connection = new ApiConnection({ url, holdsAnswers: true });
    const preview = 'query Preview($columns: [String!]!) { ok(columns: $columns) }' as TypedDocument<
      { ok: boolean },
      { columns: string[] }
    >;
    const columns = Array.from({ length: 30 }, (_, i) => `${'平均気温'.repeat(8)} ${i}`);
    for (let i = 0; i < 2; i++) expect(await connection.request(preview, { columns })).toEqual({ ok: true });
    expect(sent.map(({ method, address, tag }) => [method, address.search, tag])).toEqual(Array(2).fill(['POST', '', undefined]));
  });

  it('are few', () => {
    const held = new HeldAnswers();
    for (let i = 0; i < 100; i++) held.hold(`question ${i}`, 'tag', i);
    expect([held.of('question 0'), held.of('question 99')?.data]).toEqual([undefined, 99]);
    held.hold('question 99', undefined, 100);
    expect(held.of('question 99')).toBeUndefined();
  });
});

it('a request ends with the reason of its signal', async () => {
  const reason = new Error('the page was left');
  await expect(new ApiConnection({ url }).request(CANCEL, {}, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
});

it.each([
  ['Node', node],
  ['a browser', browser],
] as const)('%s asks and hashes', async (_name, { ask, sha256 }) => {
  const parts = async function* (): AsyncGenerator<Uint8Array> {
    for (const part of ['pace', 'line']) yield new TextEncoder().encode(part);
  };
  const reply = await ask(new URL('/x', url), { method: 'GET', headers: {}, signal: new AbortController().signal });
  const body: Uint8Array[] = [];
  for await (const part of reply.body) body.push(part);
  expect([reply.status, reply.header('etag'), reply.header('x-none'), Buffer.concat(body).toString()]).toEqual([
    200,
    'W/"1"',
    undefined,
    '{"data":{"n":1}}',
  ]);
  const hash = await sha256(new TextEncoder().encode('paceline'));
  expect([hash.length, await sha256(parts())]).toEqual([64, hash]);
});
