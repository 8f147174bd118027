import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { begunAttempt } from './attempts.js';
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

it('other workers, more or fewer, hold the shards of a run from its next attempt on', () => {
  const local = { ...run, spec: specOf({ kind: 'local-update', workers: 3 }, 4), status: 'RUNNING' as const };
  for (const step of [ask('RUNNING', { request: 'scale', workers: 2 }), requested(local, { request: 'scale', workers: 2 }, new Date(0))])
    expect(step).toEqual({
      does: 'set',
      run: { workersWanted: 2, pauseRequestedAt: new Date(0) },
      event: { type: 'scale.wanted', message: '2 workers instead of 3, from a checkpoint, in a new attempt', data: { workers: 2 } },
    });
  expect(ask('PAUSED', { request: 'scale', workers: 4 })).toMatchObject({
    run: { workersWanted: 4 },
    event: { message: '4 workers instead of 3, in the next attempt' },
  });
  expect(ask('PAUSED', { request: 'scale', workers: 4 })).not.toMatchObject({ run: { pauseRequestedAt: new Date(0) } });
  expect(ask('RUNNING', { request: 'scale', workers: 3 })).toEqual({ does: 'nothing' });
  const asked = { ...run, status: 'RUNNING' as const, workersWanted: 2 };
  expect(requested(asked, { request: 'scale', workers: 2 }, new Date(0))).toEqual({ does: 'nothing' });
  expect(requested(asked, { request: 'scale', workers: 3 }, new Date(0))).toMatchObject({ run: { workersWanted: 3 } });
  for (const workers of [0, 5, 1.5, Number.NaN])
    expect(ask('RUNNING', { request: 'scale', workers })).toMatchObject({ does: 'invalid', issue: { path: 'workers' } });
  const spec = specOf({ kind: 'multi-worker-mirrored', workers: 3, standby: 1 }, 4);
  expect(requested({ ...run, spec, status: 'RUNNING' }, { request: 'scale', workers: 1 }, new Date(0))).toMatchObject({
    issue: { message: expect.stringContaining('from 2 to 4') as string },
  });
});

it('the next attempt is cut into as many shards as workers were asked for', () => {
  const from = { kind: 'beginning' } as const;
  const begun = begunAttempt({ id: 'r', attempt: 1, spec: run.spec, workersWanted: 2 }, from, 'goes on');
  expect(begun.run).toMatchObject({ spec: { strategy: { kind: 'multi-worker-mirrored', workers: 2 } }, workersWanted: null });
  const byServers = specOf({ kind: 'parameter-server', servers: 2 }, 4);
  expect(begunAttempt({ id: 'r', attempt: 1, spec: byServers, workersWanted: 2 }, from, 'goes on').run).not.toHaveProperty('spec');
  // It was asked for when servers held the shards, before strategy auto has picked workers.
  const spec = specOf({ kind: 'multi-worker-mirrored', workers: 3, standby: 1 }, 4);
  expect(begunAttempt({ id: 'r', attempt: 1, spec, workersWanted: 1 }, from, 'goes on').run).not.toHaveProperty('spec');
});

it('servers are none of a run whose workers hold the shards', () => {
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
