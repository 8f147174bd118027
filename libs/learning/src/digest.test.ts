import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { createWeightsDigest } from './digest.js';

describe('the digest of the weights', () => {
  const values = Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i));
  const bytes = Buffer.alloc(4000);
  values.forEach((x, i) => bytes.writeFloatLE(x, i * 4));
  const wanted = createHash('sha256').update(bytes).digest('hex');

  it('is SHA-256 over little-endian float32, however the vector is cut', () => {
    const digest = createWeightsDigest();
    for (let from = 0; from < 1000; from += 77) digest.update(values.subarray(from, from + 77));
    expect(digest.elements).toBe(1000);
    expect(digest.hex()).toBe(wanted);
  });

  it('reads shared memory', () => {
    const shared = new Float32Array(new SharedArrayBuffer(4000));
    shared.set(values);
    expect(createWeightsDigest().update(shared).hex()).toBe(wanted);
  });

  it('of nothing is that of the empty text', () => {
    expect(createWeightsDigest().hex()).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
  });
});
