/** Bodies that come by drops: a request has a deadline for its body, an upload has none. */
import { once } from 'node:events';
import { connect, type AddressInfo } from 'node:net';
import Fastify, { type FastifyInstance } from 'fastify';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { addUploads } from './uploads.js';

const DEADLINE_MS = 60;
const SHARD = '/api/v1/datasets/shards/:sha256';

let api: FastifyInstance;
beforeAll(async () => {
  api = Fastify();
  addUploads(api, DEADLINE_MS);
  api.post('/api/v1/runs', () => 'made');
  api.put(SHARD, async (request) => {
    let bytes = 0;
    for await (const piece of request.body as AsyncIterable<Buffer>) bytes += piece.length;
    return `${bytes} bytes`;
  });
  await api.listen({ port: 0, host: '127.0.0.1' });
});
afterAll(() => api.close());

/** The answer to a body of four bytes whose second half comes long after the deadline. */
async function byDrops(method: string, path: string): Promise<string> {
  const socket = connect((api.server.address() as AddressInfo).port, '127.0.0.1');
  let answer = '';
  socket.on('data', (piece) => (answer += String(piece)));
  socket.on('error', () => undefined); // the second half finds a socket that was closed
  socket.write(`${method} ${path} HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: 4\r\nconnection: close\r\n\r\nab`);
  const second = setTimeout(() => socket.write('cd'), 5 * DEADLINE_MS);
  await once(socket, 'close');
  clearTimeout(second);
  return answer;
}

it('a body that is late is answered with 408, and its connection is closed', async () => {
  expect(await byDrops('POST', '/api/v1/runs')).toMatch(/^HTTP\/1\.1 408 /);
});

it('an upload may take its time', async () => {
  const answer = await byDrops('PUT', SHARD.replace(':sha256', 'a'.repeat(64)));
  expect(answer).toMatch(/^HTTP\/1\.1 200 /);
  expect(answer).toContain('4 bytes');
});
