import { afterEach, describe, expect, test } from 'vitest';
import { TOKEN_COORDINATOR_ROWS, TOKEN_MEMBER_ROWS, TOKEN_SHARD_ROWS, memoryPair } from '@paceline/exchange';
import { STALL_ROWS } from './round-cluster.js';
import { expectComplete, ledgerOf, sequentialWeights } from './token-checks.js';
import { TokenCluster, type TokenClusterOptions } from './token-cluster.js';

const base: TokenClusterOptions = { mode: 'async', replicas: 4, servers: 2, rounds: 8, examples: 37 };
const MODES = ['async', 'ssp'] as const;
/** Taken where there are standbys: simulator/token-takeovers.test.ts and the tests of shard and member in libs/exchange. */
const STANDBY_ROWS: readonly string[] = [
  ...['serverAway', 'serverTakenOver', 'standbyLink', 'succeeded', 'standing'].map((row) => `token-coordinator.${row}`),
  ...['replica', 'promoted', 'toldAgain'].map((row) => `token-shard.${row}`),
  ...['takenOver', 'staleTerm'].map((row) => `token-member.${row}`),
];

let current: TokenCluster[] = [];
function cluster(options: Partial<TokenClusterOptions> = {}): TokenCluster {
  const made = new TokenCluster({ ...base, ...options });
  current.push(made);
  return made;
}
afterEach(() => void (current = []));

