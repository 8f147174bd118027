import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ARENA_MAXIMUM_BYTES, Arena, ArenaFullError } from './arena.js';
import { measureChecksums, measureKernels } from './measure.js';

const MIB = 1 << 20;

describe('alloc and free', () => {
  it('give aligned blocks that never overlap, whatever the order, and take everything back', () => {
    const command = fc.oneof(
      {
        weight: 3,
        arbitrary: fc.record({ take: fc.oneof(fc.integer({ min: 1, max: 5000 }), fc.constantFrom(64, 4096, 65_536, 100_000)) }),
      },
      { weight: 2, arbitrary: fc.record({ give: fc.nat() }) },
    );
    fc.assert(
      fc.property(fc.array(command, { maxLength: 120 }), (commands) => {
        const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 8 * MIB });
        const live: { pointer: number; bytes: number; mark: number }[] = [];
        commands.forEach((command, mark) => {
          if ('take' in command) {
            const pointer = arena.alloc(command.take);
            expect(pointer % 64).toBe(0);
            expect(pointer).toBeGreaterThan(0);
            arena.bytes(pointer, command.take).fill(mark & 255);
            live.push({ pointer, bytes: command.take, mark: mark & 255 });
          } else if (live.length > 0) {
            const { pointer } = live.splice(command.give % live.length, 1)[0]!;
            arena.free(pointer);
          }
        });
        for (const { pointer, bytes, mark } of live) expect(arena.bytes(pointer, bytes).every((byte) => byte === mark)).toBe(true);
        for (const { pointer } of live) arena.free(pointer);
        expect(arena.bytesInUse).toBe(0);
        // Every free neighbour was joined: one block spans all that there is.
        const whole = arena.bytesCapacity - 256;
        arena.free(arena.alloc(whole));
        expect(arena.bytesCapacity).toBe(whole + 256);
      }),
      { numRuns: 150 },
    );
  });

  it('use the same blocks again and do not grow in a steady state', () => {
    const arena = Arena.create({ initialBytes: 8 * MIB, maximumBytes: 64 * MIB });
    const ring = Array.from({ length: 6 }, () => arena.alloc(MIB));
    const before = arena.bytesCapacity;
    for (let i = 0; i < 10_000; i++) {
      arena.free(ring[i % 6]!);
      ring[i % 6] = arena.alloc(MIB);
    }
    expect(arena.bytesCapacity).toBe(before);
    expect(arena.bytesInUse).toBe(6 * MIB);
  });

  it('grow up to the maximum and then say that the arena is full', () => {
    const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 4 * MIB });
    const pointers: number[] = [];
    let error: unknown;
    try {
      for (;;) pointers.push(arena.alloc(MIB / 4));
    } catch (caught) {
      error = caught;
    }
    expect(pointers.length).toBe(15); // the first lines are not given out
    expect(error).toBeInstanceOf(ArenaFullError);
    expect(error).toMatchObject({ code: 'ARENA_FULL', requestedBytes: MIB / 4, bytesInUse: 15 * (MIB / 4), maximumBytes: 4 * MIB });
    expect(arena.alloc(MIB / 8)).toBeGreaterThan(0);
    arena.free(pointers[3]!);
    expect(arena.alloc(MIB / 4)).toBe(pointers[3]);
    expect(() => arena.alloc(1e12)).toThrow(ArenaFullError);
  });

  it('throw when a block is freed twice, or was never there', () => {
    const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 65_536 });
    const pointer = arena.alloc(100);
    arena.free(pointer);
    expect(() => arena.free(pointer)).toThrow(/freed twice/);
    expect(() => arena.free(pointer + 64)).toThrow(/no block/);
    expect(arena.bytesInUse).toBe(0);
  });

  it('refuse sizes that make no sense', () => {
    expect(() => Arena.create({ initialBytes: 0, maximumBytes: 1 })).toThrow(RangeError);
    expect(() => Arena.create({ initialBytes: 2, maximumBytes: 1 })).toThrow(RangeError);
    expect(() => Arena.create({ initialBytes: 1, maximumBytes: ARENA_MAXIMUM_BYTES + 1 })).toThrow(RangeError);
    const arena = Arena.create({ initialBytes: 1, maximumBytes: 1 });
    for (const bytes of [0, -1, 1.5, NaN]) expect(() => arena.alloc(bytes)).toThrow(RangeError);
  });

  it('reach the largest arena that the kernels are compiled for', () => {
    const arena = Arena.create({ initialBytes: 65_536, maximumBytes: ARENA_MAXIMUM_BYTES });
    const pointer = arena.alloc(ARENA_MAXIMUM_BYTES - 256);
    const last = ARENA_MAXIMUM_BYTES - 64;
    arena.kernels.fill(last, 16, 7);
    expect([...arena.f32(last, 16)]).toEqual(new Array(16).fill(7));
    arena.free(pointer);
  });
});

