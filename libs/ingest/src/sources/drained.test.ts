import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { drained } from './drained.js';

it('leaves no listener behind, however often a stream is full', async () => {
  const stream = new PassThrough({ highWaterMark: 1 });
  const before = stream.listenerCount('close');
  for (let i = 0; i < 20; i++) {
    stream.write('ab');
    const free = drained(stream);
    stream.resume();
    await free;
    stream.pause();
  }
  expect([stream.listenerCount('close'), stream.listenerCount('drain')]).toEqual([before, 0]);
  stream.destroy();
  await drained(stream);
});
