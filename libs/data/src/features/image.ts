/**
 * Images to pixels by sharp (libvips): PNG, JPEG and WebP, turned upright as their EXIF data says, 8 bits per channel, transparent parts on black.
 * An image is resized by the Lanczos kernel where it has another size. Several are decoded at a time, on the threads of libuv.
 */
import type { EncoderOf } from '@paceline/spec';

export type ImageSize = Pick<EncoderOf<'image'>, 'height' | 'width' | 'channels' | 'fit'>;

/** Pixels [height, width, channels], row-major, one byte each. @throws Error that says what is wrong with the file */
export type DecodeImage = (file: Uint8Array, size: ImageSize) => Promise<Uint8Array>;

type Sharp = typeof import('sharp').default;

/** More than that is no training image but a trap. */
const PIXELS_MAX = 100_000_000;
/** Images that are decoded at the same time: libuv has four threads, and the next ones wait beside them. */
const IN_FLIGHT_MAX = 8;
const FITS = { stretch: 'fill', crop: 'cover', pad: 'contain' } as const;

let loaded: Promise<Sharp> | undefined;
let inFlight = 0;
const waiting: (() => void)[] = [];

export const decodeImage: DecodeImage = async (file, size) => {
  if (!isImageFile(file)) throw new Error('it is no PNG, JPEG or WebP file');
  loaded ??= loadSharp();
  const sharp = await loaded;
  if (inFlight >= IN_FLIGHT_MAX) await new Promise<void>((resolve) => waiting.push(resolve));
  else inFlight++;
  try {
    return await decoded(sharp, file, size);
  } finally {
    const next = waiting.shift();
    if (next) next();
    else inFlight--;
  }
};

async function decoded(sharp: Sharp, file: Uint8Array, { height, width, channels, fit }: ImageSize): Promise<Uint8Array> {
  let image = sharp(file, { limitInputPixels: PIXELS_MAX, failOn: 'error' }).autoOrient();
  // A JPEG has no transparent parts, and asking costs a tenth of its decoding.
  if (!isJpegFile(file)) image = image.flatten({ background: 'black' });
  const { data, info } = await image
    .resize({ width, height, fit: FITS[fit], background: 'black' })
    .toColourspace(channels === 1 ? 'b-w' : 'srgb')
    .raw({ depth: 'uchar' })
    .toBuffer({ resolveWithObject: true });
  if (info.width !== width || info.height !== height || info.channels !== channels)
    throw new Error(`it came out as ${info.height} × ${info.width} × ${info.channels}, not as ${height} × ${width} × ${channels}`);
  return data;
}

async function loadSharp(): Promise<Sharp> {
  const { default: sharp } = await import('sharp');
  // Images are decoded beside each other; threads within one image would only fight for the same processors.
  sharp.concurrency(1);
  return sharp;
}

const starts = (file: Uint8Array, at: number, ...bytes: number[]): boolean => bytes.every((byte, i) => file[at + i] === byte);
const isJpegFile = (file: Uint8Array): boolean => starts(file, 0, 0xff, 0xd8, 0xff);

/** By the first bytes. Other formats that libvips knows (SVG, PDF) can refer to files of the machine, so they are not opened. */
export function isImageFile(file: Uint8Array): boolean {
  const isPng = starts(file, 0, 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
  const isWebp = starts(file, 0, 0x52, 0x49, 0x46, 0x46) && starts(file, 8, 0x57, 0x45, 0x42, 0x50);
  return isPng || isJpegFile(file) || isWebp;
}
