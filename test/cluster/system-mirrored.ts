/**
 * The whole system, with runs whose workers hold the parameters: no parameter server takes part, and what comes out is what servers and the reference
 * give. On a stack with two workers.
 */
import { readFileSync } from 'node:fs';
import type { RunSpecInput } from '@paceline/spec';
import { pace, type Stack } from '@paceline/testkit';
import { beforeAll, describe, expect, test } from 'vitest';
import { eventsOf, expectComplete, ofRounds, reference, runOf, typesOf, untilRound } from './whole-runs.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

const ROUNDS = 40;
const BY_SERVERS = ofRounds(ROUNDS);
const byWorkers = (standby = 0): RunSpecInput => ({ ...BY_SERVERS, strategy: { kind: 'multi-worker-mirrored', workers: 2, standby } });
/** Parameters of the model mlp as float32. */
const VECTOR_BYTES = 235_146 * 4;

export const mirrored = (given: () => Stack): void => {
  describe('with shards on the workers', () => {
    let stack: Stack;
    beforeAll(async () => {
      stack = given();
      await reference(BY_SERVERS);
    });

    /** What the processes have told of a run, summed: bytes between processes. */
    function bytesOf(id: string): { processes: number; sent: number; received: number } {
      const lines = stack.workers.flatMap(({ logFile }) =>
        readFileSync(logFile, 'utf8')
          .split('\n')
          .filter((line) => line.includes('sentBytes')),
      );
      const told = lines
        .map((line) => JSON.parse(line) as { run: string; sentBytes: number; receivedBytes: number })
        .filter(({ run }) => run === id);
      const sum = (of: (line: (typeof told)[number]) => number): number => told.reduce((total, line) => total + of(line), 0);
      return { processes: told.length, sent: sum(({ sentBytes }) => sentBytes), received: sum(({ receivedBytes }) => receivedBytes) };
    }

    async function killHolderOf(id: string, index: number): Promise<void> {
      const { servers } = await runOf(stack, id);
      const { serverId } = servers.find((server) => server.index === index && server.role === 'PRIMARY')!;
      await stack.end(
        stack.workers.find(({ ready }) => ready.id === serverId)!,
        'SIGKILL',
      );
    }

    /** So slowly that the run is not over before. */
    async function killAfter(id: string, shard: number, round: number): Promise<void> {
      const slow = pace(() => stack.workers.map(({ child }) => child.pid!), 0.1);
      try {
        await untilRound(stack, id, round, 60_000, 2);
        await killHolderOf(id, shard);
      } finally {
        slow.end();
      }
    }

    test('two workers reach the weights that servers give, with 2 (n - 1) / n of a vector each way per worker and round', async () => {
      await stack.haveWorkers(2);
      const { id } = await stack.client.createRun(byWorkers());
      await untilRound(stack, id, 2, 60_000, 2);
      const { servers, stepTasks } = await runOf(stack, id);
      // Seat i belongs to the worker with shard i.
      expect(servers.map(({ serverId }) => serverId).sort()).toEqual(stack.workers.map(({ ready }) => ready.id).sort());
      for (const { seat, worker } of stepTasks.filter(({ state }) => state === 'HELD'))
        expect(worker?.id).toBe(servers.find(({ index }) => index === seat)?.serverId);
      await expectComplete(stack, id, BY_SERVERS);
      await stack.until('what each worker has sent', 5_000, () => Promise.resolve(bytesOf(id).processes === 2));
      // Two workers, one vector each; the first generation and the last weights travel too, and control messages.
      const { sent, received } = bytesOf(id);
      for (const bytes of [sent, received]) {
        expect(bytes / (ROUNDS * VECTOR_BYTES)).toBeGreaterThan(2);
        expect(bytes / ((ROUNDS + 2) * VECTOR_BYTES)).toBeLessThan(2.1);
      }
    });

    test.runIf(IS_SOAK)(
      'with maxWorkers a run that trains takes the worker that nobody needs, by itself',
      { timeout: 300_000 },
      async () => {
        await stack.haveWorkers(2);
        const strategy = { kind: 'multi-worker-mirrored', workers: 1, minWorkers: 1, maxWorkers: 2 } as const;
        const { id } = await stack.client.createRun({ ...ofRounds(1_000_000), strategy });
        await untilRound(stack, id, 20, 60_000, 1);
        await stack.until('an attempt with two workers', 150_000, async () => {
          const { attempt, spec, progress } = await runOf(stack, id);
          return (attempt === 2 && progress.workers === 2) || { attempt, spec, workers: progress.workers };
        });
        const events = await eventsOf(stack, id);
        expect(events.filter(({ type }) => type === 'scale.wanted').map(({ message }) => message)).toEqual([
          '2 workers instead of 1: 1 more has nothing to do (maxWorkers 2)',
        ]);
        expect(events.find(({ type }) => type === 'run.paused')?.data).toMatchObject({ redone: 0 });
        expect((await runOf(stack, id)).spec).toMatchObject({ strategy: { workers: 2, minWorkers: 1, maxWorkers: 2 } });
        await stack.client.cancelRun(id);
        await stack.until('the end', 30_000, async () => (await runOf(stack, id)).status === 'CANCELLED');
      },
    );

    test.runIf(IS_SOAK)('one worker holds the parameters from a checkpoint on, where two did', async () => {
      await stack.haveWorkers(2);
      const { id } = await stack.client.createRun(byWorkers());
      await untilRound(stack, id, 2, 60_000, 2);
      const { pid } = stack.workers[1]!.child;
      // The run must not be over before it is asked. For one who is stopped for longer than 3 s the others do not wait: the next attempt has one worker all the same.
      process.kill(pid!, 'SIGSTOP');
      try {
        expect(await stack.client.scaleRun(id, 1)).toMatchObject({ workersWanted: 1, spec: { strategy: { workers: 2 } } });
        await stack.until('the coordinator to be asked for a checkpoint', 20_000, async () => {
          const { statusReason, attempt } = await runOf(stack, id);
          return attempt === 2 || statusReason?.includes('goes on with 1 worker') || { statusReason };
        });
      } finally {
        process.kill(pid!, 'SIGCONT');
      }
      const run = await expectComplete(stack, id, BY_SERVERS, { attempts: 2 });
      expect(run).toMatchObject({ workersWanted: 1, spec: { strategy: { workers: 1 } } });
      expect(run.servers.map(({ index }) => index)).toEqual([0]);
      expect(typesOf(await eventsOf(stack, id))).toContain('scale.wanted');
    });

    test.runIf(IS_SOAK)(
      'two workers with two threads each, and rounds of local steps: the weights that servers give, and no server takes part',
      async () => {
        await stack.haveWorkers(2);
        const threaded = await stack.client.createRun({
          ...BY_SERVERS,
          strategy: { kind: 'multi-worker-mirrored', workers: 2, threads: 2 },
        });
        await expectComplete(stack, threaded.id, BY_SERVERS);
        await stack.until('what each worker has sent', 5_000, () => Promise.resolve(bytesOf(threaded.id).processes === 2));
        expect(bytesOf(threaded.id).sent / ((ROUNDS + 2) * VECTOR_BYTES)).toBeLessThan(2.1);
        const local: RunSpecInput = {
          ...ofRounds(6),
          globalBatch: 128,
          strategy: { kind: 'local-update', localSteps: 4, outerOptimizer: 'nesterov', workers: 2 },
        };
        const { id } = await stack.client.createRun(local);
        const { servers } = await expectComplete(stack, id, local);
        expect(servers.map(({ serverId }) => serverId).sort()).toEqual(stack.workers.map(({ ready }) => ready.id).sort());
      },
    );

    // The worker with the coordinator, and the other; as soon as a round is done, early, and late.
    const moments = [0, 1].flatMap((shard) => [1, 8, 20].map((round) => ({ shard, round })));

    test.runIf(IS_SOAK).each(moments)(
      'with standbys the other worker ends the run when that with shard $shard is SIGKILLed after round $round',
      async ({ shard, round }) => {
        await stack.haveWorkers(2);
        const { id } = await stack.client.createRun(byWorkers(1));
        await killAfter(id, shard, round);
        const { servers } = await expectComplete(stack, id, BY_SERVERS, { metricsHaveGaps: true });
        expect(new Set(servers.filter(({ role }) => role === 'PRIMARY').map(({ serverId }) => serverId)).size).toBe(1);
        expect(typesOf(await eventsOf(stack, id))).toContain('standby.promoted');
      },
    );

    test.runIf(IS_SOAK).each(moments)(
      'the worker with shard $shard is SIGKILLed after round $round: the next attempt goes on with another worker, to the same weights',
      async ({ shard, round }) => {
        await stack.haveWorkers(2);
        const { id } = await stack.client.createRun({ ...byWorkers(), checkpoint: { everyRounds: 5 } });
        await killAfter(id, shard, round);
        await stack.until('the reason why it waits', 20_000, async () => {
          const { statusReason } = await runOf(stack, id);
          return statusReason?.startsWith('waits for 2 workers that hold the parameters: only one is connected') || { statusReason };
        });
        await stack.addWorker();
        await expectComplete(stack, id, BY_SERVERS, { attempts: 2 });
      },
    );
  });
};
