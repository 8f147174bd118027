/**
 * Fault row 18 with real processes, its SIGTERM: whatever a run is doing when its processes are told to end, they are gone within ten
 * seconds and leave nothing behind, the attempt is over or paused, and the newest checkpoint is whole and leads to the weights of a
 * run that nothing happened to. Everybody stands still in the moment that is meant while the signal is sent, so that none misses it.
 * (Pause and cancel at every phase: fault-rows.test.ts.)
 */
import path from 'node:path';
import { Checkpoints, openStore, type CheckpointSummary } from '@paceline/storage';
import { DataPlane, pace, type Pace, type RunView, type TestProcess } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isAlive } from '@paceline/runtime';
import { hasOpen, READS_CHECKPOINT, SLOW_DISK, stoppedAt, WRITES_CHECKPOINT, WRITES_WEIGHTS } from './moments.js';
import { childrenOf, logged } from '../cluster/whole-runs.js';

type CheckpointInput = NonNullable<RunSpecInput['checkpoint']>;
const specWith = (checkpoint: CheckpointInput): RunSpecInput => ({
  model: 'mlp',
  globalBatch: 64,
  replicas: 4,
  length: { rounds: 60 },
  seed: 21,
  checkpoint,
});
const ALWAYS: CheckpointInput = { everyRounds: 1, keepLast: 2 };
/** Whatever checkpoint is written is one of a pause, or the final one. */
const AT_THE_END: CheckpointInput = { everySeconds: 0 };

const hasEvent = (run: RunView, type: string): boolean => run.entries.some((entry) => entry.kind === 'event' && entry.type === type);
const isTraining = (run: RunView): boolean => (run.state?.round ?? 0) >= 5 && !hasEvent(run, 'evaluation.started');
const server = (): TestProcess => plane.servers[0]!;

interface Phase {
  readonly name: string;
  /** The process that is at work: the signal to the worker alone is sent where it is that one. */
  readonly busy: 'nobody' | 'worker' | 'server';
  readonly checkpoint?: CheckpointInput;
  /** Workers that compute are slowed down until the moment is there. */
  readonly isSlow?: boolean;
  lead?(run: RunView, slow: Pace | undefined): Promise<void>;
  isThere(run: RunView): boolean;
  /** How the attempt may end when the server is told to; none: nobody has begun it, so nobody says anything. */
  readonly ends: readonly string[];
}
const FAILS = ['run.failed'];
const PHASES: readonly Phase[] = [
  { name: 'while it is queued for a worker', busy: 'nobody', isThere: (run) => run.state?.phase === 'waiting', ends: FAILS },
  {
    name: 'while its worker takes the seat and loads',
    busy: 'worker',
    isThere: (run) => plane.workers.some((each) => logged(each, 'step task taken', run.id).length > 0) && run.state?.seats.length === 0,
    ends: FAILS,
  },
  { name: 'while rounds are trained', busy: 'worker', isSlow: true, checkpoint: AT_THE_END, isThere: isTraining, ends: FAILS },
  {
    name: 'while a checkpoint is written',
    busy: 'server',
    isSlow: true,
    isThere: (run) => isTraining(run) && hasOpen(server(), WRITES_CHECKPOINT),
    ends: FAILS,
  },
  {
    name: 'while the round of a pause goes on',
    busy: 'worker',
    isSlow: true,
    async lead(run, slow) {
      await plane.until(run, 'rounds', 60_000, () => isTraining(run));
      slow!.end();
      for (const { child } of plane.workers) child.kill('SIGSTOP');
      await plane.control(run, 'action', 'pause');
    },
    isThere: (run) => run.state?.phase === 'pausing' && !hasEvent(run, 'run.paused'),
    ends: ['run.failed', 'run.paused'],
  },
  {
    name: 'while the checkpoint of a pause is written',
    busy: 'server',
    isSlow: true,
    checkpoint: AT_THE_END,
    async lead(run) {
      await plane.until(run, 'rounds', 60_000, () => isTraining(run));
      await plane.control(run, 'action', 'pause');
    },
    isThere: () => hasOpen(server(), WRITES_CHECKPOINT),
    ends: ['run.paused'],
  },
  {
    name: 'while it is evaluated',
    busy: 'worker',
    isSlow: true,
    isThere: (run) => hasEvent(run, 'evaluation.started') && !hasEvent(run, 'run.finished') && !hasOpen(server(), WRITES_WEIGHTS),
    ends: ['run.failed', 'run.finished'],
  },
  {
    name: 'while its final checkpoint is written',
    busy: 'server',
    checkpoint: AT_THE_END,
    isThere: () => hasOpen(server(), WRITES_CHECKPOINT),
    ends: ['run.failed', 'run.finished'],
  },
  {
    name: 'while its weights are collected',
    busy: 'server',
    isThere: () => hasOpen(server(), WRITES_WEIGHTS),
    ends: ['run.failed', 'run.finished'],
  },
  {
    name: 'while a server restores it',
    busy: 'server',
    isSlow: true,
    async lead(run) {
      await plane.until(run, 'rounds', 60_000, () => isTraining(run));
      await plane.control(run, 'action', 'pause');
      const { data } = await plane.event(run, 'run.paused');
      await plane.trainAgain(run, { attempt: 1, round: Number(data['round']) });
    },
    isThere: () => hasOpen(server(), READS_CHECKPOINT),
    ends: [],
  },
];

