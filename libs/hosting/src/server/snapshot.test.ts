import { describe, expect, it } from 'vitest';
import { acquireRegion, type Region } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { Snapshot } from './snapshot.js';

const LENGTH = 8;

function setUp() {
  const arena = Arena.create({ initialBytes: 1 << 17, maximumBytes: 1 << 20 });
  const filled = (value: number): Region => {
    const region = acquireRegion(arena, LENGTH);
    region.floats.fill(value);
    return region;
  };
  const chunks = [0, 1].map((index) => ({ index, length: LENGTH, arena }));
  const parameters = [filled(1), filled(2)];
  const slots = [filled(10), filled(20)];
  const before = arena.bytesInUse;
  const snapshot = new Snapshot(
    5,
    chunks,
    parameters.map((region) => region.retain()),
    (chunk) => [{ name: 'm', pointer: slots[chunk]!.pointer }],
  );
  return { arena, snapshot, slots, parameters, before };
}

const floats = (bytes: Uint8Array): number => new Float32Array(bytes.slice().buffer)[0]!;

describe('a snapshot', () => {
  it('keeps slots as they were at the checkpoint, whether they change before their turn or after', async () => {
    const { arena, snapshot, slots, before } = setUp();
    const seen: [string, number][] = [];
    let turn = 0;
    for (const tensor of snapshot.tensors()) {
      if (turn++ === 1) {
        // An update of both chunks comes while the first is being written.
        for (const [chunk, slot] of slots.entries()) {
          snapshot.preserve(chunk);
          slot.floats.fill(99);
        }
      }
      seen.push([tensor.name, floats(await tensor.read())]);
      tensor.done?.();
    }
    expect(seen).toEqual([
      ['parameters/0', 1],
      ['slots/m/0', 10],
      ['parameters/1', 2],
      ['slots/m/1', 20],
    ]);
    snapshot.preserve(1); // written already: nothing is copied any more
    expect(arena.bytesInUse).toBe(before);
  });

  it('gives everything back when it is given up in the middle, and hands nothing out afterwards', async () => {
    const { arena, snapshot, parameters, before } = setUp();
    const tensors = [...snapshot.tensors()];
    await tensors[0]!.read();
    tensors[0]!.done?.();
    snapshot.preserve(1);
    snapshot.abandon();
    expect(snapshot.abandoned.signal.aborted).toBe(true);
    expect(() => tensors[3]!.read()).toThrow('given up');
    expect(arena.bytesInUse).toBe(before);
    for (const region of parameters) region.release(); // its own reference is the only one left
    expect(arena.bytesInUse).toBeLessThan(before);
  });
});
