import { expect, it } from 'vitest';
import { MODELS, WRONG_ON_CPU } from '../../gradients/models.fixture.js';
import { batchOf, largestDifference, loadedEngine } from '../../run.fixture.js';
import { installedPackage } from './installed.fixture.js';

const packageDir = installedPackage();

it.skipIf(!packageDir).each([...MODELS, ...WRONG_ON_CPU.map(([name, model]) => [name, model] as const)])(
  '%s has the gradients of the wasm engine',
  async (_, model) => {
    const native = await loadedEngine({ model, engine: 'tensorflow' }, packageDir);
    const wasm = await loadedEngine({ model, engine: 'wasm' });
    const [a, b] = [native, wasm].map(({ engine, layout }) => {
      const out = new Float32Array(layout.totalLength);
      return { out, sums: engine.step({ round: 0, replica: 0, batches: [batchOf(7)], out }) };
    });
    expect(a!.sums.metricSums[0]).toBeCloseTo(b!.sums.metricSums[0]!, 2);
    expect(largestDifference(a!.out, b!.out, 0.5)).toBeLessThan(1e-3);
    native.engine.dispose();
    wasm.engine.dispose();
  },
);
