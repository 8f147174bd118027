import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { requested, type AskedOfRun } from './requests.js';

const parsed = parseRunSpec({ strategy: { kind: 'multi-worker-mirrored', workers: 3 } });
if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
const run = { cancelRequestedAt: null, workersWanted: null, spec: parsed.spec, totalRounds: 10, roundsPerEpoch: 5 };
const ask = (status: 'RUNNING' | 'PAUSED', asked: AskedOfRun) => requested({ ...run, status }, asked, new Date(0));

it('the workers of a run that hold its shards stay as many as they are', () => {
  expect(ask('RUNNING', { request: 'scale', workers: 2 })).toEqual({
    does: 'refuse',
    why: expect.stringContaining("Each of the run's 3 workers holds a part of its parameters"),
  });
  expect(ask('PAUSED', { request: 'resume', servers: 2 })).toMatchObject({ does: 'invalid', issue: { path: 'servers' } });
  expect(ask('PAUSED', { request: 'resume' })).toMatchObject({ does: 'begin', run: {} });
});
