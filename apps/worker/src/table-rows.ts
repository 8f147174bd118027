/**
 * The rows of tables that a worker holds (docs/decisions/037). The engine has tables of a few rows; the ids of a batch are turned into places there.
 *
 *   batches ── ids, ascending, each once ──> what is not here is asked for ──> rows come ──> laid into the small tables, and the engine loads them
 *                                                                                └─> gradients of these rows, by node and group
 *
 * One assignment of places serves all replicas of a step, so vectors of several replicas can be added element by element. Place 0 stands for id 0 alone,
 * whether or not it is there, because layers mask it.
 */
import type { Batch } from '@paceline/engine';
import { encodeRows, type Rows } from '@paceline/exchange';
import { rowGroups, type Layout, type RowGroup, type WorkerLayout } from '@paceline/learning';
import { fieldLength, type RowFormat } from '@paceline/spec';

export interface TableRowsOptions {
  readonly run: Layout;
  readonly worker: WorkerLayout;
  readonly servers: number;
  readonly format: RowFormat;
  /** Asks for rows, counted from the first one of the group. */
  wants(generation: number, group: number, ids: Uint32Array): void;
}

interface Table {
  readonly variable: number;
  readonly input: number;
  readonly rows: number;
  readonly width: number;
  /** In the vector of the worker. */
  readonly offset: number;
  readonly groups: readonly RowGroup[];
}

/** The rows of a table in a generation, as far as they are here or asked for. */
interface Held {
  readonly asked: Set<number>;
  readonly rows: Map<number, { readonly values: Float32Array; readonly at: number }>;
}

/** Ids that batches name, by input: ascending, each once. */
export type Ids = ReadonlyMap<number, Uint32Array>;

/** A gradient of a group, as it is sent. */
export interface GroupBytes {
  readonly group: number;
  readonly bytes: Uint8Array;
}

export class TableRows {
  private readonly tables: readonly Table[];
  private readonly inputs: readonly { readonly input: number; readonly rows: number; readonly perExample: number }[];
  private readonly held = new Map<string, Held>();
  private readonly groups: readonly RowGroup[];
  /** Places of ids, by input. */
  private places = new Map<number, Map<number, number>>();

  constructor(private readonly options: TableRowsOptions) {
    const { run, worker, servers, format } = options;
    this.groups = rowGroups(run, servers);
    this.tables = run.variables.flatMap(({ rows, shape }, variable) => {
      if (!rows) return [];
      const groups = this.groups.filter(({ table }) => table === variable);
      return [{ variable, input: rows.input, rows: shape[0]!, width: shape[1]!, offset: worker.variables[variable]!.offset, groups }];
    });
    this.inputs = [...new Set(this.tables.map(({ input }) => input))].map((input) => ({
      input,
      rows: Math.min(...this.tables.filter((table) => table.input === input).map(({ rows }) => rows)),
      perExample: fieldLength(format.inputs[input]!),
    }));
  }

  /** @throws RangeError for an id that some table has no row for */
  idsOf(batches: readonly Batch[]): Ids {
    return new Map(
      this.inputs.map(({ input, rows, perExample }) => {
        const ids = new Set<number>();
        for (const { inputs, count } of batches) {
          const values = inputs[input]!;
          for (let i = 0; i < count * perExample; i++) ids.add(idOf(values[i]!, rows));
        }
        return [input, Uint32Array.from(ids).sort()];
      }),
    );
  }

  /** Ids of several replicas together. */
  union(all: readonly Ids[]): Ids {
    return new Map(
      this.inputs.map(({ input }) => [input, Uint32Array.from(new Set(all.flatMap((ids) => [...(ids.get(input) ?? [])]))).sort()]),
    );
  }

  /** Whether all of these rows are here. Those that are not are asked for, once. */
  has(generation: number, ids: Ids): boolean {
    let isWhole = true;
    for (const { variable, input, groups } of this.tables) {
      const held = this.heldOf(generation, variable);
      const missing = ids.get(input)!.filter((id) => !held.rows.has(id));
      if (missing.length === 0) continue;
      isWhole = false;
      const fresh = missing.filter((id) => !held.asked.has(id));
      for (const id of fresh) held.asked.add(id);
      for (const { index, first, rows } of groups) {
        const own = fresh.filter((id) => id >= first && id < first + rows).map((id) => id - first);
        if (own.length > 0) this.options.wants(generation, index, own);
      }
    }
    return isWhole;
  }

  arrived(generation: number, index: number, { ids, values }: Rows): void {
    const group = this.groups.find((each) => each.index === index)!;
    const { rows } = this.heldOf(generation, group.table);
    for (const [i, id] of ids.entries()) rows.set(id + group.first, { values, at: i * group.width });
  }

  /** Lays the rows into the tables of a vector; batches are turned into these places from now on. */
  lay(generation: number, ids: Ids, vector: Float32Array): void {
    this.places = new Map([...ids].map(([input, all]) => [input, placesOf(all)]));
    for (const { variable, input, width, offset } of this.tables) {
      const { rows } = this.heldOf(generation, variable);
      for (const [id, place] of this.places.get(input)!) {
        const { values, at } = rows.get(id)!;
        vector.set(values.subarray(at, at + width), offset + place * width);
      }
    }
  }

  /** The same batch with places in place of ids. */
  placed(batch: Batch): Batch {
    const inputs = [...batch.inputs];
    for (const { input, rows, perExample } of this.inputs) {
      const places = this.places.get(input)!;
      const ids = inputs[input]!.subarray(0, batch.count * perExample);
      inputs[input] = ids.map((id) => places.get(idOf(id, rows))!);
    }
    return Object.assign({}, batch, { inputs });
  }

  /** The gradients of these rows, by group; a group that none of them is of has an empty one. @param pieces of a vector, at their offsets */
  gradients(ids: Ids, pieces: readonly { readonly offset: number; readonly values: Float32Array }[]): GroupBytes[] {
    return this.tables.flatMap(({ input, width, offset, groups }) => {
      const piece = pieces.find((each) => each.offset <= offset && offset < each.offset + each.values.length)!;
      const places = this.places.get(input)!;
      return groups.map(({ index, first, rows }) => {
        const own = ids.get(input)!.filter((id) => id >= first && id < first + rows);
        const values = new Float32Array(own.length * width);
        for (const [i, id] of own.entries()) {
          const from = offset - piece.offset + places.get(id)! * width;
          values.set(piece.values.subarray(from, from + width), i * width);
        }
        return { group: index, bytes: encodeRows({ ids: own.map((id) => id - first), values }) };
      });
    });
  }

  /** Generations below are not needed any more. */
  forgetBelow(generation: number): void {
    for (const key of this.held.keys()) if (Number(key.split('/')[0]) < generation) this.held.delete(key);
  }

  /** What was held for an evaluation. */
  forget(generation: number): void {
    for (const { variable } of this.tables) this.held.delete(`${generation}/${variable}`);
  }

  private heldOf(generation: number, variable: number): Held {
    const key = `${generation}/${variable}`;
    const known = this.held.get(key) ?? { asked: new Set(), rows: new Map() };
    this.held.set(key, known);
    return known;
  }
}

/** As the layers cast them. */
function idOf(value: number, rows: number): number {
  const id = Math.trunc(value);
  if (!(id >= 0 && id < rows))
    throw new RangeError(`id ${value} of an embedding that has ${rows} rows: give its layer as many rows as there are ids`);
  return id;
}

function placesOf(ids: Uint32Array): Map<number, number> {
  const first = ids[0] === 0 ? 0 : 1;
  return new Map(Array.from(ids, (id, i) => [id, first + i]));
}
