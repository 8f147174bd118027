/**
 * Tables that are exchanged by rows, at one server (docs/decisions/037). Their chunks lie in the ParameterStore, as those of any variable do: initial
 * values, slots, checkpoints and the weights at the end are the same. Only updates and reads go by rows.
 *
 *   by rows   the rows of the round are updated in place. What they were is kept until COMMIT, because generation k may be asked for until then. A
 *             region that somebody else holds (a checkpoint, the best generation, a socket) is copied before it changes
 *   whole     each chunk of the table is updated by a gradient that is zero where no row has come, with the bits of a dense table
 */
import { acquireRegion, type OwnedChunk, type Region, type RowsRegion, type ShardTables, type TableGroup } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import type { Layout, RowGroup } from '@paceline/learning';
import type { ParameterStore } from './parameter-store.js';

/** Gradients of rows that are under way. Only what is used of it becomes resident. */
const ARENA_BYTES = { initialBytes: 1 << 20, maximumBytes: 2 ** 31 };

interface TableChunk {
  readonly chunk: OwnedChunk;
  /** Rows of the group in front of it. */
  readonly firstRow: number;
  readonly rows: number;
}

interface Group extends TableGroup {
  readonly chunks: readonly TableChunk[];
}

interface Rows {
  readonly ids: Uint32Array;
  readonly values: Float32Array;
}

export class TableStore implements ShardTables {
  readonly groups: readonly Group[];
  private readonly present = new Map<number, Region>();
  /** Of generation k+1, where tables are updated whole. */
  private readonly following = new Map<number, Region>();
  /** By group: what the rows of the present round were, where they are updated in place. */
  private readonly before = new Map<number, Rows>();
  private best: readonly Region[] = [];
  private readonly order: readonly number[];

  /** @param byRows updates move the rows of the round alone */
  constructor(
    private readonly store: ParameterStore,
    layout: Layout,
    groups: readonly RowGroup[],
    private readonly byRows: boolean,
  ) {
    this.order = store.chunks.map(({ index }) => index);
    const arena = Arena.create(ARENA_BYTES);
    for (const [i, { index }] of store.chunks.entries())
      if (layout.chunks[index]!.table !== undefined) this.present.set(index, store.initial[i]!);
    this.groups = groups.map(({ index, table, rows, width }) => {
      let firstRow = 0;
      const chunks = store.chunks
        .filter((chunk) => layout.chunks[chunk.index]!.table === table)
        .map((chunk): TableChunk => {
          const own = { chunk, firstRow, rows: chunk.length / width };
          firstRow += own.rows;
          return own;
        });
      return { index, length: rows * width, arena, rows: { count: rows, width }, chunks };
    });
  }

  apply(group: TableGroup, round: number, sum: Region): void {
    const gradient: Rows = { ids: (sum as RowsRegion).ids, values: sum.floats };
    const own = this.groupOf(group);
    if (this.byRows) this.before.set(group.index, { ids: gradient.ids, values: this.read(group, gradient.ids, false) });
    for (const part of own.chunks) {
      const [from, to] = [lowerBound(gradient.ids, part.firstRow), lowerBound(gradient.ids, part.firstRow + part.rows)];
      const ids = gradient.ids.subarray(from, to).map((id) => id - part.firstRow);
      const { width } = own.rows;
      const values = gradient.values.subarray(from * width, to * width);
      if (!this.byRows) this.applyWhole(part.chunk, round, { ids, values }, width);
      else if (ids.length > 0) this.applyRows(part.chunk, round, { ids, values }, width);
    }
  }

  read(group: TableGroup, ids: Uint32Array, isNext: boolean): Float32Array {
    const { chunks, rows } = this.groupOf(group);
    const { width } = rows;
    const values = new Float32Array(ids.length * width);
    let at = 0;
    for (const part of chunks) {
      const region = (isNext ? this.following.get(part.chunk.index) : undefined) ?? this.present.get(part.chunk.index)!;
      const { floats } = region;
      for (const end = part.firstRow + part.rows; at < ids.length && ids[at]! < end; at++) {
        const from = (ids[at]! - part.firstRow) * width;
        values.set(floats.subarray(from, from + width), at * width);
      }
    }
    const before = isNext ? undefined : this.before.get(group.index);
    if (before)
      for (const [i, id] of ids.entries()) {
        const place = lowerBound(before.ids, id);
        if (before.ids[place] === id) values.set(before.values.subarray(place * width, (place + 1) * width), i * width);
      }
    return values;
  }

  commit(): void {
    this.before.clear();
    for (const [index, region] of this.following) this.replace(index, region);
    this.following.clear();
  }

  find(chunk: number, isBest: boolean): Region | undefined {
    if (!isBest) return this.present.get(chunk);
    return this.best[[...this.present.keys()].indexOf(chunk)];
  }

  /** The groups have regions that stand for nothing, behind those of the other chunks. */
  whole(others: readonly Region[]): Region[] {
    let next = 0;
    const regions = this.order.map((index) => this.present.get(index)?.retain() ?? others[next++]!);
    for (const region of others.slice(next)) region.release();
    return regions;
  }

  keepAsBest(): void {
    for (const region of this.best) region.release();
    this.best = [...this.present.values()].map((region) => region.retain());
  }

  letGo(): void {
    for (const region of [...this.best, ...this.following.values(), ...this.present.values()]) region.release();
    this.best = [];
    this.following.clear();
    this.present.clear();
  }

  private groupOf({ index }: TableGroup): Group {
    return this.groups.find((group) => group.index === index)!;
  }

  private replace(index: number, region: Region): void {
    this.present.get(index)!.release();
    this.present.set(index, region);
  }

  private applyRows(chunk: OwnedChunk, round: number, { ids, values }: Rows, width: number): void {
    const held = this.present.get(chunk.index)!;
    if (held.isShared) {
      const copy = acquireRegion(chunk.arena, chunk.length);
      chunk.arena.kernels.copy(copy.pointer, held.pointer, chunk.length);
      this.replace(chunk.index, copy);
    }
    const gradient = acquireRegion(chunk.arena, values.length);
    gradient.floats.set(values);
    this.store.updateRows(chunk, round, this.present.get(chunk.index)!, { at: ids, width }, gradient);
    gradient.release();
  }

  private applyWhole(chunk: OwnedChunk, round: number, { ids, values }: Rows, width: number): void {
    const gradient = acquireRegion(chunk.arena, chunk.length);
    chunk.arena.kernels.fill(gradient.pointer, chunk.length, 0);
    const { floats } = gradient;
    for (const [i, id] of ids.entries()) floats.set(values.subarray(i * width, (i + 1) * width), id * width);
    const next = acquireRegion(chunk.arena, chunk.length);
    this.store.update(chunk, round, this.present.get(chunk.index)!, next, gradient);
    gradient.release();
    this.following.set(chunk.index, next);
  }
}

/** The first place whose number is not below. */
function lowerBound(ascending: Uint32Array, number: number): number {
  let [low, high] = [0, ascending.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (ascending[middle]! < number) low = middle + 1;
    else high = middle;
  }
  return low;
}
