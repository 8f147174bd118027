/** What a shard says of gradients that it has, and does not take. */
import { Codec, ProtocolError, type FrameHeader } from '@paceline/protocol';
import type { OwnedChunk } from '../attempt/chunks.js';
import type { ShardOptions } from './shard-table.js';

/** One bit for each, from the lowest of the first byte on; base64. */
export function bitmapOf(bits: readonly boolean[]): string {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  for (const [i, isSet] of bits.entries()) if (isSet) bytes[i >> 3]! |= 1 << (i & 7);
  return Buffer.from(bytes).toString('base64');
}

/** @param state of the chunk that the header names, if the shard owns it @throws ProtocolError for a gradient that no member sends */
export function checkGradient<S extends { readonly chunk: OwnedChunk }>(
  header: FrameHeader,
  isValidNode: ShardOptions['isValidNode'],
  state: S | undefined,
): asserts state is S {
  if (header.codec !== Codec.none) throw new ProtocolError('BAD_CODEC');
  if (!state) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
  const { chunk } = state;
  if (header.length !== chunk.length * 4)
    throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} has ${chunk.length * 4} bytes, not ${header.length}`);
  if (!isValidNode(header.nodeLo, header.nodeHi)) throw new ProtocolError('BAD_NODE', `[${header.nodeLo}, ${header.nodeHi})`);
}
