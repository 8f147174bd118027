import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { createClient } from './client.js';
import { openSocket, refusal } from './socket.js';

const ITEMS = 60_000;
let server: WebSocketServer;
/** Sends everything at once, whether somebody reads or not. */
beforeAll(async () => {
  server = new WebSocketServer({ port: 0, host: '127.0.0.1', handleProtocols: () => 'graphql-transport-ws' });
  server.on('connection', (socket) =>
    socket.on('message', (data) => {
      const { type, id } = JSON.parse((data as Buffer).toString()) as { type: string; id?: string };
      if (type === 'connection_init') socket.send('{"type":"connection_ack"}');
      if (type !== 'subscribe') return;
      for (let n = 0; n < ITEMS; n++) socket.send(JSON.stringify({ id, type: 'next', payload: { data: { n } } }));
      socket.send(JSON.stringify({ id, type: 'complete' }));
    }),
  );
  await new Promise((resolve) => server.once('listening', resolve));
});
afterAll(() => {
  for (const socket of server.clients) socket.terminate();
  server.close();
});

it('a reader that falls behind by 50,000 items gets what it was about to get, then a break that follow takes up', async () => {
  const { port } = server.address() as { port: number };
  const socket = openSocket(`ws://127.0.0.1:${port}`, 'k', { pingEveryMs: 60_000, pongDeadlineMs: 5_000, connectTimeoutMs: 5_000 });
  const items = socket.iterate<{ n: number }>('subscription { n }', {}, new AbortController().signal);
  expect(await items.next()).toEqual({ done: false, value: { n: 0 } });
  await expect.poll(() => [...server.clients].length, { timeout: 10_000 }).toBe(0); // nothing is subscribed to any more
  let read = 1;
  const rest = (async () => {
    for await (const item of items) expect(item.n).toBe(read++);
  })();
  await expect(rest).rejects.toMatchObject({ code: 'UNREACHABLE', isTemporary: true });
  expect(read).toBeLessThanOrEqual(50_000);
  await socket.dispose();
});

it('closes what was about to connect, and did not, without a word', async () => {
  const mute = createServer((connection) => void connection.once('data', () => setTimeout(() => connection.destroy(), 50)));
  await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
  const address = `ws://127.0.0.1:${(mute.address() as { port: number }).port}`;
  const socket = openSocket(address, 'k', { pingEveryMs: 60_000, pongDeadlineMs: 5_000, connectTimeoutMs: 5_000 });
  const stop = new AbortController();
  const over = socket.iterate('subscription { n }', {}, stop.signal).next();
  stop.abort();
  expect(await over).toEqual({ done: true, value: undefined });
  await socket.dispose();
  mute.close();
});

it.each([
  ['SERVICE_UNAVAILABLE', 503],
  ['TOO_BUSY', 429],
  ['RATE_LIMITED', 429],
])('the refusal %s of a subscription passes, after the wait that it asks for', (code, httpStatus) => {
  const refused = refusal([{ message: 'm', extensions: { code, retryAfterSeconds: 5 } }]);
  expect(refused).toMatchObject({ code, httpStatus, retryAfterMs: 5000, isTemporary: true });
  expect(refusal([{ message: 'm', extensions: { code: 'FORBIDDEN' } }])).toMatchObject({ isTemporary: false, retryAfterMs: undefined });
});

it('a subscription is not back while nothing is connected, also after our own end of a connection', async () => {
  const scripted = new WebSocketServer({ port: 0, host: '127.0.0.1', handleProtocols: () => 'graphql-transport-ws' });
  await once(scripted, 'listening');
  let connections = 0;
  // The first connection refuses the subscription, so that the client closes it; those after it are never acknowledged.
  scripted.on('connection', (socket) => {
    if (++connections > 1) return;
    socket.on('message', (data) => {
      const { type, id } = JSON.parse((data as Buffer).toString()) as { type: string; id?: string };
      if (type === 'connection_init') socket.send('{"type":"connection_ack"}');
      const payload = [{ message: 'away', extensions: { code: 'SERVICE_UNAVAILABLE' } }];
      if (type === 'subscribe') socket.send(JSON.stringify({ id, type: 'error', payload }));
    });
  });
  const patient = createClient({ url: `http://127.0.0.1:${(scripted.address() as { port: number }).port}`, apiKey: 'key' });
  const told: string[] = [];
  const stop = new AbortController();
  const options = { settledAfterMs: 20, signal: stop.signal, onConnection: (state: string) => void told.push(state) };
  const end = patient.runEvents('run', options).next();
  await expect.poll(() => connections, { timeout: 5000 }).toBe(2);
  await new Promise((done) => setTimeout(done, 200)); // ten times the time in which it would settle
  expect(told).toEqual(['lost']);
  stop.abort();
  await end;
  for (const socket of scripted.clients) socket.terminate();
  scripted.close();
  await patient.close();
});
