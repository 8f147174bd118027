import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { endWhenStalled, whenOver } from './stalled-answers.js';

/** @returns whether the answer was sent to its end, and whether its turn was given back */
async function serve(pieces: () => AsyncIterable<Uint8Array>, doesRead: boolean): Promise<{ isWhole: boolean; isReleased: boolean }> {
  let isReleased = false;
  let ended!: (isWhole: boolean) => void;
  const over = new Promise<boolean>((resolve) => (ended = resolve));
  const server = createServer((_, answer) => {
    endWhenStalled(answer, 150);
    whenOver(answer, () => {
      isReleased = true;
      ended(answer.writableFinished);
    });
    Readable.from(pieces()).pipe(answer);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  client.on('error', () => undefined);
  client.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  if (doesRead) client.resume();
  else client.pause();
  const isWhole = await over;
  client.destroy();
  server.close();
  return { isWhole, isReleased };
}

async function* without(end: number, pauseMs: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < end; i++) {
    if (pauseMs > 0) await pause(pauseMs);
    yield Buffer.alloc(1 << 16);
  }
}

it('ends an answer that nobody reads, and says that it is over', async () => {
  expect(await serve(() => without(Number.POSITIVE_INFINITY, 0), false)).toEqual({ isWhole: false, isReleased: true });
});

it('leaves an answer alone whose source is slow', async () => {
  expect(await serve(() => without(3, 250), true)).toEqual({ isWhole: true, isReleased: true });
});
