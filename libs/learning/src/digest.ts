/**
 * `weightsSha256` (docs/protocol.md §16): SHA-256 over the trainable section, then the state section, little-endian float32 in the
 * order of the layout. That is the flat vector from its first element to its last, so chunks are fed in index order.
 */
import { createHash } from 'node:crypto';
import { endianness } from 'node:os';

export interface WeightsDigest {
  /** Adds the next elements of the flat vector. */
  update(values: Float32Array): WeightsDigest;
  /** Elements so far. */
  readonly elements: number;
  /** The digest in hexadecimal. Nothing can be added afterwards. */
  hex(): string;
}

/** @throws Error on a big-endian machine, where the bytes in memory are not those of the definition */
export function createWeightsDigest(): WeightsDigest {
  if (endianness() !== 'LE') throw new Error('weightsSha256 is defined over little-endian float32; this machine is big-endian.');
  const hash = createHash('sha256');
  let elements = 0;
  const digest: WeightsDigest = {
    update(values) {
      hash.update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
      elements += values.length;
      return digest;
    },
    get elements() {
      return elements;
    },
    hex: () => hash.digest('hex'),
  };
  return digest;
}
