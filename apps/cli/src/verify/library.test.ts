/** The first steps of a training that TensorFlow recorded with Adam, in processes of the library. */
import path from 'node:path';
import { readRecording, type TrainingRecording } from '@paceline/models';
import { trainInProcesses, type LibraryStrategy } from '@paceline/strategies/recorded';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { programOf } from './library.js';
import { planTraining } from './training.js';

const STEPS = 4;
/** For whole trainings `paceline verify` has 2e-4; so few steps stay closer. */
const TOLERANCE = 1e-5;

/** `npm run soak` has all of them. */
const SOAK: readonly LibraryStrategy[] = [
  { kind: 'multi-worker-mirrored', communication: 'hierarchical', processes: 4 },
  { kind: 'parameter-server', processes: 4, servers: 2 },
  { kind: 'hybrid', processes: 2, servers: 2 },
];
const STRATEGIES: readonly LibraryStrategy[] = [
  { kind: 'multi-worker-mirrored', communication: 'ring', processes: 3 },
  { kind: 'hybrid', processes: 4, servers: 2, workersPerGroup: 2 },
  ...(process.env['PACELINE_SOAK'] === '1' ? SOAK : []),
];

// Processes inherit the flags of this one, which let tests run from the sources: they run what was built.
const { execArgv } = process;
beforeAll(() => void (process.execArgv = []));
afterAll(() => void (process.execArgv = execArgv));

const cases = STRATEGIES.map((strategy) => [[strategy.kind, strategy.communication].filter(Boolean).join(':'), strategy] as const);
it.each(cases)('%s follows Adam of TensorFlow, with the same bits in all processes', async (_, strategy) => {
  const recording = (await readRecording(
    path.join(import.meta.dirname, '../../../../libs/testkit/golden/mirrored-mlp-adam.json'),
  )) as TrainingRecording;
  const plan = await planTraining(recording, { servers: 1 });
  const program = { ...(await programOf(plan)), steps: STEPS };
  const results = await trainInProcesses(program, strategy, { signal: new AbortController().signal });
  expect(results).toHaveLength(strategy.kind === 'multi-worker-mirrored' ? strategy.processes : 1);
  const [first, ...others] = results;
  for (const other of others) expect(other).toEqual(first);
  expect(first!.losses).toHaveLength(STEPS);
  for (const [step, loss] of first!.losses.entries())
    expect(Math.abs(loss / recording.losses[step]! - 1), `step ${step}`).toBeLessThan(TOLERANCE);
});
