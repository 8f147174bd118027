import { createLayout, layoutHash } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { openCheckpoint } from './restore.js';

const variable = { path: 'dense/kernel', shape: [2, 2], section: 'trainable', initializer: { className: 'Zeros', config: {} } } as const;
const layout = createLayout({ variables: [variable], parameterCount: 4, stateCount: 0 });

function opened(optimizer: object, manifest: { slots: string[]; layoutHash?: string }, strategy?: object): Promise<unknown> {
  const parsed = parseRunSpec(strategy ? { optimizer, strategy } : { optimizer });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const reader = {
    manifest: {
      runId: 'source',
      attempt: 1,
      round: 5,
      layoutHash: manifest.layoutHash ?? layoutHash(layout),
      optimizer: { name: 'rmsprop', slots: manifest.slots },
    },
  };
  const job = { runId: 'new', restore: { runId: 'source', attempt: 1, round: 5 }, spec: parsed.spec };
  return openCheckpoint({ open: () => Promise.resolve(reader) } as never, job as never, layout);
}

test('the checkpoint of another run is refused as it stands when its slots or variables do not fit, not called damaged', async () => {
  await expect(opened({ name: 'rmsprop' }, { slots: ['meanSquare'] })).resolves.toBeDefined();
  const refused = { code: 'CONFIG_CHANGED' };
  await expect(opened({ name: 'rmsprop', momentum: 0.9 }, { slots: ['meanSquare'] })).rejects.toMatchObject(refused);
  const local = (outerOptimizer: string) => ({ kind: 'local-update', outerOptimizer });
  await expect(opened({ name: 'rmsprop' }, { slots: ['velocity'] }, local('nesterov'))).resolves.toBeDefined();
  await expect(opened({ name: 'rmsprop' }, { slots: ['meanSquare'] }, local('nesterov'))).rejects.toMatchObject(refused);
  await expect(opened({ name: 'rmsprop' }, { slots: ['meanSquare'], layoutHash: 'other' })).rejects.toMatchObject(refused);
});
