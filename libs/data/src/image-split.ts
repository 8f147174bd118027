/** A split of 8-bit images in memory, delivered as float32 rows by index: one input, one target of classes. */
import type { InMemorySplit, RowBuffers } from './contract.js';

/** `pixels`: count × pixels per image, row-major; `labels`: one byte each. */
export interface ImageBytes {
  readonly pixels: Uint8Array;
  readonly labels: Uint8Array;
}

/** pixel / 255 rounded to float32 once: a look-up is faster than the division and cannot differ from it. */
const SCALED = Float32Array.from({ length: 256 }, (_, pixel) => pixel / 255);

export class ImageSplit implements InMemorySplit {
  readonly count: number;
  private readonly pixelsPerImage: number;

  constructor(private readonly bytes: ImageBytes) {
    this.count = bytes.labels.length;
    this.pixelsPerImage = bytes.pixels.length / this.count;
    if (!Number.isSafeInteger(this.pixelsPerImage)) throw new RangeError(`${bytes.pixels.length} pixels for ${this.count} labels`);
  }

  gather(indices: Int32Array, from: number, to: number, { inputs: [x], targets: [y] }: RowBuffers): void {
    const { pixels, labels } = this.bytes;
    const size = this.pixelsPerImage;
    if (!(from >= 0 && from <= to && to <= indices.length)) throw new RangeError(`rows ${from} to ${to} of ${indices.length}`);
    if (!x || !y || x.length < (to - from) * size || y.length < to - from)
      throw new RangeError(`the buffers are too small for ${to - from} examples`);
    let write = 0;
    for (let row = from; row < to; row++) {
      const index = indices[row]!;
      if (!(index >= 0 && index < this.count)) throw new RangeError(`example ${index} of ${this.count}`);
      const end = (index + 1) * size;
      for (let read = index * size; read < end; read++) x[write++] = SCALED[pixels[read]!]!;
      y[row - from] = labels[index]!;
    }
  }
}
