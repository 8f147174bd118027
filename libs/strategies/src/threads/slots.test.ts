import { Arena, type SharedMemory } from '@paceline/kernels';
import { expect, it } from 'vitest';
import { Slots } from './slots.js';

it('after others have taken slots over, a reader gets those of all, and not what a slot begins with', () => {
  const arena = Arena.create({ initialBytes: 1 << 16, maximumBytes: 1 << 20 });
  const shared = new SharedArrayBuffer(0);
  const memory = {
    arena: arena.memory as SharedMemory,
    parameters: 0,
    gradients: [],
    slots: [arena.alloc(8)],
    own: { offset: 1, length: 2 },
    zeros: 0,
    header: shared,
    losses: shared,
    scratch: 0,
  };
  const slots = new Slots([0.5], 4, memory, arena);
  const gather = (into: readonly SharedArrayBuffer[]): void => void new Float32Array(into[0]!).set([1, 2, 3, 4]);
  const [begun] = slots.whole(gather);
  expect([...begun!]).toEqual([0.5, 0.5, 0.5, 0.5]);
  expect(slots.staged()).toHaveLength(1);
  const [read] = slots.whole(gather);
  expect([...read!]).toEqual([1, 2, 3, 4]);
  slots.unstage();
  expect([...arena.f32(memory.slots[0]!, 2)]).toEqual([2, 3]);
});
