/** What strategies over threads are as runs of the service: kinds of their names, which the spec takes. */
import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { CentralStorageStrategy, MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';

it('is on one worker, with the threads that were given', async () => {
  const strategies = [
    new OneDeviceStrategy(),
    new MirroredStrategy({ threads: 2, replicas: 4 }),
    new MirroredStrategy({ replicas: 1 }),
    new CentralStorageStrategy({ threads: 1, replicas: 3 }),
  ];
  try {
    const runs = strategies.map((strategy) => strategy.toRun());
    expect(runs).toEqual([
      { strategy: { kind: 'one-device' }, replicas: 1 },
      { strategy: { kind: 'mirrored', threads: 2 }, replicas: 4 },
      { strategy: { kind: 'mirrored' }, replicas: 1 },
      { strategy: { kind: 'mirrored', threads: 1 }, replicas: 3 },
    ]);
    for (const run of runs) expect(parseRunSpec(run).ok).toBe(true);
  } finally {
    for (const strategy of strategies) await strategy.dispose();
  }
});
