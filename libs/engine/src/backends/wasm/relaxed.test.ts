/** In a file of its own: a thread has one kind of kernels. */
import { fusesMultiplyAdd } from '@paceline/kernels';
import { beforeAll, describe, expect, it } from 'vitest';
import { batchOf, loadedEngine, type Loaded } from '../../run.fixture.js';

describe.skipIf(!fusesMultiplyAdd())('the engine with fused multiply-add', () => {
  const batch = batchOf(2);
  const gradientOf = ({ engine, layout }: Loaded): Float32Array => {
    const out = new Float32Array(layout.totalLength);
    engine.step({ round: 0, replica: 0, batches: [batch], out });
    return out;
  };
  let relaxed: Loaded;
  beforeAll(async () => void (relaxed = await loadedEngine({ model: 'cnn', engine: 'wasm-relaxed' })));

  it('says what it is, and computes the same bits again', () => {
    expect(relaxed.engine.fingerprint).toMatch(/^tfjs-wasm-relaxed 4\.22\.0; kernels \d+; simd relaxed, fused; threads 1; v8 /);
    expect(gradientOf(relaxed)).toEqual(gradientOf(relaxed));
  });

  it('computes the gradients of the cpu backend, within rounding', async () => {
    const [got, want] = [gradientOf(relaxed), gradientOf(await loadedEngine({ model: 'cnn', engine: 'cpu' }))];
    const largest = want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    for (let i = 0; i < want.length; i++)
      if (!(Math.abs(got[i]! - want[i]!) < 1e-5 * largest)) expect.fail(`element ${i}: ${got[i]} for ${want[i]}`);
    expect(largest).toBeGreaterThan(0.1);
  });
});
