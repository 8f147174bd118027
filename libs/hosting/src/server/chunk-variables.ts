/** The variables of the layout as they lie in chunks: which are frozen and which do not decay, and how the frozen ones keep their bits. */
import type { OwnedChunk, Region } from '@paceline/exchange';
import type { Layout } from '@paceline/learning';
import { matchesPatterns, type OptimizerSpec } from '@paceline/spec';

/** The part of a variable that lies in a chunk; elements from its start. */
interface VariablePiece {
  readonly variable: number;
  readonly from: number;
  readonly to: number;
}

export class ChunkVariables {
  /** By the index of the variable in the layout. */
  readonly isFrozen: readonly boolean[];
  /** Variables that do not decay, the same way. */
  readonly keepsWeight: readonly boolean[];
  /** What the others lose before an update; that of lars is part of its update. */
  readonly weightDecay: number;
  private readonly layout: Layout;

  constructor({ layout, freeze, optimizer }: { layout: Layout; freeze?: readonly string[] | undefined; optimizer: OptimizerSpec }) {
    const excluded = 'weightDecayExclude' in optimizer ? optimizer.weightDecayExclude : undefined;
    this.layout = layout;
    this.weightDecay = 'weightDecay' in optimizer && optimizer.name !== 'lars' ? (optimizer.weightDecay ?? 0) : 0;
    this.isFrozen = layout.variables.map(({ path }) => matchesPatterns(freeze, path));
    this.keepsWeight = layout.variables.map(({ path }) => matchesPatterns(excluded, path));
  }

  piecesOf(chunk: OwnedChunk): VariablePiece[] {
    const { variables, chunks } = this.layout;
    const { offset, length } = chunks[chunk.index]!;
    return variables.flatMap((each, variable) => {
      const from = Math.max(0, each.offset - offset);
      const to = Math.min(length, each.offset + each.length - offset);
      return from < to ? [{ variable, from, to }] : [];
    });
  }

  private frozenIn(chunk: OwnedChunk): VariablePiece[] {
    return this.isFrozen.includes(true) ? this.piecesOf(chunk).filter(({ variable }) => this.isFrozen[variable]) : [];
  }

  /** Copied bit by bit, whatever the update has made of them. Those of a gradient of zeros come out the same; moving averages do not. */
  keepFrozen(chunk: OwnedChunk, paramIn: Region, paramOut: Region): void {
    for (const { from, to } of this.frozenIn(chunk))
      chunk.arena.kernels.copy(paramOut.pointer + from * 4, paramIn.pointer + from * 4, to - from);
  }

  /**
   * An update in place has nothing to copy from afterwards. Without a gradient alone they would move with the slots of a checkpoint whose run has
   * trained them.
   */
  frozenValues(chunk: OwnedChunk, { bytes }: Region): { from: number; bytes: Uint8Array }[] {
    return this.frozenIn(chunk).map(({ from, to }) => ({ from, bytes: bytes.slice(from * 4, to * 4) }));
  }

  /** What is not trained has no gradient, so that its slots take up nothing. */
  silenceFrozen(chunk: OwnedChunk, gradient: Region): void {
    for (const { from, to } of this.frozenIn(chunk)) chunk.arena.kernels.fill(gradient.pointer + from * 4, to - from, 0);
  }
}
