/** Equal bits with every codec that keeps nothing of a replica, and with parameters in fewer bytes: 1 to 3 workers, 1 and 2 servers, on real processes. */
import { PARAMETER_CODECS, type RunSpecInput } from '@paceline/spec';
import { DataPlane } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CODEC_OPTIONS, KEEPS_NOTHING, SMALL } from '../cluster/codec-cases.js';
import { reference } from '../cluster/references.js';

const CODECS: readonly (readonly [string, NonNullable<RunSpecInput['codec']>])[] = [
  ...KEEPS_NOTHING.map((kind) => [kind, { kind, ...CODEC_OPTIONS[kind] }] as const),
  ...PARAMETER_CODECS.filter((parameters) => parameters !== 'float32').map(
    (parameters) => [`int8 with parameters ${parameters}`, { kind: 'int8', parameters }] as const,
  ),
];

let plane: DataPlane;
beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 3 })));
afterAll(() => plane?.stop());

test.each(CODECS)('%s: 1 to 3 workers, 1 and 2 servers', async (_, codec) => {
  const input: RunSpecInput = { model: SMALL, globalBatch: 60, replicas: 4, length: { rounds: 6 }, seed: 7, codec };
  const expected = await reference(input);
  for (const servers of [1, 2])
    for (const workers of [1, 2, 3]) {
      const strategy = { kind: 'parameter-server', mode: 'sync', servers, startWorkers: workers } as const;
      const run = await plane.train({ ...input, strategy });
      run.workers = workers; // seats that are offered
      expect([servers, workers, (await plane.finished(run)).weightsSha256]).toEqual([servers, workers, expected]);
      const computed = new Set(
        run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === 'worker.joined' ? [entry.data['workerId']] : [])),
      );
      expect(computed.size).toBe(workers);
    }
});
