import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { requested, type AskedOfRun } from './requests.js';

const specOf = (strategy: object, replicas: number) => {
  const parsed = parseRunSpec({ strategy, replicas });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
};
const run = {
  cancelRequestedAt: null,
  workersWanted: null,
  spec: specOf({ kind: 'multi-worker-mirrored', workers: 3 }, 4),
  totalRounds: 10,
  roundsPerEpoch: 5,
};
const ask = (status: 'RUNNING' | 'PAUSED', asked: AskedOfRun) => requested({ ...run, status }, asked, new Date(0));

it('the workers of a run that hold its shards stay as many as they are', () => {
  const local = { ...run, spec: specOf({ kind: 'local-update', workers: 3 }, 4), status: 'RUNNING' as const };
  expect(requested(local, { request: 'scale', workers: 2 }, new Date(0))).toMatchObject({
    why: expect.stringContaining('3 workers holds a part') as string,
  });
  expect(ask('RUNNING', { request: 'scale', workers: 2 })).toEqual({
    does: 'refuse',
    why: expect.stringContaining("Each of the run's 3 workers holds a part of its parameters"),
  });
  expect(ask('PAUSED', { request: 'resume', servers: 2 })).toMatchObject({ does: 'invalid', issue: { path: 'servers' } });
  expect(ask('PAUSED', { request: 'resume' })).toMatchObject({ does: 'begin', run: {} });
});

it.each(['mirrored', 'one-device'])('a run of %s stays on its one worker', (kind) => {
  const spec = specOf({ kind }, 1);
  const of = (status: 'RUNNING' | 'PAUSED', asked: AskedOfRun) => requested({ ...run, spec, status }, asked, new Date(0));
  expect(of('RUNNING', { request: 'scale', workers: 1 })).toEqual({ does: 'refuse', why: expect.stringContaining('on one worker') });
  expect(of('PAUSED', { request: 'resume', servers: 2 })).toMatchObject({
    does: 'invalid',
    issue: { path: 'servers', message: expect.stringContaining('its worker holds the parameters') },
  });
  expect(of('PAUSED', { request: 'resume' })).toMatchObject({ does: 'begin', run: {} });
});
