/**
 * Tables that are exchanged by rows: who has which rows, and how a worker lays out the few that it holds.
 *
 *   layout of the run      [ dense | table: all of its rows | dense | state ]     whole chunks of each belong to a server
 *   layout of a worker     [ dense | table: the rows held   | dense | state ]     the dense chunks are the same ones, at other places
 *
 * The rows of a table at one server are a group. In a round each node of the tree sends one frame to each group, as if the group were one more chunk of
 * that server: groups are numbered on from the chunks of the layout.
 */
import type { ModelDescription } from '@paceline/spec';
import { shardChunks, type Chunk, type Layout, type LayoutVariable } from './layout.js';

/** Rows [first, first + rows) of a table, at the server that owns them. */
export interface RowGroup {
  /** The chunk of its frames. */
  readonly index: number;
  readonly server: number;
  /** The variable. */
  readonly table: number;
  readonly first: number;
  readonly rows: number;
  /** Elements of a row. */
  readonly width: number;
}

export function rowGroups(layout: Layout, servers: number): RowGroup[] {
  const groups: RowGroup[] = [];
  for (const [table, { rows, offset, shape }] of layout.variables.entries()) {
    if (!rows) continue;
    const width = shape[1]!;
    for (let server = 0; server < servers; server++) {
      const own = shardChunks(layout, servers, server)
        .map((index) => layout.chunks[index]!)
        .filter((chunk) => chunk.table === table);
      if (own.length === 0) continue;
      const elements = own.reduce((sum, { length }) => sum + length, 0);
      const first = (own[0]!.offset - offset) / width;
      groups.push({ index: layout.chunks.length + groups.length, server, table, first, rows: elements / width, width });
    }
  }
  return groups;
}

export interface WorkerLayout extends Layout {
  /** The chunks that are exchanged whole: of each its index in the layout of the run, and where it lies here. */
  readonly dense: readonly (Chunk & { readonly runIndex: number })[];
}

/** @param heldRows of a table, by the index of its variable: what a worker holds at once */
export function workerLayout(layout: Layout, heldRows: (table: number) => number): WorkerLayout {
  const variables: LayoutVariable[] = [];
  const moves: number[] = [];
  let offset = 0;
  for (const [i, { path, shape, section, length: whole, rows }] of layout.variables.entries()) {
    const own = rows ? [heldRows(i), shape[1]!] : shape;
    const length = rows ? heldRows(i) * shape[1]! : whole;
    moves.push(layout.variables[i]!.offset - offset);
    variables.push(Object.assign({ path, shape: own, section, offset, length }, rows && { rows }));
    offset += length;
  }
  const chunks: Chunk[] = [];
  const dense: (Chunk & { readonly runIndex: number })[] = [];
  for (const chunk of layout.chunks) {
    const index = chunks.length;
    if (chunk.table === undefined) {
      const moved = { ...chunk, index, offset: chunk.offset - moveAt(layout, moves, chunk.offset) };
      chunks.push(moved);
      dense.push({ ...moved, runIndex: chunk.index });
    } else if (chunk.offset === layout.variables[chunk.table]!.offset) {
      const { offset: at, length } = variables[chunk.table]!;
      chunks.push({ index, section: 'trainable', offset: at, length, table: chunk.table });
    }
  }
  const trainableLength = variables.reduce((sum, { section, length }) => sum + (section === 'trainable' ? length : 0), 0);
  return { variables, trainableLength, stateLength: offset - trainableLength, totalLength: offset, chunks, dense };
}

/** How far the variable that lies at an offset has moved; a dense chunk has no table in it, so all of it has moved so far. */
function moveAt({ variables }: Layout, moves: readonly number[], offset: number): number {
  return moves[variables.findIndex((variable) => variable.offset <= offset && offset < variable.offset + variable.length)]!;
}

/** The description of what a worker builds: the same model with smaller tables. */
export function workerDescription(description: ModelDescription, layout: Pick<Layout, 'variables'>): ModelDescription {
  const variables = description.variables.map(({ path, section, initializer }, i) => ({
    path,
    shape: layout.variables[i]!.shape,
    section,
    initializer,
  }));
  const parameterCount = layout.variables.reduce((sum, { section, length }) => sum + (section === 'trainable' ? length : 0), 0);
  return { ...description, variables, parameterCount };
}
