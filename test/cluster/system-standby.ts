/**
 * The whole system, with a standby per shard: both primaries die in one run, and it is the same run with the same weights. On a stack with
 * three servers, of which two are left.
 */
import { type Stack } from '@paceline/testkit';
import { beforeAll, describe, expect, test } from 'vitest';
import { eventsOf, expectComplete, ofRounds, reference, runOf, untilRound, untilStatus } from './whole-runs.js';

/** The longest run of its stack. */
export const WITH_STANDBYS = {
  ...ofRounds(200),
  strategy: { kind: 'parameter-server', mode: 'sync', servers: 2, standby: 1 },
} as const;

export const standbys = (given: () => Stack): void => {
  describe('with a standby per shard', () => {
    let stack: Stack;
    beforeAll(async () => {
      stack = given();
      await reference(WITH_STANDBYS);
    });

    const primaryOf = async (id: string, index: number) =>
      (await runOf(stack, id)).servers.find((server) => server.index === index && server.role === 'PRIMARY')!;

    /** @returns how long after the kill a round was committed by the servers that are left, at most */
    async function kill(id: string, index: number): Promise<number> {
      const { serverId } = await primaryOf(id, index);
      const victim = stack.servers.find(({ ready }) => ready.id === serverId)!;
      const fromMs = Date.now();
      await stack.end(victim, 'SIGKILL');
      expect(victim.child.signalCode).toBe('SIGKILL');
      await stack.until('its standby to lead', 20_000, async () => {
        const { status, statusReason, servers, attempt } = await runOf(stack, id);
        const leads = servers.filter((server) => server.index === index);
        return (leads.length === 1 && leads[0]!.serverId !== serverId && leads[0]!.term > 1) || { status, statusReason, servers, attempt };
      });
      await stack.until('the takeover in the journal', 20_000, async () => {
        const events = await eventsOf(stack, id);
        return (
          events.some(({ type, data }) => type === 'standby.promoted' && (data as { server: number }).server === index) ||
          events.slice(-4).map(({ type, message }) => `${type}: ${message}`)
        );
      });
      const { progress } = await runOf(stack, id);
      await untilRound(stack, id, progress.round + 1, 20_000);
      return Date.now() - fromMs;
    }

    test('a run waits until there are servers for the standbys too; primaries 0 and 1 are SIGKILLed: no new attempt, the same weights', async () => {
      await stack.haveWorkers(2);
      const { id } = await stack.client.createRun(WITH_STANDBYS);
      await stack.until('the reason to say what is missing', 10_000, async () => {
        const { statusReason } = await runOf(stack, id);
        return statusReason?.includes('needs 4 server processes, 3 are free') || statusReason;
      });
      await stack.addServer();
      await untilStatus(stack, id, ['RUNNING'], 40_000);
      await stack.until('both standbys to follow', 20_000, async () => {
        const ready = (await eventsOf(stack, id)).filter(({ type }) => type === 'standby.ready');
        return ready.length === 2 || ready.length;
      });
      await untilRound(stack, id, 10, 60_000, 2);
      for (const index of [0, 1]) {
        const stoodStillMs = await kill(id, index);
        console.log(`primary ${index}: a round was committed again at most ${stoodStillMs} ms after the kill`);
      }
      // A coordinator that dies takes the metrics with it that nobody has stored; its ledger is derived again.
      const run = await expectComplete(stack, id, WITH_STANDBYS, { metricsHaveGaps: true });
      expect(run.servers.map(({ index, role, term }) => ({ index, role, term }))).toEqual([
        { index: 0, role: 'PRIMARY', term: 2 },
        { index: 1, role: 'PRIMARY', term: 3 },
      ]);
      expect(run.statusHistory.map(({ to }) => to)).toEqual(['PENDING', 'QUEUED', 'PROVISIONING', 'RUNNING', 'SUCCEEDED']);
    });
  });
};
