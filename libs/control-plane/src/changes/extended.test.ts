/** What a run that is over by itself can be asked, and what of it stays. */
import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { resultKeptBy } from '../dispatch/kept-result.js';
import type { StoredAttempt } from '../dispatch/rows.js';
import { endedAttempt, type CountedRun } from './attempts.js';
import { requested, type AskedRun } from './requests.js';

const parsed = parseRunSpec({ length: { rounds: 100 } });
if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
const { spec } = parsed;
const run: CountedRun = {
  id: '0190a4de-0000-7000-8000-000000000000',
  status: 'RUNNING',
  statusReason: null,
  isWaiting: false,
  attempt: 1,
  spec,
  cancelRequestedAt: new Date(1),
  pauseRequestedAt: null,
  nextAttemptAt: null,
  workersWanted: null,
  coordinator: null,
  coordinatorAt: null,
  restartsUsed: 0,
  restartsTotal: 0,
  bestRound: 0,
};
const attempt: StoredAttempt = {
  number: 1,
  parentRunId: null,
  parentNumber: null,
  parentRound: null,
  startedAt: new Date(0),
  storedSequence: 0,
  coordinatorTerm: 1,
  seatFailures: 0,
  lastFailureAt: null,
};
const asked = (given: Partial<AskedRun>): AskedRun => ({
  status: 'SUCCEEDED',
  cancelRequestedAt: null,
  workersWanted: null,
  spec,
  totalRounds: 100,
  roundsPerEpoch: 10,
  ...given,
});

it('a cancel that comes after the end is over with the run, so that it can be extended', () => {
  const { moves } = endedAttempt(run, attempt, { kind: 'finished', message: 'trained' }, new Date(2), () => 0);
  expect(moves).toMatchObject([{ to: 'SUCCEEDED', set: { cancelRequestedAt: null } }]);
  const failed = endedAttempt(
    { ...run, cancelRequestedAt: null },
    attempt,
    { kind: 'failed', cause: 'SERVER_LOST', message: 'lost' },
    new Date(2),
    () => 0,
  );
  expect(failed.moves[0]!.set).not.toHaveProperty('cancelRequestedAt');
});

it('a run that stopped early is extended from where it stopped, and is as long as then when the extension is cancelled', () => {
  const stopped = asked({ result: { rounds: 40 } });
  const longer = requested(stopped, { request: 'extend', rounds: 10 }, new Date(0));
  expect(longer).toMatchObject({ does: 'begin', run: { totalRounds: 50, spec: { length: { rounds: 50 } } } });
  const kept = resultKeptBy(
    { status: 'RUNNING', result: { rounds: 40 }, spec, roundsPerEpoch: 10 },
    { to: 'CANCELLED', reason: 'cancelled' },
  );
  expect(kept).toMatchObject({ to: 'SUCCEEDED', set: { totalRounds: 40 } });
  expect(requested(asked({ result: { rounds: 100 } }), { request: 'extend', rounds: 10 }, new Date(0))).toMatchObject({
    run: { totalRounds: 110 },
  });
  // One that is paused has not ended early.
  expect(requested(asked({ status: 'PAUSED', result: { rounds: 40 } }), { request: 'extend', rounds: 10 }, new Date(0))).not.toMatchObject({
    run: { totalRounds: 50 },
  });
});

it('epochs stay epochs where the last one is whole', () => {
  const inEpochs = { ...spec, length: { epochs: 10 } };
  const extended = (result: unknown) => requested(asked({ spec: inEpochs, result }), { request: 'extend', epochs: 2 }, new Date(0));
  expect(extended({ rounds: 100 })).toMatchObject({ run: { totalRounds: 120, spec: { length: { epochs: 12 } } } });
  expect(extended({ rounds: 43 })).toMatchObject({ run: { totalRounds: 63, spec: { length: { rounds: 63 } } } });
});
