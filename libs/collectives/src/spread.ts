/** Broadcast and all-gather: what members send to all, without adding. */
import { FrameType, type FrameHeader } from '@paceline/protocol';
import { bytesOf, checkLength, unexpected, type Operation, type Send } from './operation.js';
import { PIECE_LENGTH } from './parts.js';

/** The part of a vector that one member has, and that all get. */
export interface Part {
  readonly member: number;
  readonly values: Float32Array;
}

export class Spread implements Operation {
  private readonly pieces: readonly { readonly member: number; readonly values: Float32Array }[];
  private readonly missing: number[];

  constructor(
    members: number,
    private readonly self: number,
    parts: readonly Part[],
    /** The members that get the parts of this one. Default: all others, beginning behind it. */
    private readonly receivers: readonly number[] = Array.from({ length: members - 1 }, (_, i) => (self + 1 + i) % members),
  ) {
    this.pieces = parts.flatMap(({ member, values }) =>
      Array.from({ length: Math.ceil(values.length / PIECE_LENGTH) }, (_, i) => ({
        member,
        values: values.subarray(i * PIECE_LENGTH, (i + 1) * PIECE_LENGTH),
      })),
    );
    this.missing = Array.from({ length: members }, (_, member) =>
      member === self ? 0 : this.pieces.filter((piece) => piece.member === member).length,
    );
  }

  start(send: Send): void {
    for (const [chunk, { member, values }] of this.pieces.entries()) {
      if (member !== this.self) continue;
      const bytes = bytesOf(values); // one view for all, so that its checksum is taken once
      for (const receiver of this.receivers) send(receiver, { type: FrameType.parameters, chunk, nodeLo: 0, nodeHi: 0 }, bytes);
    }
  }

  destination(member: number, header: FrameHeader): Uint8Array {
    const piece = this.pieces[header.chunk];
    if (piece?.member !== member || header.type !== FrameType.parameters)
      throw unexpected(`part ${header.chunk} is not of member ${member}`);
    checkLength(header, piece.values.length);
    return bytesOf(piece.values);
  }

  received(member: number): void {
    this.missing[member]!--;
  }

  missingOf(member: number): number {
    return this.missing[member]!;
  }
}
