/** What a group does with the vectors of its members, between the calls of all and the end: one exchange of data frames. */
import { ProtocolError, type FrameHeader } from '@paceline/protocol';

/** A data frame, but for the numbers that the group adds. */
export interface Frame {
  readonly type: 2 | 3;
  readonly chunk: number;
  readonly nodeLo: number;
  readonly nodeHi: number;
}

/** Sends once the group is that far; the payload must not change before the operation is over. */
export type Send = (member: number, frame: Frame, payload: Uint8Array) => void;

export interface Operation {
  /** All members have called. */
  start(send: Send): void;
  /** Where the payload of a member's frame goes. @throws ProtocolError for a frame that is not expected */
  destination(member: number, header: FrameHeader): Uint8Array;
  received(member: number, header: FrameHeader): void;
  /** What is still to come of a member, in pieces. */
  missingOf(member: number): number;
}

export const bytesOf = (vector: Float32Array, offset = 0, length = vector.length): Uint8Array =>
  new Uint8Array(vector.buffer, vector.byteOffset + offset * 4, length * 4);

export const unexpected = (what: string): ProtocolError => new ProtocolError('UNKNOWN_CHUNK', what);

export function checkLength({ length }: FrameHeader, elements: number): void {
  if (length !== elements * 4) throw new ProtocolError('WRONG_LENGTH', `${length} bytes for ${elements} float32`);
}