for (const mode of MODES) {
  describe(`mode ${mode}`, () => {
    test('every token is applied once at every shard, whoever computes it', async () => {
      for (const servers of [1, 2, 3]) {
        for (const workers of [1, 2, 3, 5]) {
          const run = cluster({ mode, servers });
          for (let i = 0; i < workers; i++) run.join();
          await run.finished();
          expectComplete(run);
          expect(ledgerOf(run)).toHaveLength(run.options.rounds);
        }
      }
    });

    test('one worker computes from its own update also while a shard is late to learn that it is a member', async () => {
      const run = cluster({ mode, servers: 2 });
      run.shardDelayMs[1] = 200;
      run.join();
      await run.finished();
      expectComplete(run);
      expect(run.weights()).toEqual(sequentialWeights(run));
      expect(run.takenRows()).toContain('token-shard.gradientHeld');
    });

    test('fewer examples than replicas: tokens without rows are nobody’s work', async () => {
      const run = cluster({ mode, replicas: 5, lastExamples: 2 });
      run.join();
      run.join();
      await run.finished();
      expectComplete(run);
    });

    test('a worker killed at every token, before and after it pushes: its tokens are issued again', async () => {
      for (let at = 0; at < 6; at++) {
        for (const when of ['before', 'after'] as const) {
          const run = cluster({ mode });
          const victim = run.join();
          run.join();
          run.join();
          let begun = 0;
          victim.onGradient = () => {
            if (begun++ !== at) return true;
            if (when === 'before') victim.kill();
            else setImmediate(() => victim.kill());
            return when === 'after';
          };
          await run.finished();
          expect(begun).toBeGreaterThan(at);
          expectComplete(run);
        }
      }
    });

    test('a worker killed between two shards: the token is applied only where it is not yet', async () => {
      for (const [reached, missed] of [
        [0, 1],
        [1, 0],
      ] as const) {
        const run = cluster({ mode });
        const victim = run.join();
        const other = run.join();
        other.computeMs = 2;
        let lost: number | undefined;
        victim.onPush = (server, { round, nodeLo: replica }) => {
          if (round !== 3 || server !== missed) return 'send';
          lost ??= replica;
          return 'lose';
        };
        // This very token has to be at one shard: another of the round, from the other worker, may be there before.
        const isAtOneShard = () => run.applied.some((update) => update.server === reached && update.round === 3 && update.replica === lost);
        await run.until('the update at one shard', isAtOneShard);
        victim.kill();
        await run.finished();
        expectComplete(run);
        expect(run.events('token.reissued').some(({ appliedAt }) => (appliedAt as number[]).includes(reached))).toBe(true);
      }
    });

    test('gradients that come twice change nothing, and shards that hear of them in another order neither', async () => {
      const run = cluster({ mode, replicas: 3 });
      const [first, second] = [run.join(), run.join()];
      first.onPush = () => 'repeat';
      first.sendDelayMs = [0, 3];
      second.sendDelayMs = [2, 0];
      await run.finished();
      expectComplete(run);
      expect(run.drops.length).toBeGreaterThan(0);
    });

    test('a worker that joins late takes part', async () => {
      const run = cluster({ mode, rounds: 20 });
      run.join().computeMs = 1;
      await run.until('round 4', () => run.coordinator.round >= 4);
      const late = run.join();
      await run.finished();
      expectComplete(run);
      expect(late.computed.length).toBeGreaterThan(0);
    });

    test('a worker that asks to leave goes when it holds no token, and the run goes on', async () => {
      const run = cluster({ mode, rounds: 12 });
      const leaver = run.join();
      const other = run.join();
      other.computeMs = 1;
      await run.until('round 2', () => run.coordinator.round >= 2);
      leaver.machine.leave('the slice is over');
      await run.finished();
      expectComplete(run);
      expect(leaver.ended).toBe('finished');
      expect(run.events('token.reissued')).toEqual([]);
    });

    test('a silent worker is lost, its tokens are issued again, and its late push is refused', async () => {
      const run = cluster({ mode, stalenessBound: 1 });
      const silent = run.join();
      const other = run.join();
      silent.onGradient = ({ round }) => round < 2 || ((silent.frozen = true), false);
      await run.until('the silence', () => silent.frozen);
      await run.until('the others to come as far as they can', () => run.coordinator.round >= 2);
      run.advance(2_900);
      run.advance(200);
      await run.finished();
      expectComplete(run);
      expect(other.computed.length).toBeGreaterThan(0);
      expect(run.events('worker.lost')).toHaveLength(1);
    });

    test('five workers that die over one token make a poison round, named', async () => {
      const run = cluster({ mode, replicas: 1 });
      for (let i = 0; i < 5; i++) {
        const victim = run.join(`victim${i}`, 0);
        let died = false;
        victim.onGradient = () => {
          died = true;
          return false;
        };
        await run.until('the token', () => died);
        victim.kill();
        await run.until('the closed socket', () => run.events('worker.away').length > i);
        run.advance(3_100);
      }
      expect(run.outcome?.message).toContain('poison round: replica 0 of round 0');
      expect(run.events('run.failed')[0]).toMatchObject({ cause: 'POISON_ROUND' });
    });

    test('a gradient that is not finite: skip logs its rows as dropped, fail and rollback end the attempt with their cause', async () => {
      const skipping = cluster({ mode, nonFinite: 'skip' });
      const spoiled = skipping.join();
      skipping.join();
      spoiled.isNotFinite = ({ round, replica }) => round === 2 && replica === 0;
      skipping.members[1]!.isNotFinite = spoiled.isNotFinite;
      await skipping.finished();
      expectComplete(skipping, ['2/0']);
      expect(skipping.events('replica.dropped')).toMatchObject([{ round: 2, replica: 0, examples: skipping.examplesOf(2, 0) }]);
      for (const [nonFinite, cause] of [
        ['fail', 'NON_FINITE'],
        ['rollback', 'NON_FINITE_ROLLBACK'],
      ] as const) {
        const run = cluster({ mode, nonFinite });
        run.join().isNotFinite = ({ round }) => round === 2;
        await run.finished();
        expect(run.outcome?.outcome).toBe('failed');
        expect(run.events('run.failed')[0]).toMatchObject({ cause });
      }
    });

    test('cuts before rounds with fewer examples than replicas, and with servers that own nothing', async () => {
      const cuts = { everyRounds: 1, everyMs: 0, deadlineMs: 10_000, final: true };
      for (const servers of [2, 5]) {
        const run = cluster({ mode, replicas: 5, lastExamples: 2, servers, cuts });
        run.join();
        run.join();
        await run.finished();
        expect(run.outcome?.outcome).toBe('finished');
        if (servers === 2) expectComplete(run);
        expect(run.cuts.length).toBeGreaterThan(1);
      }
    });

    test('a checkpoint is cut between rounds, and a run that begins with it ends with the same bits', async () => {
      const cuts = { everyRounds: 3, everyMs: 0, deadlineMs: 10_000, final: true };
      const run = cluster({ mode, rounds: 10, cuts });
      run.join();
      await run.finished();
      expectComplete(run);
      expect(run.cuts.map(({ generation }) => generation).at(-1)).toBe(10);
      expect(run.cuts.length).toBeGreaterThan(2);
      expect(run.events('checkpoint.written').map(({ round }) => round)).toEqual(run.cuts.map(({ generation }) => generation));
      expect(run.cuts.at(-1)!.flat).toEqual(run.weights());
      for (const cut of run.cuts) {
        const again = cluster({ mode, rounds: 10, servers: 1, restore: cut });
        again.join();
        await again.finished();
        expect(again.outcome?.outcome).toBe('finished');
        expect(again.weights()).toEqual(run.weights());
        expect(again.coordinator.round).toBe(10);
      }
    });

    test('checkpoints while several workers train, one of them slow: nothing is counted twice or not at all', async () => {
      const run = cluster({ mode, rounds: 16, cuts: { everyRounds: 3, everyMs: 0, deadlineMs: 10_000, final: false } });
      run.join();
      run.join().computeMs = 4;
      run.join();
      await run.finished();
      expectComplete(run);
      expect(run.cuts.length).toBeGreaterThan(1);
      for (const { generation } of run.cuts) expect(generation).toBeGreaterThan(0);
    });

    test('a pause drains, cuts and ends the attempt; past its deadline it says what will be redone', async () => {
      const cuts = { everyRounds: 0, everyMs: 0, deadlineMs: 10_000, final: false };
      const run = cluster({ mode, rounds: 1_000, cuts });
      run.join();
      run.join();
      await run.until('round 3', () => run.coordinator.round >= 3);
      run.coordinator.pause();
      expect(run.coordinator.phase).toBe('pausing');
      await run.finished();
      expect(run.outcome?.outcome).toBe('paused');
      const [cut] = run.cuts;
      expect(run.events('run.paused')).toEqual([{ round: cut!.generation, redone: 0 }]);
      expect(cut!.flat).toEqual(run.weights());

      const stuck = cluster({ mode, rounds: 1_000, cuts });
      const hanging = stuck.join();
      hanging.onGradient = ({ round }) => round < 3;
      await stuck.until('a token that hangs', () => hanging.computed.some((key) => key.startsWith('3/')));
      stuck.coordinator.pause();
      stuck.advance(2_000);
      stuck.advance(2_600);
      expect(stuck.outcome?.outcome).toBe('paused');
      expect(stuck.events('run.paused')).toEqual([{ round: 0, redone: stuck.coordinator.round }]);
    });

    test('links that break at random, workers that die and come back: every token once, and no hang', async () => {
      for (let seed = 1; seed <= 12; seed++) {
        const run = cluster({ mode, rounds: 12, servers: 3, stalenessBound: seed % 3 });
        let state = seed * 2654435761;
        const random = (n: number): number => {
          state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
          return Math.floor((state / 2 ** 32) * n);
        };
        let breaks = 0;
        for (let i = 0; i < 3; i++) {
          const member = run.join();
          member.onGradient = () => {
            const what = random(6);
            if (what === 0 && breaks < 40) {
              breaks++;
              const server = random(3);
              member.connections[server]!.close();
              if (random(2) === 0) setImmediate(() => member.connect(server));
              else run.clock.later(random(4), () => member.connect(server));
            } else if (what === 1 && breaks < 40) {
              breaks++;
              for (const connection of member.connections) connection.close();
              run.clock.later(random(3), () => member.connectAll());
            }
            return true;
          };
        }
        await run.finished().catch((error: unknown) => {
          throw new Error(`seed ${seed}: ${(error as Error).message}`);
        });
        expect(breaks).toBeGreaterThan(0);
        expectComplete(run);
      }
    });

    test('no memory is held when a run is over', async () => {
      const run = cluster({ mode, delayCompensation: 0.1 });
      run.join();
      run.join();
      const victim = run.join();
      victim.onGradient = ({ round }) => round < 2 || (victim.kill(), false);
      await run.finished();
      await run.clock.pass(20);
      for (const shard of run.shards) shard.end();
      await run.clock.pass(20);
      expect(run.arena.bytesInUse).toBe(0);
      expect(run.gradientsReleased).toBe(run.gradientsMade);
    });
  });
}

