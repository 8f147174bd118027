import { expect, test } from 'vitest';
import { StreamCutter } from './byte-stream.js';
import { exportModel } from './export-model.js';
import { trained } from './trained-model.fixture.js';

/** Pieces of eight bytes, as from a file that stays open until its reader is done with it. */
function fileOf(pieces: number) {
  const file = { isOpen: false };
  async function* stream(): AsyncGenerator<Uint8Array, void, void> {
    file.isOpen = true;
    try {
      for (let i = 0; i < pieces; i++) yield await Promise.resolve(new Uint8Array(8).fill(i));
    } finally {
      file.isOpen = false;
    }
  }
  return { file, stream };
}

test('what a cutter reads from is closed when it ends, wherever that is', async () => {
  for (const taken of [0, 12, 16]) {
    const { file, stream } = fileOf(2);
    const cutter = new StreamCutter(stream());
    expect(await cutter.whole(taken)).toHaveLength(taken);
    await cutter.end();
    expect(file.isOpen).toBe(false);
  }
});

test('ended twice is ended once, and nothing can be taken afterwards', async () => {
  const cutter = new StreamCutter(fileOf(2).stream());
  await cutter.whole(4);
  await cutter.end();
  await cutter.end();
  await expect(cutter.whole(8)).rejects.toThrow('the weights end 8 bytes too early');
});

test.each(['all of it', 'a part of it'])('an export leaves nothing open when %s was read', async (what) => {
  const model = await trained('mlp');
  const file = { isOpen: false };
  async function* weights(): AsyncGenerator<Uint8Array, void, void> {
    file.isOpen = true;
    try {
      yield* model.weights();
      yield new Uint8Array(0); // there is more to ask for than the weights
    } finally {
      file.isOpen = false;
    }
  }
  const files = exportModel({ ...model, weights }, 'safetensors');
  let wasOpen = false;
  for await (const { path, body } of files) {
    let isFirst = true;
    for await (const _piece of body) {
      wasOpen ||= file.isOpen;
      if (path.endsWith('.safetensors') && !isFirst && what === 'a part of it') break;
      isFirst = false;
    }
    if (wasOpen && what === 'a part of it') break;
  }
  expect([wasOpen, file.isOpen]).toEqual([true, false]);
});
