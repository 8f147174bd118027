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
  { kind: 'multi-worker-mirrored', workers: 3, minWorkers: 3 },
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

it('what a run does by itself gives way to what a person has asked for, and the fewest workers are never more than it has', () => {
  const spec = specOf({ kind: 'multi-worker-mirrored', workers: 3, minWorkers: 2 }, 4);
  const why = 'only 2 are connected (minWorkers 2)';
  expect(scaled({ spec }, 2, why)).toEqual({
    does: 'set',
    run: { workersWanted: 2 },
    event: { type: 'scale.wanted', message: `2 workers instead of 3: ${why}`, data: { workers: 2 } },
  });
  expect(scaled({ spec, workersWanted: 4 }, 2, why)).toEqual({ does: 'nothing' });
  for (const [workersWanted, minWorkers] of [
    [1, 1],
    [2, 2],
    [4, 2],
  ] as const)
    expect(withOtherWorkers({ spec, workersWanted })!.strategy).toMatchObject({ workers: workersWanted, minWorkers });
});

it('any number after any other is a spec', () => {
  for (const minWorkers of [undefined, 1, 2, 3])
    for (const [a, b] of [1, 2, 3, 4].flatMap((a) => [1, 2, 3, 4].map((b) => [a, b] as const))) {
      const first = begunAttempt(
        { id: 'r', attempt: 1, spec: specOf({ kind: 'multi-worker-mirrored', workers: 3, minWorkers }, 4), workersWanted: a },
        { kind: 'beginning' },
        'goes on',
      );
      const spec = first.run.spec ?? specOf({ kind: 'multi-worker-mirrored', workers: 3, minWorkers }, 4);
      expect(parseRunSpec(spec).ok).toBe(true);
      expect(scaled({ spec }, b).does).toBe(a === b ? 'nothing' : 'set');
    }
  const elastic = specOf({ kind: 'multi-worker-mirrored', workers: 2, minWorkers: 1, maxWorkers: 4 }, 4);
  for (const workersWanted of [1, 3, 4]) {
    const { spec } = begunAttempt({ id: 'r', attempt: 1, spec: elastic, workersWanted }, { kind: 'beginning' }, 'goes on').run;
    expect(parseRunSpec(spec).ok).toBe(true);
    expect((spec as RunSpec).strategy).toMatchObject({ workers: workersWanted, minWorkers: 1, maxWorkers: 4 });
  }
});

it('a person who asks for a number ends what the run takes by itself; its own wishes can be called off', () => {
  const spec = specOf({ kind: 'multi-worker-mirrored', workers: 3, minWorkers: 2, maxWorkers: 4 }, 4);
  const ends = 'from now on the run takes no more by itself';
  for (const [workers, workersWanted, message] of [
    [2, 2, `2 workers instead of 3; ${ends}`],
    [3, null, `3 workers, as before; ${ends}`],
    [4, 4, `4 workers instead of 3; ${ends}`],
  ] as const) {
    const step = scaled({ spec, workersWanted: 4 }, workers) as { run: { spec: RunSpec; workersWanted: number | null }; event: object };
    expect(step).toMatchObject({ does: 'set', run: { workersWanted }, event: { message } });
    expect(step.run.spec.strategy).toEqual({ ...spec.strategy, maxWorkers: undefined });
    expect(parseRunSpec(step.run.spec).ok).toBe(true);
  }
  const own = scaled({ spec, workersWanted: 4 }, 3, 'the others are needed');
  expect(own).toMatchObject({
    does: 'set',
    run: { workersWanted: null },
    event: { message: '3 workers, as before: the others are needed' },
  });
  expect(scaled({ spec, workersWanted: 4 }, 4, 'again')).toEqual({ does: 'nothing' });
  // A person has ended it between the look and the lock.
  expect(scaled({}, 4, '1 more has nothing to do')).toEqual({ does: 'nothing' });
  // What it wanted when its attempt was lost is not kept.
  const begun = begunAttempt({ id: 'r', attempt: 1, spec, workersWanted: 4 }, { kind: 'beginning' }, 'goes on', true).run;
  expect([begun.workersWanted, begun.spec]).toEqual([null, undefined]);
});

it('a number that cannot be had stays wanted', () => {
  const begun = begunAttempt({ id: 'r', attempt: 1, spec: run.spec, workersWanted: 4 }, { kind: 'beginning' }, 'goes on', true).run;
  expect([begun.spec, 'workersWanted' in begun]).toEqual([undefined, false]);
});

it('servers are none of a run whose workers hold the shards', () => {
  expect(ask('PAUSED', { request: 'resume', servers: 2 })).toMatchObject({ does: 'invalid', issue: { path: 'servers' } });
  expect(ask('PAUSED', { request: 'resume' })).toMatchObject({ does: 'begin', run: {} });
});

it.each(['mirrored', 'one-device', 'tpu'])('a run of %s stays on its one worker', (kind) => {
  const spec = specOf({ kind }, 1);
  const of = (status: 'RUNNING' | 'PAUSED', asked: AskedOfRun) => requested({ ...run, spec, status }, asked, new Date(0));
  expect(of('RUNNING', { request: 'scale', workers: 1 })).toEqual({ does: 'refuse', why: expect.stringContaining('on one worker') });
  expect(of('PAUSED', { request: 'resume', servers: 2 })).toMatchObject({
    does: 'invalid',
    issue: { path: 'servers', message: expect.stringContaining('its worker holds the parameters') },
  });
  expect(of('PAUSED', { request: 'resume' })).toMatchObject({ does: 'begin', run: {} });
});