test('one worker ten times slower: ssp blocks at the bound and says for whom, async does not', async () => {
  for (const stalenessBound of [0, 1, 3]) {
    const run = cluster({ mode: 'ssp', replicas: 2, rounds: 10, stalenessBound });
    const fast = run.join();
    fast.computeMs = 10;
    run.join().computeMs = 100;
    await run.finished();
    expectComplete(run);
    expect(Math.max(...run.aheads)).toBe(stalenessBound);
    expect(fast.waits.some((wait) => wait.startsWith('replica 1 to catch up: replica 0 is'))).toBe(true);
  }
  const free = cluster({ mode: 'async', replicas: 2, rounds: 12 });
  const fast = free.join();
  fast.computeMs = 10;
  const slow = free.join();
  slow.computeMs = 100;
  await free.finished();
  expectComplete(free);
  expect(fast.computed.length).toBeGreaterThan(slow.computed.length);
  expect(fast.waits.every((wait) => wait.startsWith('the last tokens of others'))).toBe(true);
});

test('ssp: clocks belong to replicas and move with them when their worker dies', async () => {
  const run = cluster({ mode: 'ssp', replicas: 4, rounds: 12, stalenessBound: 2 });
  const slow = run.join();
  slow.computeMs = 20;
  run.join();
  await run.until('the bound', () => run.members[1]!.waits.some((wait) => wait.includes('to catch up')));
  slow.kill();
  await run.finished();
  expectComplete(run);
  expect(Math.max(...run.aheads)).toBeLessThanOrEqual(2);
});

