/**
 * What people ask of a run with real processes: pause and resume, other numbers of servers and workers. The weights do not depend on it.
 * On a stack with two servers and two workers, which stays as it was.
 */
import type { RunSpecInput } from '@paceline/spec';
import { pace, type Pace, type Stack } from '@paceline/testkit';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { expectComplete, idle, ofRounds, reference, runOf, untilRound, untilStatus } from './whole-runs.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

/** The first round waits for both workers: one that is slow to start finds the run as it was. */
const LONG: RunSpecInput = { ...ofRounds(120), strategy: { kind: 'parameter-server', startWorkers: 2 } };
const SHARE = 0.2;

export const requests = (given: () => Stack): void => {
  describe('what people ask of a run', () => {
    let stack: Stack;
    let slow: Pace | undefined;
    beforeAll(async () => {
      stack = given();
      await reference(LONG);
    });
    afterEach(() => slow?.end());

    /** Slows the workers down, so that a run of 120 rounds is still under way when both have joined and it is asked for something. */
    const slowDown = (): Pace => (slow = pace(() => stack.workers.map(({ child }) => child.pid!), SHARE));

    test.runIf(IS_SOAK)(
      'pause, and resume on two servers instead of one: PAUSED within 10 s with a checkpoint, an idle fleet, the same weights',
      async () => {
        slowDown();
        const { id } = await stack.client.createRun(LONG);
        await untilRound(stack, id, 10, 60_000, 2);
        await stack.client.pauseRun(id);
        const paused = await untilStatus(stack, id, ['PAUSED'], 12_000);
        slow!.end();
        const [newest] = await stack.client.checkpoints(id);
        expect(newest).toMatchObject({ attempt: 1, round: paused.progress.round, reason: 'pause', state: 'USABLE' });
        expect(paused.ledger.committedRounds, 'nothing is committed beyond the cut').toBe(newest!.round);
        await stack.until('an idle fleet', 20_000, () => idle(stack));
        await stack.client.resumeRun(id, { servers: 2 });
        const run = await expectComplete(stack, id, LONG, { attempts: 2 });
        expect(run.attempts[0]).toMatchObject({ number: 2, fromRound: newest!.round, parentNumber: 1 });
        expect(run.restartsLeft, 'a pause is no failure').toBe(run.spec.restarts);
      },
    );

    test.runIf(IS_SOAK)('fewer workers, then more: the surplus one leaves and comes back, the same weights', async () => {
      slowDown();
      const { id } = await stack.client.createRun(LONG);
      await untilRound(stack, id, 5, 60_000, 2);
      await stack.client.scaleRun(id, 1);
      await stack.until(
        'one worker',
        20_000,
        async () => (await runOf(stack, id)).progress.workers === 1 || (await runOf(stack, id)).progress,
      );
      const { stepTasks } = await runOf(stack, id);
      const seated = stack.workers.filter(({ ready }) =>
        stepTasks.some(({ state, worker }) => state === 'HELD' && worker?.id === ready.id),
      );
      // The one that comes back loads at its own speed; the run must not end before.
      slow!.end();
      slow = pace(() => seated.map(({ child }) => child.pid!), SHARE / 2);
      await stack.client.scaleRun(id, 2);
      await stack.until(
        'two workers',
        30_000,
        async () => (await runOf(stack, id)).progress.workers === 2 || (await runOf(stack, id)).progress,
      );
      slow!.end();
      await expectComplete(stack, id, LONG);
    });
  });
};
