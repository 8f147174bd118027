import { expect, it } from 'vitest';
import { collectGarbage } from '../../training/garbage.js';
import { checkedOn } from './device-errors.js';

/** A device that refuses nothing; `lose` takes it away. */
function device(): { device: Parameters<typeof checkedOn>[0]; lose: (message: string) => void } {
  let tell!: (info: GPUDeviceLostInfo) => void;
  const lost = new Promise<GPUDeviceLostInfo>((resolve) => (tell = resolve));
  return {
    device: { lost, pushErrorScope: () => undefined, popErrorScope: () => Promise.resolve(null) },
    lose: (message) => tell({ message, reason: 'unknown' } as GPUDeviceLostInfo),
  };
}

function heapBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

it('keeps nothing of the work that it has waited for', async () => {
  const checked = checkedOn(device().device, 'test');
  const work = (): Promise<void> => Promise.resolve();
  const many = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) await checked(work);
  };
  await many(1_000);
  const before = heapBytes();
  await many(100_000);
  expect((heapBytes() - before) / 100_000).toBeLessThan(50);
});

it('a device that is lost fails the work in progress and all that follows', async () => {
  const { device: fake, lose } = device();
  const checked = checkedOn(fake, 'test');
  expect(await checked(() => Promise.resolve(7))).toBe(7);
  await expect(checked(() => Promise.reject(new RangeError('of the work')))).rejects.toThrow(RangeError);
  const never = checked(() => new Promise(() => undefined));
  lose('unplugged');
  await expect(never).rejects.toThrow('the GPU device test is lost: unplugged');
  await expect(checked(() => Promise.resolve(7))).rejects.toThrow('is lost');
});