test('metrics: a row for every R updates, with the staleness of each of them', async () => {
  const run = cluster({ rounds: 12 });
  for (let i = 0; i < 3; i++) run.join();
  await run.finished();
  const rows = run.entries().filter((entry) => entry.kind === 'metric');
  expect(rows.map(({ round, rounds }) => [round, rounds])).toEqual(Array.from({ length: 12 }, (_, round) => [round, 1]));
  const total: number[] = [];
  for (const { stalenessCounts, staleness } of rows) {
    expect(stalenessCounts!.reduce((a, b) => a + b, 0)).toBe(4);
    expect(staleness).toBeCloseTo(stalenessCounts!.reduce((sum, count, i) => sum + count * i, 0) / 4, 9);
    stalenessCounts!.forEach((count, i) => (total[i] = (total[i] ?? 0) + count));
  }
  // The staleness of a token is that of its slowest shard.
  const wanted: number[] = [];
  for (let t = 0; t < 48; t++) {
    const most = Math.max(...run.applied.filter((u) => u.round * 4 + u.replica === t).map(({ staleness }) => staleness));
    wanted[most] = (wanted[most] ?? 0) + 1;
  }
  expect(total.map((n) => n)).toEqual(Array.from({ length: wanted.length }, (_, i) => wanted[i] ?? 0));
  expect(
    total.slice(1).some((n) => n > 0),
    'nothing was stale: the test shows nothing',
  ).toBe(true);
});

test('a seat that is held is refused to another; a cancelled run ends; a lost server ends the attempt with its cause', async () => {
  const run = cluster({ rounds: 1_000 });
  run.join('first', 0);
  run.join('second', 0);
  await run.until('round 2', () => run.coordinator.round >= 2);
  expect(run.refusals).toContain('SEAT_TAKEN');
  run.coordinator.cancel();
  expect(run.outcome?.outcome).toBe('cancelled');
  const lost = cluster({ rounds: 1_000 });
  lost.join();
  await lost.until('round 2', () => lost.coordinator.round >= 2);
  lost.coordinator.serverLost(1, 'its socket closed');
  expect(lost.events('run.failed')[0]).toMatchObject({ cause: 'SERVER_LOST', server: 1 });
});

test('what was said of a token that is counted changes nothing when it is said again', async () => {
  const run = cluster({ nonFinite: 'skip', rounds: 6 });
  const [first, second] = [run.join(), run.join()];
  first.isNotFinite = second.isNotFinite = ({ round, replica }) => round === 1 && replica === 1;
  await run.until('round 2', () => run.coordinator.marks.rounds >= 2);
  const examples = run.examplesOf(0, 0);
  run.coordinator.memberMessage(first.id, { type: 'contribution', round: 0, replica: 0, examples, sums: [1, 1] });
  run.coordinator.memberMessage(first.id, { type: 'token-non-finite', round: 1, replica: 1 });
  run.shards[0]!.onDrop(1, 1);
  await run.finished();
  expectComplete(run, ['1/1']);
  expect(run.events('replica.dropped')).toHaveLength(1);
});

test('the coordinator collects the weights of the last round, chunk by chunk', async () => {
  const run = cluster({ servers: 1, rounds: 3 });
  run.join();
  await run.until('the last token', () => run.coordinator.marks.isComplete);
  const [near, far] = memoryPair();
  const shard = run.shards[0]!;
  const link = shard.attach('collector', far, false);
  const got = new Map<number, Uint8Array>();
  near.setReceiver({
    payloadFor: ({ length }) => new Uint8Array(length),
    data: ({ chunk, round }, payload) => void (round === 3 && got.set(chunk, payload)),
    message: () => undefined,
    closed: () => undefined,
  });
  shard.onPull(link, 2, 0); // not what it has
  for (const { index } of run.layout.chunks) shard.onPull(link, 3, index);
  await run.until('the chunks', () => got.size === run.layout.chunks.length);
  const flat = run.weights();
  for (const { index, offset, length } of run.layout.chunks)
    expect(new Float32Array(got.get(index)!.slice().buffer)).toEqual(flat.subarray(offset, offset + length));
});

test('every row of the tables was taken by a test', () => {
  const taken = new Set(TokenCluster.all.flatMap((made) => made.takenRows()));
  const rows = (name: string, table: object) => Object.keys(table).map((row) => `${name}.${row}`);
  const all = [
    ...rows('token-coordinator', TOKEN_COORDINATOR_ROWS),
    ...rows('token-shard', TOKEN_SHARD_ROWS),
    ...rows('token-member', TOKEN_MEMBER_ROWS),
  ];
  expect(all.filter((row) => !taken.has(row) && !STALL_ROWS.includes(row) && !STANDBY_ROWS.includes(row))).toEqual([]);
});
