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

it.each(['mirrored', 'one-device'])('a run of %s stays on its one worker', (kind) => {
  const alone = parseRunSpec({ strategy: { kind }, replicas: 1 });
  if (!alone.ok) throw new Error(JSON.stringify(alone.issues));
  const of = (status: 'RUNNING' | 'PAUSED', asked: AskedOfRun) => requested({ ...run, spec: alone.spec, status }, asked, new Date(0));
  expect(of('RUNNING', { request: 'scale', workers: 1 })).toEqual({ does: 'refuse', why: expect.stringContaining('on one worker') });
  expect(of('PAUSED', { request: 'resume', servers: 2 })).toMatchObject({
    does: 'invalid',
    issue: { path: 'servers', message: expect.stringContaining('its worker holds the parameters') },
  });
  expect(of('PAUSED', { request: 'resume' })).toMatchObject({ does: 'begin', run: {} });
});
