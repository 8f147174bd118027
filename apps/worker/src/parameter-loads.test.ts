import { expect, it } from 'vitest';
import { ArrivalCells, ArrivedChunks } from './arrivals.js';
import { ParameterLoads } from './parameter-loads.js';

const LENGTHS = [4, 4, 4, 2];
const chunks = LENGTHS.map((length, index) => ({ index, section: 'trainable' as const, offset: index * 4, length }));
const ELEMENTS = 14;

/** A main thread that receives chunks, and the engine of a compute thread. Each write has values of its own. */
function setUp({ hasParts = true, meanwhile = (): void => undefined } = {}) {
  const vectors = [new Float32Array(ELEMENTS), new Float32Array(ELEMENTS)];
  const rings: number[] = [];
  const cells = new ArrivalCells({ chunks }, () => rings.push(1));
  const inEngine = new Float32Array(ELEMENTS).fill(-1);
  const copied: number[] = [];
  let writes = 0;
  const loadPart = (offset: number, values: Float32Array): void => {
    copied.push(values.length);
    const half = values.length >> 1;
    inEngine.set(values.subarray(0, half), offset);
    meanwhile();
    inEngine.set(values.subarray(half), offset + half);
  };
  const engine = { load: (flat: Float32Array) => loadPart(0, flat), ...(hasParts && { loadPart }) };
  const loads = new ParameterLoads({ engine, layout: { chunks }, vectors, arrived: new ArrivedChunks(cells.memory, chunks.length) });
  return {
    cells,
    loads,
    inEngine,
    copied,
    open: (generation: number) => cells.opens(generation, []),
    /** A part of a chunk, or all of it, with new values. */
    write(generation: number, chunk: number, share = 1) {
      const { offset, length } = chunks[chunk]!;
      vectors[generation & 1]!.fill(++writes, offset, offset + Math.ceil(length * share));
    },
    came: (generation: number, chunk: number) => cells.came(generation, chunk),
    receive(generation: number, chunk: number) {
      this.write(generation, chunk);
      this.came(generation, chunk);
    },
    receiveAll(generation: number) {
      this.open(generation);
      for (const { index } of chunks) this.receive(generation, index);
    },
    expectEngine(generation: number) {
      expect([...inEngine]).toEqual([...vectors[generation & 1]!]);
    },
  };
}

it('loads what has come while nothing else is to do, and the rest for the step', () => {
  const seat = setUp();
  seat.receiveAll(0);
  expect(seat.loads.load(0)).toBe(true);
  expect(seat.loads.loadAhead(1)).toBe(false);
  seat.open(1);
  seat.receive(1, 2);
  seat.receive(1, 0);
  seat.copied.length = 0;
  expect([1, 2, 3].map(() => seat.loads.loadAhead(1))).toEqual([true, true, false]);
  seat.write(1, 1, 0.5);
  expect(seat.loads.loadAhead(1)).toBe(false);
  seat.receive(1, 1);
  seat.receive(1, 3);
  expect(seat.loads.load(1)).toBe(true);
  expect(seat.copied).toEqual([4, 4, 4, 2]);
  seat.expectEngine(1);
  expect(seat.loads.load(1)).toBe(true);
  expect(seat.copied).toHaveLength(4);
});

it('a round that is redone computes with its own generation, of which a part was overwritten in the engine', () => {
  const seat = setUp();
  seat.receiveAll(4);
  seat.loads.load(4);
  seat.open(5);
  seat.receive(5, 1);
  seat.loads.loadAhead(5);
  expect(seat.loads.load(4)).toBe(true);
  seat.expectEngine(4);
});

it('a chunk that comes again after a takeover is loaded again', () => {
  const seat = setUp();
  seat.receiveAll(0);
  seat.loads.load(0);
  seat.receiveAll(1);
  while (seat.loads.loadAhead(1));
  seat.cells.gone(1, 2);
  seat.receive(1, 2);
  expect(seat.loads.load(1)).toBe(true);
  seat.expectEngine(1);
});

it('says that a generation is gone when another one takes its place while it is loaded', () => {
  let later = (): void => undefined;
  const seat = setUp({ meanwhile: () => later() });
  seat.receiveAll(0);
  later = () => seat.open(2);
  expect(seat.loads.load(0)).toBe(false);
  later = () => undefined;
  seat.receiveAll(2);
  expect(seat.loads.load(2)).toBe(true);
  seat.expectEngine(2);
});

it('loads all of it after the engine was given something else, and where it takes no parts', () => {
  for (const hasParts of [true, false]) {
    const seat = setUp({ hasParts });
    seat.receiveAll(0);
    seat.loads.load(0);
    seat.receiveAll(1);
    expect(seat.loads.loadAhead(1)).toBe(hasParts);
    seat.inEngine.fill(-1);
    seat.loads.forget();
    expect(seat.loads.load(1)).toBe(true);
    seat.expectEngine(1);
    seat.open(2);
    seat.receive(2, 0);
    expect(seat.loads.loadAhead(2)).toBe(hasParts);
    expect(seat.loads.load(1)).toBe(true);
    seat.expectEngine(1);
  }
});

/** Chunks of k+1 come, come again and are written while they are copied; round k is redone, evaluated and left behind, in any order. */
it('never computes with mixed generations, whatever happens to them', () => {
  let state = 7;
  const below = (n: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
  let [round, mayInterfere] = [0, false];
  let have = new Set<number>();
  const rewrite = (): void => {
    const chunk = below(chunks.length);
    seat.cells.gone(round + 1, chunk);
    have.delete(chunk);
    seat.write(round + 1, chunk, below(2) === 0 ? 0.5 : 1);
    if (below(2) === 0) return;
    seat.receive(round + 1, chunk);
    have.add(chunk);
  };
  const seat = setUp({ meanwhile: () => mayInterfere && below(2) === 0 && rewrite() });
  const during = <T>(act: () => T): T => {
    mayInterfere = true;
    const result = act();
    mayInterfere = false;
    return result;
  };
  seat.receiveAll(0);
  seat.open(1);
  let steps = 0;
  for (let turn = 0; turn < 6_000; turn++) {
    const what = below(10);
    if (what < 3) {
      const chunk = below(chunks.length);
      if (!have.has(chunk)) seat.receive(round + 1, chunk);
      have.add(chunk);
    } else if (what === 3) rewrite();
    else if (what < 7) during(() => seat.loads.loadAhead(round + 1));
    else if (what < 9) {
      expect(during(() => seat.loads.load(round))).toBe(true);
      seat.expectEngine(round);
      steps++;
    } else if (have.size === chunks.length) {
      round++;
      have = new Set();
      seat.open(round + 1);
    }
  }
  expect(round).toBeGreaterThan(30);
  expect(steps).toBeGreaterThan(1000);
});

it('refuses cells of another layout: of tables that are exchanged by rows a worker has fewer chunks than the run', () => {
  const { memory } = new ArrivalCells({ chunks }, () => undefined);
  expect(() => new ArrivedChunks(memory, chunks.length - 1)).toThrow('10 cells of arrivals for 3 chunks, which have 8');
});
