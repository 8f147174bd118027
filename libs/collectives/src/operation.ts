/** What a group does with the vectors of its members, between the calls of all and the end: one exchange of data frames. */
import { ProtocolError, type FrameHeader } from '@paceline/protocol';

/** A data frame, but for the numbers that the group adds. */
export interface Frame {
  readonly type: 2 | 3;
  /** How the payload is packed; left out, it is float32. */
  readonly codec?: number;
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

export const checkLength = (header: FrameHeader, elements: number): void => checkBytes(header, 0, elements * 4);

export function checkBytes({ codec, length }: FrameHeader, expected: number, bytes: number): void {
  if (codec !== expected) throw new ProtocolError('BAD_CODEC', `codec ${codec}, where codec ${expected} is expected`);
  if (length !== bytes) throw new ProtocolError('WRONG_LENGTH', `${length} bytes, where ${bytes} are expected`);
}
