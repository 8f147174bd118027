/** Tables that are exchanged by rows, at their servers: the same bits as a table that is exchanged whole, for any number of servers and any order of nodes. */
import { acquireRegion, encodeRows, Region, RowsRegion } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, ReductionTree, rowGroups, shardChunks } from '@paceline/learning';
import type { OptimizerSpec } from '@paceline/spec';
import { parseRunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { ParameterStore } from './parameter-store.js';
import { TableStore } from './table-store.js';

const [ROWS, WIDTH, REPLICAS, ROUNDS] = [5000, 9, 3, 4];

const uniform = { className: 'RandomUniform', config: { minval: -0.05, maxval: 0.05 } };
const modelOf = (isSparse: boolean) =>
  ({
    variables: [
      {
        path: 'embedding/embeddings',
        shape: [ROWS, WIDTH],
        section: 'trainable',
        initializer: uniform,
        ...(isSparse && { rows: { input: 0 } }),
      },
      { path: 'dense/kernel', shape: [WIDTH, 2], section: 'trainable', initializer: uniform },
    ],
    inputs: [],
    outputs: [],
    parameterCount: ROWS * WIDTH + WIDTH * 2,
    stateCount: 0,
  }) as never;

function optimizerOf(optimizer: object): OptimizerSpec {
  const parsed = parseRunSpec({ optimizer: optimizer as never });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec.optimizer;
}

function storeOf(isSparse: boolean, optimizer: OptimizerSpec, servers: number, index: number) {
  const model = modelOf(isSparse);
  const layout = createLayout(model);
  const store = new ParameterStore({
    layout,
    model,
    owned: shardChunks(layout, servers, index),
    optimizer,
    seed: 3,
    gradientsInFlight: 4,
    examplesIn: () => 12,
    createArena: (options) => Arena.create(options),
  });
  for (const step of store.begin()) void step;
  return { store, layout };
}

/** A few rows of each replica, some of several; zeros with both signs among them. */
function gradientOf(round: number, replica: number): { ids: Uint32Array; values: Float32Array } {
  const ids = Uint32Array.from({ length: 40 }, (_, i) => (i * 131 + (i % 3 === 0 ? 0 : replica * 17) + round) % ROWS).sort();
  const unique = ids.filter((id, i) => id !== ids[i - 1]);
  const values = Float32Array.from({ length: unique.length * WIDTH }, (_, i) => (i % 11 === 0 ? -0 : Math.sin(i * 0.7 + replica + round)));
  return { ids: unique, values };
}

/** What a table has become: whole, by dense gradients. */
function trainWhole(optimizer: OptimizerSpec): Float32Array {
  const { store } = storeOf(false, optimizer, 1, 0);
  let present = [...store.initial];
  for (let round = 0; round < ROUNDS; round++) {
    const flats = Array.from({ length: REPLICAS }, (_, replica) => {
      const flat = new Float32Array(ROWS * WIDTH + WIDTH * 2);
      const { ids, values } = gradientOf(round, replica);
      ids.forEach((id, i) => flat.set(values.subarray(i * WIDTH, (i + 1) * WIDTH), id * WIDTH));
      return flat;
    });
    const sum = flats[0]!.map((value, i) => Math.fround(Math.fround(value + flats[1]![i]!) + flats[2]![i]!));
    let offset = 0;
    present = store.chunks.map((chunk, i) => {
      const [gradient, next] = [acquireRegion(chunk.arena, chunk.length), acquireRegion(chunk.arena, chunk.length)];
      gradient.floats.set(sum.subarray(offset, (offset += chunk.length)));
      store.update(chunk, round, present[i]!, next, gradient);
      return next;
    });
  }
  return Float32Array.from(present.flatMap((region) => [...region.floats])).slice(0, ROWS * WIDTH);
}

/** The same by rows. @param order of the replicas at the tree */
function trainByRows(
  optimizer: OptimizerSpec,
  servers: number,
  byRows: boolean,
  order: readonly number[],
  gradient = gradientOf,
  rounds = ROUNDS,
): Float32Array {
  const table = new Float32Array(ROWS * WIDTH);
  for (let server = 0; server < servers; server++) {
    const { store, layout } = storeOf(true, optimizer, servers, server);
    const groups = rowGroups(layout, servers).filter((group) => group.server === server);
    const tables = new TableStore(store, layout, groups, byRows);
    for (const [g, { first, rows }] of groups.entries()) {
      const group = tables.groups[g]!;
      const all = Uint32Array.from({ length: rows }, (_, i) => i);
      for (let round = 0; round < rounds; round++) {
        const before = tables.read(group, all, false);
        const tree = new ReductionTree<Region>(REPLICAS, { add: (into, from) => into.add(from), release: (region) => region.release() });
        for (const replica of order) {
          const { ids, values } = gradient(round, replica);
          const own = [...ids.entries()].filter(([, id]) => id >= first && id < first + rows);
          const bytes = encodeRows({
            ids: Uint32Array.from(own, ([, id]) => id - first),
            values: Float32Array.from(own.flatMap(([i]) => [...values.subarray(i * WIDTH, (i + 1) * WIDTH)])),
          });
          const payload = acquireRegion(group.arena, Math.ceil(bytes.length / 4));
          payload.bytes.set(bytes);
          tree.insert({ lo: replica, hi: replica + 1 }, RowsRegion.of(payload, bytes.length, rows, WIDTH));
        }
        const sum = tree.takeRoot();
        tables.apply(group, round, sum);
        sum.release();
        // Generation k is still there for who joins late.
        expect(tables.read(group, all, false)).toEqual(before);
        if (g === groups.length - 1) tables.commit();
      }
      table.set(tables.read(group, all, false), first * WIDTH);
      expect(group.arena.bytesInUse).toBe(0);
    }
  }
  return table;
}

const bits = (values: Float32Array): Uint32Array => new Uint32Array(values.buffer, values.byteOffset, values.length);

const WITH_SLOTS = [
  [{ name: 'momentum', learningRate: 0.05, momentum: 0.9 }, false],
  [{ name: 'rmsprop', learningRate: 0.01 }, false],
  [{ name: 'sgd', learningRate: 0.1 }, true],
] as const;
test.each([
  [{ name: 'adam', learningRate: 0.01 }, false],
  [{ name: 'adagrad', learningRate: 0.1 }, true],
  ...(process.env['PACELINE_SOAK'] === '1' ? WITH_SLOTS : []),
] as const)('%j: dense slots have the bits of a table that is exchanged whole', (given, byRows) => {
  const optimizer = optimizerOf(given);
  const whole = bits(trainWhole(optimizer));
  expect(bits(trainByRows(optimizer, 1, byRows, [0, 1, 2]))).toEqual(whole);
  expect(bits(trainByRows(optimizer, 2, byRows, [2, 0, 1]))).toEqual(whole);
});

test('lazy slots: adam moves the rows that were touched, the others keep their bits', () => {
  const optimizer = optimizerOf({ name: 'adam', learningRate: 0.01 });
  const lazy = trainByRows(optimizer, 2, true, [1, 2, 0]);
  expect(bits(lazy)).toEqual(bits(trainByRows(optimizer, 1, true, [0, 1, 2])));
  const begun = storeOf(false, optimizer, 1, 0).store.initial.flatMap((region) => [...region.floats]);
  const touched = new Set(Array.from({ length: ROUNDS * REPLICAS }, (_, i) => [...gradientOf(i % ROUNDS, i % REPLICAS).ids]).flat());
  let moved = 0;
  for (let row = 0; row < ROWS; row++) {
    const isSame = [...lazy.subarray(row * WIDTH, (row + 1) * WIDTH)].every((value, j) => Object.is(value, begun[row * WIDTH + j]));
    if (!isSame) moved++;
    if (!touched.has(row)) expect(isSame).toBe(true);
  }
  expect(moved).toBe(touched.size);
});

/** Row 7 in every round, row 900 in the first and the fifth, row 4000 of two replicas in the third. */
function rarely(round: number, replica: number): { ids: Uint32Array; values: Float32Array } {
  const ids = [
    ...(replica === 0 ? [7] : []),
    ...(replica === 1 && (round === 0 || round === 4) ? [900] : []),
    ...(replica > 0 && round === 2 ? [4000] : []),
  ];
  return {
    ids: Uint32Array.from(ids),
    values: Float32Array.from({ length: ids.length * WIDTH }, (_, i) => Math.cos(i + 3 * round + replica)),
  };
}

test('lazy slots: rows that come rarely are moved as LazyAdam moves them', () => {
  const rates = { learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 };
  const lazy = trainByRows(optimizerOf({ name: 'adam', ...rates }), 2, true, [0, 2, 1], rarely, 5);
  const begun = storeOf(false, optimizerOf({ name: 'adam' }), 1, 0).store.initial.flatMap((region) => [...region.floats]);
  for (const row of [7, 900, 4000, 12]) {
    for (let j = 0; j < WIDTH; j++) {
      // LazyAdam of TensorFlow Addons, in float64: moments decay in the rounds that touch the row alone; corrections count every round.
      let [weight, m, v] = [begun[row * WIDTH + j]!, 0, 0];
      for (let round = 0; round < 5; round++) {
        const parts = [0, 1, 2].flatMap((replica) => {
          const { ids, values } = rarely(round, replica);
          const at = ids.indexOf(row);
          return at < 0 ? [] : [values[at * WIDTH + j]!];
        });
        if (parts.length === 0) continue;
        const g = parts.reduce((sum, x) => sum + x, 0) / 12;
        m = rates.beta1 * m + (1 - rates.beta1) * g;
        v = rates.beta2 * v + (1 - rates.beta2) * g * g;
        const rate = (rates.learningRate * Math.sqrt(1 - rates.beta2 ** (round + 1))) / (1 - rates.beta1 ** (round + 1));
        weight -= (rate * m) / (Math.sqrt(v) + rates.epsilon);
      }
      expect(lazy[row * WIDTH + j]).toBeCloseTo(weight, 5);
      if (row === 12) expect(lazy[row * WIDTH + j]).toBe(begun[row * WIDTH + j]);
    }
  }
});
