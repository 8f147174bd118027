import { readFileSync, readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { PLANTED } from './planted.js';
import { PLANTED_CONTROL } from './control-planted.js';
import { PLANTED_TOKENS } from './token-planted.js';
import { REGRESSIONS } from './regressions.js';
import { simulateSeed } from './simulate.js';
import { addSeed, emptyTally, neverTaken } from './tally.js';

/** Enough to take every row; more are for `npm run simulate`. */
const SMOKE_SEEDS = 200;

test('seeds of random faults break no invariant, end, and take every row of every state table', { timeout: 120_000 }, async () => {
  const tally = emptyTally();
  for (let seed = 1; seed <= SMOKE_SEEDS; seed++) addSeed(tally, await simulateSeed({ seed, mode: 'sync' }));
  for (const kinds of [['eat frames'], ['stop a worker', 'slow a worker']] as const)
    for (let seed = 1; seed <= 15; seed++) addSeed(tally, await simulateSeed({ seed, mode: 'sync', check: 'liveness', kinds }));
  expect(tally.failed.map(({ seed, violation }) => `${seed}: ${violation.invariant}: ${violation.message}`)).toEqual([]);
  expect(neverTaken(tally)).toEqual([]);
});

test('a seed replays exactly, and another seed is another run', async () => {
  for (const seed of [5, 21, 44]) {
    const [first, second, other] = [
      await simulateSeed({ seed, mode: 'sync' }),
      await simulateSeed({ seed, mode: 'sync' }),
      await simulateSeed({ seed: seed + 1, mode: 'sync' }),
    ];
    expect(first.events).toBeGreaterThan(100);
    expect([second.traceHash, second.events, second.virtualMs]).toEqual([first.traceHash, first.events, first.virtualMs]);
    expect(other.traceHash).not.toBe(first.traceHash);
  }
});

for (const { found, ...options } of REGRESSIONS)
  test(`seed ${options.seed} stays clean: ${found}`, async () => {
    expect((await simulateSeed({ mode: 'sync', ...options })).violation).toBeUndefined();
  });

for (const { name, shownBy, withinSeeds, kinds, plant, mode = 'sync' } of [...PLANTED, ...PLANTED_TOKENS, ...PLANTED_CONTROL])
  test(`planted: ${name} is found within ${withinSeeds} seeds`, { timeout: 60_000 }, async () => {
    for (let seed = 1; seed <= withinSeeds; seed++) {
      const { violation } = await simulateSeed({ seed, check: 'liveness', mode, kinds, plant });
      if (!violation) continue;
      expect(shownBy).toContain(violation.invariant);
      return;
    }
    expect.fail(`not found within ${withinSeeds} seeds`);
  });

test('the simulator runs the machines that the apps run, and has no state machine of its own', () => {
  const here = new URL('./', import.meta.url);
  const text = (folder: URL): string =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
      .map((file) => readFileSync(new URL(file, folder), 'utf8'))
      .join('\n');
  const simulator = text(here);
  const isIn = (pattern: RegExp): boolean => pattern.test(simulator);
  const apps = ['apps/ps', 'apps/worker', 'apps/api', 'libs/hosting']
    .map((app) => text(new URL(`../../../../${app}/src/`, here)))
    .join('\n');
  const imports = (source: string): Set<string> =>
    new Set(
      [...source.matchAll(/import (?:type )?\{(?<names>[^}]*)\} from '@paceline\/(?:exchange|jobs|hosting)'/gu)].flatMap(({ groups }) =>
        groups!['names']!.split(',').map((name) => name.trim().replace(/^type | as .*$/gu, '')),
      ),
    );
  const [ofSimulator, ofApps] = [imports(simulator), imports(apps)];
  for (const machine of [
    'Coordinator',
    'Shard',
    'ShardLink',
    'Member',
    'TokenCoordinator',
    'TokenShard',
    'TokenMember',
    'Journal',
    'ServerLinks',
    'SilenceWatch',
    'PacedTick',
    'DispatchLoop',
    'Reconciler',
    'ReportReader',
    'JobSightings',
    'Hearing',
    'sendOutbox',
    'afterEnd',
    'nextRestore',
    'highWaterOf',
    'SeatLoop',
  ])
    expect([machine, ofSimulator.has(machine), ofApps.has(machine)]).toEqual([machine, true, true]);
  expect(isIn(/new StateTable/u)).toBe(false);
  expect(isIn(/from '[^']*apps\//u)).toBe(false);
  // The one real clock is that of the command line, for seeds per second.
  expect(isIn(/setTimeout|setInterval|Math\.random|Date\.now/u)).toBe(false);
});