describe('views', () => {
  it('made before growth stay valid and see what kernels write', () => {
    const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 16 * MIB });
    const pointer = arena.alloc(4096);
    const view = arena.f32(pointer, 1024);
    const far = arena.alloc(8 * MIB);
    expect(arena.bytesCapacity).toBeGreaterThan(8 * MIB);
    arena.kernels.fill(pointer, 1024, 3);
    arena.kernels.fill(far, 16, 4);
    expect(view.every((x) => x === 3)).toBe(true);
    expect([...arena.f32(far, 16)]).toEqual(new Array(16).fill(4));
  });
});

describe('an attached arena', () => {
  it('may compute and look, but not allocate', () => {
    const owner = Arena.create({ initialBytes: 65_536, maximumBytes: MIB });
    const pointer = owner.alloc(64);
    const attached = Arena.attach(owner.memory);
    attached.kernels.fill(pointer, 16, 2);
    expect(owner.f32(pointer, 16)[15]).toBe(2);
    expect(() => attached.alloc(64)).toThrow(/only the thread that created/);
    expect(() => attached.free(pointer)).toThrow(/only the thread that created/);
  });

  it('in another thread works in the same memory, also in what was added after it had attached', async () => {
    const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 64 * MIB });
    const source = `
      import { parentPort, workerData } from 'node:worker_threads';
      const { Arena } = await import(workerData.module);
      const arena = Arena.attach(workerData.memory);
      parentPort.on('message', ({ pointer, count, value }) => {
        arena.kernels.fill(pointer, count, value);
        parentPort.postMessage(arena.f32(pointer, count)[count - 1]);
      });
      parentPort.postMessage('attached');`;
    const module = new URL('../dist/arena.js', import.meta.url).href;
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`), {
      workerData: { memory: arena.memory, module },
    });
    try {
      expect(await once(worker, 'message')).toEqual(['attached']);
      const pointer = arena.alloc(32 * MIB);
      worker.postMessage({ pointer, count: 8 * MIB, value: 5 });
      expect(await once(worker, 'message')).toEqual([5]);
      expect(arena.f32(pointer, 8 * MIB)[8 * MIB - 1]).toBe(5);
    } finally {
      await worker.terminate();
    }
  });
});

it('the micro-benchmark measures every kernel', () => {
  const rows = measureKernels({ elements: 4096, repetitions: 1, elementsPerFigure: 4096 });
  const { kernels } = Arena.create({ initialBytes: 1, maximumBytes: 65_536 });
  // What it gives is a number that `kthMagnitude` has left.
  const { equalWanted, ...worked } = kernels;
  expect(equalWanted).toBeDefined();
  expect(rows.map((row) => row.kernel).sort()).toEqual([...Object.keys(worked), 'topK'].sort());
  for (const row of rows) for (const figure of [row.gigabytesPerSecond, row.ofCached, row.ofCopy]) expect(figure).toBeGreaterThan(0);
});

it('the micro-benchmark measures every way to take a checksum', () => {
  const rows = measureChecksums({ bytes: 4096, repetitions: 1 });
  expect(rows).toHaveLength(4);
  for (const row of rows) for (const figure of [row.fromMemory, row.ofOneChunk]) expect(figure).toBeGreaterThan(0);
});