let plane: DataPlane;
let checkpoints: Checkpoints;
let undisturbed: string;
beforeAll(async () => {
  plane = await DataPlane.start({ servers: 1, workers: 1, serverEnv: SLOW_DISK });
  checkpoints = new Checkpoints(openStore(path.join(plane.folder, 'data')));
  undisturbed = (await plane.finished(await plane.train(specWith(ALWAYS)))).weightsSha256;
});
afterAll(() => plane?.stop());

/** Reads every byte of it against its hashes. */
async function expectWhole(id: CheckpointSummary): Promise<void> {
  const reader = await checkpoints.open(id);
  for (const name of reader.tensorNames) await reader.tensor(name);
}

/** All are told at once, as when a machine shuts down, and stand still until all are. */
async function expectEnd(members: readonly TestProcess[], goOn: () => void): Promise<void> {
  const family = members.flatMap(({ child }) => [child.pid!, ...childrenOf(child.pid!)]);
  const askedMs = performance.now();
  const gone = Promise.all(members.map((member) => member.kill('SIGTERM')));
  goOn();
  await gone;
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

/** The run is in this phase, and everybody stands still. @returns lets them go on */
async function arriveAt({
  name,
  busy,
  checkpoint = ALWAYS,
  isSlow = false,
  lead,
  isThere,
}: Phase): Promise<{ run: RunView; goOn: () => void }> {
  await haveProcesses(busy === 'nobody' ? 0 : 1);
  const run = await plane.train(specWith(checkpoint));
  const isSeated = ({ ready }: TestProcess): boolean => run.state?.seats.some(({ workerId }) => workerId === ready.id) ?? false;
  const slow = isSlow ? pace(() => plane.workers.filter(isSeated).map(({ child }) => child.pid!), 0.1) : undefined;
  try {
    await lead?.(run, slow);
    const goOn = await stoppedAt(name, [...plane.servers, ...plane.workers], () => isThere(run));
    slow?.end();
    for (const { child } of plane.workers) child.kill('SIGSTOP'); // the pace has let them go on
    return { run, goOn };
  } finally {
    slow?.end();
  }
}

/** How the attempt ended. @returns true when the run is done with that */
async function expectEndOf(run: RunView, ends: readonly string[], sinceMs: number): Promise<boolean> {
  const end = await plane.ended(run, ends.length > 0 ? 10_000 : 1_000).catch(() => undefined);
  if (ends.length === 0) expect(end).toBeUndefined();
  if (ends.length === 0 || end?.kind !== 'event') return (expect(ends).toEqual([]), false);
  expect(performance.now() - sinceMs).toBeLessThan(10_000);
  expect(ends).toContain(end.type);
  if (end.type === 'run.failed' && !hasEvent(run, 'evaluation.started')) expect(end.data).toMatchObject({ cause: 'STOPPED' });
  if (end.type === 'run.finished') expect(end.data['weightsSha256']).toBe(undisturbed);
  return end.type === 'run.finished';
}

describe.each(['the server', 'the worker', 'everybody'])('18: SIGTERM to %s', (who) => {
  const phases = who === 'the worker' ? PHASES.filter(({ busy }) => busy === 'worker') : PHASES;
  for (const phase of phases)
    test(phase.name, async () => {
      const { run, goOn } = await arriveAt(phase);
      const askedMs = performance.now();
      const { servers, workers } = plane;
      await expectEnd([...(who === 'the worker' ? [] : servers), ...(who === 'the server' ? [] : workers)], goOn);
      const isPaused = phase.name.includes('pause');
      let isOver = true;
      if (who === 'the worker' && !isPaused) {
        // It goes on with the next worker.
        await haveProcesses(1);
        const { attempt } = run;
        expect((await plane.finished(run, 90_000)).weightsSha256).toBe(undisturbed);
        expect(run.attempt).toBe(attempt);
      } else isOver = await expectEndOf(run, who === 'the worker' ? ['run.paused'] : phase.ends, askedMs);
      const found = await checkpoints.list(run.id);
      for (const checkpoint of found) await expectWhole(checkpoint);
      if (isOver) return;
      const newest = found[0];
      await haveProcesses(1);
      await plane.trainAgain(run, newest ? { attempt: newest.attempt, round: newest.round } : null);
      expect((await plane.finished(run, 90_000)).weightsSha256, `from round ${newest?.round ?? 0}`).toBe(undisturbed);
    });
});
