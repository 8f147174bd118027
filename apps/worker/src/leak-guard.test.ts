import { execFileSync } from 'node:child_process';
import type { Engine, Growth, Kept, StepRequest } from '@paceline/engine';
import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { growthInWords, LeakGuard, suspectOf, type Leak } from './leak-guard.js';
import { ProcessMemory } from './process-memory.js';
import { leakLeaveDeadlineMs } from './recycling.js';

const MB = 1e6;
const LIMITS = { tensors: 200, buffers: 200, bytes: 64 * MB, rssBytes: 512 * MB };
const GROWTH: Growth = { measure: 'tensors', from: 40, to: 264, rounds: 56, perRound: 4 };
const RSS_GROWTH: Growth = { measure: 'rssBytes', from: 300 * MB, to: 900 * MB, rounds: 448, perRound: 1.34 * MB };
const KEPT: Kept = { layer: 'dense_2 (Dense)', op: 'Square', tensors: 2, buffers: 0, bytes: 40 };
const REQUEST = { round: 0, replica: 0, batches: [], out: new Float32Array(0) } satisfies StepRequest;

/** A guard over an engine whose traced steps leave `keeps` behind in turn, and a detector that speaks in round 3. */
function guarded({ growth = GROWTH, keeps = [[KEPT]] as Kept[][], rssAfter = 900 * MB, heapGrowth = 0, stepMs = 100 }) {
  const seen = { steps: 0, traces: 0, collections: 0, readings: 0, forgotten: [] as string[], leaks: [] as Leak[] };
  const engine = {
    metricNames: ['loss'],
    step: () => (seen.steps++, { count: 1, metricSums: [0] }),
    trace: () => ({ result: { count: 1, metricSums: [0] }, kept: keeps[seen.traces++ % keeps.length]! }),
    memory: () => ({ tensors: 40, buffers: 40, bytes: 100 }),
  } as unknown as Engine;
  let rounds = 0;
  const guard = new LeakGuard(engine, {
    detector: { observe: () => (++rounds === 3 ? growth : undefined), forget: (measure) => seen.forgotten.push(measure) },
    limits: LIMITS,
    collect: () => seen.collections++,
    rssBytes: () => (seen.readings++, rssAfter),
    nowMs: () => seen.steps * stepMs,
    heapBytes: () => (seen.collections > 0 ? 50 * MB + heapGrowth : 50 * MB),
    found: (leak) => seen.leaks.push(leak),
  });
  const round = (): void => {
    guard.step(REQUEST);
    guard.afterRound();
  };
  return { seen, run: (count: number) => Array.from({ length: count }, round) };
}

it('after growth one step is traced, and the leak is told once', () => {
  const { seen, run } = guarded({});
  run(3);
  expect(seen).toMatchObject({ steps: 3, traces: 0, collections: 1, leaks: [] });
  run(50);
  expect(seen).toMatchObject({ steps: 52, traces: 1, leaks: [{ growth: GROWTH, kept: [KEPT] }] });
});

it('a leak that is not made in every step has four to show itself', () => {
  const { seen, run } = guarded({ keeps: [[], [], [KEPT]] });
  run(10);
  expect(seen).toMatchObject({ traces: 3, leaks: [{ kept: [KEPT] }] });
  const never = guarded({ keeps: [[]] });
  never.run(10);
  expect(never.seen).toMatchObject({ traces: 4, leaks: [{ kept: [] }] });
});

it('memory that a collection gives back was no leak', () => {
  const { seen, run } = guarded({ growth: RSS_GROWTH, rssAfter: 400 * MB });
  run(20);
  expect(seen).toMatchObject({ collections: 1, forgotten: ['rssBytes'], traces: 0, leaks: [] });
});

it('reads the memory of the process once in 50 ms, and anew after a collection', () => {
  const { seen, run } = guarded({ growth: RSS_GROWTH, rssAfter: 400 * MB, stepMs: 5 });
  run(2);
  expect(seen.readings).toBe(1);
  run(1);
  expect(seen).toMatchObject({ collections: 1, readings: 2 });
  run(19);
  expect(seen.readings).toBe(4);
});

