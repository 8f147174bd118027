/** Images that lie: each is refused with a code and its place; what only looks odd is taken. */
import { crc32 } from 'node:zlib';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Bench, refusal } from './import.fixture.js';

let bench: Bench;
beforeAll(async () => void (bench = await Bench.open()));
afterAll(() => bench[Symbol.asyncDispose]());

describe('pictures', () => {
  const noise = sharp({
    create: { width: 64, height: 64, channels: 3, background: 'black', noise: { type: 'gaussian', mean: 128, sigma: 40 } },
  });

  test.each(['png', 'jpeg', 'webp'] as const)('as %s that are cut off are named with their file', async (format) => {
    const whole = await noise.clone()[format]().toBuffer();
    await bench.write(`cut-${format}/a/good.${format}`, whole);
    await bench.write(`cut-${format}/b/bad.${format}`, whole.subarray(0, Math.floor(whole.length * 0.6)));
    const error = await refusal(bench.import({ sources: [`${bench.folder}/source/cut-${format}`] }));
    expect(error).toMatchObject({ code: 'FORMAT_MALFORMED', file: expect.stringContaining(`b/bad.${format}`) as string });
  });

  test('whose header lies about their size', async () => {
    const lies = Buffer.from(await noise.clone().png().toBuffer());
    lies.writeUInt32BE(4096, 20);
    lies.writeUInt32BE(crc32(lies.subarray(12, 29)), 29);
    await bench.write('lies/a/liar.png', lies);
    const error = await refusal(bench.import({ sources: [`${bench.folder}/source/lies`] }));
    expect(error).toMatchObject({ code: 'FORMAT_MALFORMED', file: expect.stringContaining('a/liar.png') as string });
  });
});

describe('a JPEG', () => {
  const jpeg = (progressive: boolean) =>
    sharp({ create: { width: 64, height: 64, channels: 3, background: 'black', noise: { type: 'gaussian', mean: 128, sigma: 40 } } })
      .jpeg({ progressive })
      .toBuffer();
  const startOfFrame = (bytes: Buffer): number => {
    let at = 2;
    while (!(bytes[at] === 0xff && (bytes[at + 1] === 0xc0 || bytes[at + 1] === 0xc2))) at += 2 + bytes.readUInt16BE(at + 2);
    return at;
  };

  test.each([false, true])('whose header claims more rows than there are is refused (progressive: %s)', async (progressive) => {
    const lies = await jpeg(progressive);
    lies.writeUInt16BE(256, startOfFrame(lies) + 5);
    await bench.write(`rows-${progressive}/a/liar.jpg`, lies);
    const error = await refusal(bench.import({ sources: [`${bench.folder}/source/rows-${progressive}`] }));
    expect(error).toMatchObject({ code: 'FORMAT_MALFORMED', file: expect.stringContaining('a/liar.jpg') as string });
  });

  test('with bytes that nobody needs is taken', async () => {
    const odd = await jpeg(false);
    const at = startOfFrame(odd);
    await bench.write('odd/a/odd.jpg', Buffer.concat([odd.subarray(0, at), new Uint8Array(3), odd.subarray(at), Buffer.from('tail')]));
    expect((await bench.import({ sources: [`${bench.folder}/source/odd`] })).train).toHaveLength(1);
  });
});
