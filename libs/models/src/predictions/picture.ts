/** Pixels as a small PNG (W3C PNG, 8 bits, grey or RGB) in a data address: what a page can show of the rows that a model sees. */
import { crc32, deflateSync } from 'node:zlib';

const SIDE_MAX = 96;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

export interface PictureSize {
  readonly height: number;
  readonly width: number;
  readonly channels: 1 | 3;
}

/** @param pixels row-major, 0..255; what lies beyond is cut off. A large picture is made smaller by whole steps, each pixel the mean of its square. */
export function observedRunOf(pixels: ArrayLike<number>, size: PictureSize): string {
  const { height, width, channels } = size;
  const by = Math.max(1, Math.ceil(Math.max(height, width) / SIDE_MAX));
  const [rows, columns] = [Math.ceil(height / by), Math.ceil(width / by)];
  const lines = Buffer.alloc(rows * (1 + columns * channels));
  let at = 0;
  for (let row = 0; row < rows; row++) {
    at++; // no filter
    for (let column = 0; column < columns; column++)
      for (let channel = 0; channel < channels; channel++) lines[at++] = meanOf(pixels, size, row * by, column * by, by, channel);
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(columns, 0);
  head.writeUInt32BE(rows, 4);
  head.set([8, channels === 1 ? 0 : 2, 0, 0, 0], 8);
  const file = Buffer.concat([SIGNATURE, part('IHDR', head), part('IDAT', deflateSync(lines)), part('IEND', Buffer.alloc(0))]);
  return `data:image/png;base64,${file.toString('base64')}`;
}

function meanOf(pixels: ArrayLike<number>, size: PictureSize, top: number, left: number, by: number, channel: number): number {
  const { height, width, channels } = size;
  let [sum, count] = [0, 0];
  for (let y = top; y < Math.min(height, top + by); y++)
    for (let x = left; x < Math.min(width, left + by); x++, count++) sum += pixels[(y * width + x) * channels + channel]!;
  return Math.max(0, Math.min(255, Math.round(sum / count)));
}

function part(type: string, body: Buffer): Buffer {
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(body.length);
  const checked = Buffer.concat([Buffer.from(type, 'latin1'), body]);
  sum.writeUInt32BE(crc32(checked));
  return Buffer.concat([length, checked, sum]);
}