it('says in words what grows and what is suspected', () => {
  expect(growthInWords(GROWTH)).toBe('224 more tensors in 56 rounds, 4 more tensors a round');
  expect(growthInWords(RSS_GROWTH)).toBe('600 MB more memory in 448 rounds, 1.34 MB more memory a round');
  const leak = { growth: GROWTH, kept: [KEPT], heapGrowthBytes: 0 };
  expect(suspectOf(leak)).toBe('layer dense_2 (Dense), operation Square: it leaves 2 tensors (40 bytes) behind in a step');
  expect(suspectOf({ ...leak, kept: [{ ...KEPT, layer: null, tensors: 0, buffers: 3 }] })).toBe(
    'outside of all layers, operation Square: it leaves 3 values that no tensor names behind in a step',
  );
  expect(suspectOf({ ...leak, kept: [] })).toMatch(/^not found/);
  const memory = { growth: RSS_GROWTH, kept: [], heapGrowthBytes: 500 * MB };
  expect(suspectOf(memory)).toBe('JavaScript objects of the compute thread (500 MB more)');
  expect(suspectOf({ ...memory, heapGrowthBytes: 0 })).toMatch(/native code, or another thread$/);
});

it('a process has outgrown when memory remains that a collection does not give back', () => {
  let [rss, collectable] = [100 * MB, 0];
  const options = { ownBytes: () => rss, collect: () => void ((rss -= collectable), (collectable = 0)) };
  const memory = new ProcessMemory({ ...options, limitBytes: 256 * MB });
  const afterSeat = (engine: string, hasLeaked: boolean, of = memory): number | undefined => {
    of.engineStarted(engine);
    return of.outgrownBytes(hasLeaked);
  };
  rss = 300 * MB;
  expect(afterSeat('wasm', false)).toBeUndefined();
  [rss, collectable] = [900 * MB, 500 * MB];
  expect(afterSeat('wasm', false)).toBeUndefined();
  rss = 600 * MB;
  expect(afterSeat('wasm', false)).toBe(300 * MB);
  rss = 250 * MB;
  expect(afterSeat('wasm', false)).toBeUndefined();
  rss = 510 * MB;
  expect(afterSeat('wasm', false), 'the least that it ever needed is what counts').toBe(260 * MB);
  rss = 1_000 * MB;
  expect(afterSeat('tensorflow', false), 'a library that stays is no leak').toBeUndefined();
  rss = 1_300 * MB;
  expect(afterSeat('tensorflow', false)).toBe(300 * MB);
  expect(afterSeat('cpu', true), 'the first seat has leaked').toBe(300 * MB);
  expect(afterSeat('wasm', true, new ProcessMemory({ ...options, limitBytes: 0 }))).toBeUndefined();
});

it('what an engine has loaded is measured after a collection, and only when it started', () => {
  let [rss, collectable] = [100 * MB, 0];
  const options = { ownBytes: () => rss, collect: () => void ((rss -= collectable), (collectable = 0)) };
  const memory = new ProcessMemory({ ...options, limitBytes: 256 * MB });
  rss = 400 * MB;
  expect(memory.outgrownBytes(false), 'no engine started').toBeUndefined();
  [rss, collectable] = [900 * MB, 700 * MB];
  memory.engineStarted('wasm');
  expect(memory.outgrownBytes(false)).toBeUndefined();
  rss = 500 * MB;
  memory.engineStarted('wasm');
  expect(memory.outgrownBytes(false), 'arenas of the first seat are no part of the engine').toBe(300 * MB);
  rss = 800 * MB;
  memory.engineStarted('tensorflow');
  memory.engineStarted('wasm');
  expect(memory.outgrownBytes(false), 'an engine that was tried first has been loaded too').toBeUndefined();
});

it('the end of a round is waited for as long as its run lets a step last', () => {
  const ofKind = (strategy: object) => {
    const parsed = parseRunSpec({ stepDeadlineMs: 3_600_000, strategy });
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
    return leakLeaveDeadlineMs(parsed.spec);
  };
  expect(ofKind({ kind: 'mirrored' })).toBe(3_630_000);
  expect(ofKind({ kind: 'tpu', stepsPerExecution: 3 })).toBe(3 * 3_600_000 + 30_000);
  expect(ofKind({ kind: 'local-update', localSteps: 10_000 }), 'as long as a timer of Node may be').toBe(2 ** 31 - 1);
});

it('what a process holds by itself is less than all of its memory, and grows with it', () => {
  // In a process of its own: this one gives memory of other tests back meanwhile.
  const script = `
    import { ownBytes } from ${JSON.stringify(new URL('../dist/process-memory.js', import.meta.url).href)};
    const [before, rss] = [ownBytes(), process.memoryUsage.rss()];
    const held = Buffer.alloc(${200 * MB}, 1);
    console.log(JSON.stringify({ before, rss, after: ownBytes(), held: held.length }));
  `;
  const said = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
  const { before, rss, after, held } = JSON.parse(said) as Record<'before' | 'rss' | 'after' | 'held', number>;
  expect(before).toBeLessThanOrEqual(rss);
  expect(after - before).toBeGreaterThan(held * 0.9);
});
