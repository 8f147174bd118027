import { describe, expect, it } from 'vitest';
import { hasLiveAttempt, mayMove, RUN_STATUSES } from '../lifecycle/run-status.js';
import { resultKeptBy } from './kept-result.js';

const RESULT = { rounds: 940 };
const strategy = { kind: 'parameter-server' } as const;
const extended = { status: 'RUNNING', result: RESULT, spec: { seed: 3, strategy, length: { epochs: 5 } }, roundsPerEpoch: 235n } as const;

describe('an extension that ends without a result', () => {
  it('leaves the run SUCCEEDED, as long as it was when its result was stored', () => {
    expect(resultKeptBy(extended, { to: 'CANCELLED', reason: 'cancelled' })).toEqual({
      to: 'SUCCEEDED',
      reason: 'the extension was cancelled; the result of round 940 stands',
      cause: 'CANCELLED',
      set: {
        spec: { seed: 3, strategy, length: { epochs: 4 } },
        totalRounds: 940,
        bestRound: 940,
        restartsUsed: 0,
        cancelRequestedAt: null,
        pauseRequestedAt: null,
        nextAttemptAt: null,
      },
    });
    const inRounds = { ...extended, result: { rounds: 941 } };
    const failed = resultKeptBy(inRounds, { to: 'FAILED', reason: 'poison round', cause: 'POISON_ROUND', set: { restartsTotal: 3 } });
    expect(failed).toMatchObject({
      to: 'SUCCEEDED',
      reason: 'the extension failed (poison round); the result of round 941 stands',
      cause: 'POISON_ROUND',
      set: { restartsTotal: 3, totalRounds: 941, spec: { length: { rounds: 941 } } },
    });
  });

  it('changes nothing for a run without a result, one that is over, and moves that take none away', () => {
    expect(resultKeptBy({ ...extended, result: null }, { to: 'CANCELLED', reason: 'cancelled' })).toBeUndefined();
    expect(resultKeptBy({ ...extended, status: 'SUCCEEDED' }, { to: 'CANCELLED', reason: 'cancelled' })).toBeUndefined();
    for (const to of RUN_STATUSES)
      if (to !== 'CANCELLED' && to !== 'FAILED') expect(resultKeptBy(extended, { to, reason: '' }), to).toBeUndefined();
  });

  it('may go back from every status that an extension can be in', () => {
    for (const status of RUN_STATUSES)
      if (hasLiveAttempt(status) || status === 'PAUSED' || status === 'RECOVERING')
        expect([status, mayMove(status, 'SUCCEEDED')]).toEqual([status, true]);
  });
});
