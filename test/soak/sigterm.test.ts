/**
 * Fault row 18 with real processes, its SIGTERM: whatever a run is doing when its processes are told to end, they are gone within ten
 * seconds and leave nothing behind, the attempt is over or paused, and the newest checkpoint is whole and leads to the weights of a
 * run that nothing happened to. (Pause and cancel at every phase: fault-rows.test.ts.)
 */
import path from 'node:path';
import { Checkpoints, openStore, type CheckpointSummary } from '@paceline/storage';
import { DataPlane, type RunView, type TestProcess } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { childrenOf } from '../cluster/whole-runs.js';
import { isAlive } from '@paceline/runtime';

const input: RunSpecInput = {
  ...{ model: 'mlp', globalBatch: 64, replicas: 4, length: { rounds: 60 }, seed: 21 },
  checkpoint: { everyRounds: 1, keepLast: 2 },
};
const hasEvent = (run: RunView, type: string): boolean => run.entries.some((entry) => entry.kind === 'event' && entry.type === type);

interface Phase {
  readonly name: string;
  readonly workers: number;
  isThere(run: RunView): boolean;
  /** Asked of the run just before the signal. */
  readonly action?: 'pause';
}
const PHASES: readonly Phase[] = [
  { name: 'while it is queued for a worker', workers: 0, isThere: (run) => run.state?.phase === 'waiting' },
  { name: 'while its worker takes the seat and loads', workers: 1, isThere: (run) => run.servers.length > 0 },
  { name: 'while rounds are trained', workers: 1, isThere: (run) => (run.state?.round ?? 0) >= 5 },
  { name: 'while it pauses', workers: 1, action: 'pause', isThere: (run) => (run.state?.round ?? 0) >= 5 },
  { name: 'while checkpoints are written', workers: 1, isThere: (run) => hasEvent(run, 'checkpoint.written') },
  { name: 'while it is evaluated', workers: 1, isThere: (run) => hasEvent(run, 'evaluation.started') },
];

let plane: DataPlane;
let checkpoints: Checkpoints;
let undisturbed: string;
beforeAll(async () => {
  plane = await DataPlane.start({ servers: 1, workers: 1 });
  checkpoints = new Checkpoints(openStore(path.join(plane.folder, 'data')));
  undisturbed = (await plane.finished(await plane.train(input))).weightsSha256;
});
afterAll(() => plane?.stop());

/** Reads every byte of it against its hashes. */
async function expectWhole(id: CheckpointSummary): Promise<void> {
  const reader = await checkpoints.open(id);
  for (const name of reader.tensorNames) await reader.tensor(name);
}

/** All are told at once, as when a machine shuts down. */
async function expectEnd(members: readonly TestProcess[]): Promise<void> {
  const family = members.flatMap(({ child }) => [child.pid!, ...childrenOf(child.pid!)]);
  const askedMs = performance.now();
  await Promise.all(members.map((member) => member.kill('SIGTERM')));
  expect(performance.now() - askedMs).toBeLessThan(10_000);
  for (const { app, child } of members) expect({ app, code: child.exitCode }).toEqual({ app, code: 0 });
  expect(family.filter(isAlive)).toEqual([]);
  for (const list of [plane.servers, plane.workers]) list.splice(0, list.length, ...list.filter((member) => !members.includes(member)));
}

async function haveProcesses(workers: number): Promise<void> {
  await Promise.all(plane.workers.splice(workers).map((worker) => worker.kill('SIGTERM')));
  await Promise.all([
    ...(plane.servers.length === 0 ? [plane.addServer()] : []),
    ...Array.from({ length: workers - plane.workers.length }, () => plane.addWorker()),
  ]);
}

describe.each([{ who: 'the server' }, { who: 'everybody' }])('18: SIGTERM to $who', ({ who }) => {
  for (const { name, workers, isThere, action } of PHASES)
    test(name, async () => {
      await haveProcesses(workers);
      const run = await plane.train(input);
      await plane.until(run, name, 60_000, () => isThere(run));
      if (action) await plane.control(run, 'action', action);
      const askedMs = performance.now();
      await expectEnd(who === 'everybody' ? [...plane.servers, ...plane.workers] : [...plane.servers]);
      const end = await plane.ended(run, 10_000).catch(() => undefined);
      const found = await checkpoints.list(run.id);
      for (const checkpoint of found) await expectWhole(checkpoint);
      if (end === undefined) {
        // Not begun yet, so nobody had anything to say.
        expect({ state: run.state?.phase ?? 'waiting', found }).toEqual({ state: 'waiting', found: [] });
      } else {
        if (end.kind !== 'event') throw new Error('an event ends a run');
        expect(performance.now() - askedMs).toBeLessThan(10_000);
        expect(['run.failed', 'run.paused', 'run.finished']).toContain(end.type);
        if (end.type === 'run.failed') expect(end.data).toMatchObject({ cause: 'STOPPED' });
        if (end.type === 'run.finished') return expect(end.data['weightsSha256']).toBe(undisturbed);
      }
      const newest = found[0];
      await haveProcesses(1);
      await plane.trainAgain(run, newest ? { attempt: newest.attempt, round: newest.round } : null);
      expect((await plane.finished(run, 90_000)).weightsSha256, `from round ${newest?.round ?? 0}`).toBe(undisturbed);
      expect(hasEvent(run, 'run.finished')).toBe(true);
    });
});
