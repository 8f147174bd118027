/** Every row of the recording of Keras optimizers, through the store that servers have. */
import { readFileSync } from 'node:fs';
import { replayUpdates } from '@paceline/hosting';
import { optimizerOfKeras, type KerasOptimizer } from '@paceline/spec';
import { expect, it } from 'vitest';

const golden = JSON.parse(readFileSync(new URL('../golden/optimizers.json', import.meta.url), 'utf8')) as {
  initial: number[];
  gradients: number[][];
  cases: Record<string, KerasOptimizer & { trajectory: number[][] }>;
};

it.each(Object.entries(golden.cases))('%s, from the class and the config of Keras', (_, { trajectory, ...optimizer }) => {
  const mapped = optimizerOfKeras(optimizer);
  if (!mapped.ok) throw new Error(JSON.stringify(mapped.issues));
  const steps = [...replayUpdates({ ...golden, optimizer: mapped.optimizer, gradient: mapped.gradient })];
  expect(steps).toHaveLength(25);
  for (const [i, wanted] of trajectory.entries()) {
    const largest = Math.max(...wanted.map(Math.abs));
    for (const [k, value] of wanted.entries()) expect(Math.abs(steps[i]![k]! - value) / largest).toBeLessThan(1e-6);
  }
});
