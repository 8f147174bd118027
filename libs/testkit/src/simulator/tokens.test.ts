/** Seeds of modes async and ssp, and fault row 13: a worker ten times slower blocks ssp at the bound, and async not at all. */
import { TokenCoordinator } from '@paceline/exchange';
import { expect, test } from 'vitest';
import { injectFault } from './faults.js';
import type { Cluster } from './cluster.js';
import { simulateSeed, type SeedOptions } from './simulate.js';
import { addSeed, emptyTally, neverTaken } from './tally.js';

/** With the faults that are asked for by name these take every row. */
const SMOKE_SEEDS = 25;

test('seeds of modes async and ssp break no invariant, end, and take every row of the token tables', { timeout: 120_000 }, async () => {
  const tally = emptyTally();
  for (let seed = 1; seed <= SMOKE_SEEDS; seed++)
    for (const mode of ['async', 'ssp'] as const) addSeed(tally, await simulateSeed({ seed, mode }));
  const named = [
    ['cancel'],
    ['eat frames'],
    ['stop a worker', 'partition'],
    ['step task delivered twice', 'add a worker', 'kill a worker'],
  ] as const;
  for (const kinds of named)
    for (let seed = 1; seed <= 5; seed++)
      addSeed(tally, await simulateSeed({ seed, mode: 'async', check: 'liveness', kinds, stepMs: seed % 2 === 0 ? [5, 40] : [50, 400] }));
  expect(tally.failed.map(({ seed, mode, violation }) => `${seed} ${mode}: ${violation.invariant}: ${violation.message}`)).toEqual([]);
  expect(neverTaken(tally)).toEqual([]);
});

test('a seed of these modes replays exactly', async () => {
  for (const mode of ['async', 'ssp'] as const) {
    const [first, second] = [await simulateSeed({ seed: 21, mode }), await simulateSeed({ seed: 21, mode })];
    expect(first.events).toBeGreaterThan(100);
    expect([second.traceHash, second.events, second.virtualMs]).toEqual([first.traceHash, first.events, first.virtualMs]);
  }
});

/** Four replicas on four workers, one of which becomes ten times slower; how far ahead of the slowest clock anybody began, and what ssp said. */
async function withSlowWorker(mode: 'async' | 'ssp'): Promise<{ ahead: number; waits: string[]; outcome: string; fired: number }> {
  const shape = { servers: 2, replicas: 4, examples: 64, globalBatch: 8, rounds: 24, evalExamples: 0, cutEveryRounds: 0 };
  const tokens = { stalenessBound: 2, nanShare: 0 };
  let ahead = 0;
  const waits: string[] = [];
  const arrange = (cluster: Cluster): void => {
    const before = cluster.world.afterEvent;
    let hasFired = false;
    cluster.world.afterEvent = () => {
      before();
      const coordinator = cluster.control.coordinatorPart?.coordinator;
      if (!(coordinator instanceof TokenCoordinator)) return;
      if (!hasFired && coordinator.marks.count >= 4 && coordinator.seats().length === 4) hasFired = injectFault(cluster, 'slow a worker');
      for (const { session } of cluster.liveWorkers()) {
        const member = session?.member;
        if (member?.table.state === 'COMPUTING') ahead = Math.max(ahead, member.round - coordinator.marks.rounds);
        const reason = member?.waitingFor() ?? '';
        if (reason.includes('staleness bound') && waits.at(-1) !== reason) waits.push(reason);
      }
    };
  };
  const options: SeedOptions = { seed: 7, mode, check: 'liveness', kinds: [], workers: 4, stepMs: [50, 60], shape, arrange };
  const result = await simulateSeed({ ...options, tokens });
  expect(result.violation).toBeUndefined();
  return { ahead, waits, outcome: result.outcome, fired: result.fired.get('slow a worker') ?? 0 };
}

test('13: one worker ten times slower, mode ssp: the others block at the bound and say for whom', async () => {
  const { ahead, waits, outcome, fired } = await withSlowWorker('ssp');
  expect([outcome, fired]).toEqual(['SUCCEEDED', 1]);
  expect(ahead).toBe(2);
  expect(waits.join(' ')).toMatch(/replica \d to catch up: replica \d is 2 rounds ahead/u);
});

test('13: one worker ten times slower, mode async: nobody blocks, and the others go far ahead', async () => {
  const { ahead, waits, outcome, fired } = await withSlowWorker('async');
  expect([outcome, fired]).toEqual(['SUCCEEDED', 1]);
  expect(ahead).toBeGreaterThan(2);
  expect(waits).toEqual([]);
});
