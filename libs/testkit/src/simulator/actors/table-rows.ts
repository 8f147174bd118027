/**
 * The rows of a table that a worker has, as apps/worker/src/table-rows.ts keeps them: what is missing is asked for, once, and what was not asked for
 * is no number here.
 */
import { encodeRows, type Rows } from '@paceline/exchange';
import { rowGroups, type RowGroup } from '@paceline/learning';
import { Codec } from '@paceline/protocol';
import type { TinyRun } from '../run/tiny-run.js';

interface Held {
  readonly asked: Set<number>;
  readonly values: Map<number, Float32Array>;
}

export class SimTableRows {
  private readonly groups: readonly RowGroup[];
  private readonly held = new Map<number, Held>();

  constructor(
    private readonly run: TinyRun,
    private readonly wants: (generation: number, group: number, ids: Uint32Array) => void,
  ) {
    this.groups = rowGroups(run.layout, run.shape.servers);
  }

  /** Rows of several replicas, ascending. */
  idsOf(round: number, replicas: readonly number[]): number[] {
    return [...new Set(replicas.flatMap((replica) => this.run.rowsOf(round, replica)))].sort((a, b) => a - b);
  }

  /** Whether all of these are here. Those that are not are asked for. */
  has(generation: number, ids: readonly number[]): boolean {
    const { asked, values } = this.heldOf(generation);
    const fresh = ids.filter((id) => !asked.has(id));
    for (const id of fresh) asked.add(id);
    for (const { index, first, rows } of this.groups) {
      const own = fresh.filter((id) => id >= first && id < first + rows).map((id) => id - first);
      if (own.length > 0) this.wants(generation, index, Uint32Array.from(own));
    }
    return ids.every((id) => values.has(id));
  }

  arrived(generation: number, index: number, { ids, values }: Rows): void {
    const { first, width } = this.groups.find((group) => group.index === index)!;
    for (const [i, id] of ids.entries()) this.heldOf(generation).values.set(first + id, values.slice(i * width, (i + 1) * width));
  }

  lay(generation: number, weights: Float32Array): void {
    const { from, to, width } = this.run.tableRange;
    weights.fill(Number.NaN, from, to);
    for (const [id, values] of this.heldOf(generation).values) weights.set(values, from + id * width);
  }

  /** The rows of a summed gradient that are of a group. */
  gradient(index: number, ids: readonly number[], sum: Float32Array): { codec: number; bytes: Uint8Array } {
    const { first, rows, width } = this.groups.find((group) => group.index === index)!;
    const { from } = this.run.tableRange;
    const own = ids.filter((id) => id >= first && id < first + rows);
    const values = new Float32Array(own.length * width);
    for (const [i, id] of own.entries()) values.set(sum.subarray(from + id * width, from + (id + 1) * width), i * width);
    return { codec: Codec.rows, bytes: encodeRows({ ids: Uint32Array.from(own, (id) => id - first), values }) };
  }

  forgetBelow(generation: number): void {
    for (const key of this.held.keys()) if (key < generation) this.held.delete(key);
  }

  private heldOf(generation: number): Held {
    const held = this.held.get(generation) ?? { asked: new Set(), values: new Map() };
    this.held.set(generation, held);
    return held;
  }
}
