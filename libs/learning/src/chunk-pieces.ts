/** The variables of the layout as they lie in chunks: which are frozen, and which do not decay. */
import { matchesPatterns, type OptimizerSpec } from '@paceline/spec';
import type { Layout } from './layout.js';

/** The part of a variable that lies in a chunk; elements from its start. */
export interface VariablePiece {
  readonly variable: number;
  readonly from: number;
  readonly to: number;
}

export class ChunkPieces {
  /** By the index of the variable in the layout. */
  readonly isFrozen: readonly boolean[];
  /** Variables that do not decay, the same way. */
  readonly keepsWeight: readonly boolean[];
  /** What the others lose before an update; that of lars is part of its update. */
  readonly weightDecay: number;
  protected readonly layout: Pick<Layout, 'variables' | 'chunks'>;

  constructor({
    layout,
    freeze,
    optimizer,
  }: {
    layout: Pick<Layout, 'variables' | 'chunks'>;
    /** Variables that keep their values; see matchesPatterns. */
    freeze?: readonly string[] | undefined;
    optimizer: OptimizerSpec;
  }) {
    const excluded = 'weightDecayExclude' in optimizer ? optimizer.weightDecayExclude : undefined;
    this.layout = layout;
    this.weightDecay = 'weightDecay' in optimizer && optimizer.name !== 'lars' ? (optimizer.weightDecay ?? 0) : 0;
    this.isFrozen = layout.variables.map(({ path }) => matchesPatterns(freeze, path));
    this.keepsWeight = layout.variables.map(({ path }) => matchesPatterns(excluded, path));
  }

  piecesOf({ index }: { readonly index: number }): VariablePiece[] {
    const { variables, chunks } = this.layout;
    const { offset, length } = chunks[index]!;
    return variables.flatMap((each, variable) => {
      const from = Math.max(0, each.offset - offset);
      const to = Math.min(length, each.offset + each.length - offset);
      return from < to ? [{ variable, from, to }] : [];
    });
  }

  protected frozenIn(chunk: { readonly index: number }): VariablePiece[] {
    return this.isFrozen.includes(true) ? this.piecesOf(chunk).filter(({ variable }) => this.isFrozen[variable]) : [];
  }
}
