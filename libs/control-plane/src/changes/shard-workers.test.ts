import { parseRunSpec, type RunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { begunAttempt } from './attempts.js';
import { requested, type AskedOfRun, type AskedRun } from './requests.js';
import { withOtherWorkers } from './shard-workers.js';

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

const scaled = (given: Partial<AskedRun>, workers: number, why?: string) =>
  requested({ ...run, status: 'RUNNING', ...given }, { request: 'scale', workers, ...(why === undefined ? {} : { why }) }, new Date(0));

it('other workers, more or fewer, hold the shards of a run from its next attempt on', () => {
  const local = { spec: specOf({ kind: 'local-update', workers: 3 }, 4) };
  for (const step of [scaled({}, 2), scaled(local, 2), scaled({ status: 'PAUSED' }, 2)])
    expect(step).toEqual({
      does: 'set',
      run: { workersWanted: 2 },
      event: { type: 'scale.wanted', message: '2 workers instead of 3', data: { workers: 2 } },
    });
  expect(scaled({}, 3)).toEqual({ does: 'nothing' });
  expect(scaled({ workersWanted: 2 }, 2)).toEqual({ does: 'nothing' });
  // Taken back.
  expect(scaled({ workersWanted: 2 }, 3)).toMatchObject({ run: { workersWanted: null }, event: { message: '3 workers, as before' } });
  for (const workers of [0, 5, 1.5, Number.NaN]) expect(scaled({}, workers)).toMatchObject({ does: 'invalid', issue: { path: 'workers' } });
  const spec = specOf({ kind: 'multi-worker-mirrored', workers: 3, standby: 1 }, 4);
  expect(scaled({ spec }, 1)).toMatchObject({ issue: { message: expect.stringContaining('from 2 to 4') as string } });
});

it.each([
  { kind: 'multi-worker-mirrored', workers: 3, standby: 1, threads: 2, accumulate: 2 },
  { kind: 'multi-worker-mirrored', workers: 3, minWorkers: 2, maxWorkers: 4 },
  { kind: 'local-update', workers: 3, startWorkers: 3, standby: 1, localSteps: 5, syncSteps: 2, innerState: 'keep' },
  { kind: 'local-update', workers: 3, fragments: 2, outerOptimizer: 'nesterov', innerState: 'keep' },
  { kind: 'local-update', workers: 3, outerOptimizer: 'elastic', movingRate: 0.1 },
])('the spec of the next attempt is one: %j', (strategy) => {
  for (const workersWanted of [2, 4]) {
    const next = withOtherWorkers({ spec: specOf(strategy, 4), workersWanted })!;
    expect(parseRunSpec(next)).toMatchObject({ ok: true, spec: { strategy: { kind: strategy.kind, workers: workersWanted } } });
  }
});

it('the next attempt is cut into as many shards as workers were asked for', () => {
  const begun = (spec: RunSpec, workersWanted: number | null) =>
    begunAttempt({ id: 'r', attempt: 1, spec, workersWanted }, { kind: 'beginning' }, 'goes on').run;
  expect(begun(run.spec, 2)).toMatchObject({ spec: { strategy: { kind: 'multi-worker-mirrored', workers: 2 } }, workersWanted: null });
  expect(begun(run.spec, null)).not.toHaveProperty('spec');
  const byServers = begun(specOf({ kind: 'parameter-server', servers: 2 }, 4), 2);
  expect([byServers.spec, byServers.workersWanted]).toEqual([undefined, undefined]);
});

it('a run that changes its number by itself stays within its bounds, which a person moves', () => {
  const spec = specOf({ kind: 'multi-worker-mirrored', workers: 3, minWorkers: 2 }, 4);
  const byItself = scaled({ spec }, 2, 'only 2 are connected');
  expect(byItself).toEqual({
    does: 'set',
    run: { workersWanted: 2 },
    event: { type: 'scale.wanted', message: '2 workers instead of 3: only 2 are connected', data: { workers: 2 } },
  });
  // It may come back.
  expect(withOtherWorkers({ spec, workersWanted: 2 })!.strategy).toMatchObject({ workers: 2, minWorkers: 2, maxWorkers: 3 });
  const asked = scaled({ spec }, 1) as Extract<ReturnType<typeof scaled>, { does: 'set' }>;
  expect(asked.run).toMatchObject({ workersWanted: 1, spec: { strategy: { workers: 3, minWorkers: 1, maxWorkers: 1 } } });
  expect(withOtherWorkers({ spec: asked.run.spec, workersWanted: 1 })!.strategy).toMatchObject({
    workers: 1,
    minWorkers: 1,
    maxWorkers: 1,
  });
  const more = scaled({ spec }, 4) as typeof asked;
  expect(more.run).toMatchObject({ spec: { strategy: { minWorkers: 2, maxWorkers: 4 } } });
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
