/** What a run must have left behind when it is over, seen through the api as its users see it. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { FINAL_STATUSES, type Run, type RunEvent, type RunStatus } from '@paceline/client';
import { isAlive } from '@paceline/runtime';
import type { RunSpecInput } from '@paceline/spec';
import { type Stack, type TestProcess } from '@paceline/testkit';
import pg from 'pg';
import { expect } from 'vitest';
import { reference } from './references.js';

export { reference };

/** 4 replicas with 128 examples each: about 15 ms of computing per round on one core, so that a fault finds a run that still trains. */
export const SPEC = { model: 'mlp', globalBatch: 512, replicas: 4, seed: 11 } as const satisfies RunSpecInput;
export const ofRounds = (rounds: number): RunSpecInput => ({ ...SPEC, length: { rounds } });
const EXAMPLES = 60_000;
const ROUNDS_PER_EPOCH = Math.ceil(EXAMPLES / SPEC.globalBatch);
/** Examples of the rounds before this one; the last round of an epoch is ragged. */
export const examplesBefore = (round: number): number =>
  Math.floor(round / ROUNDS_PER_EPOCH) * EXAMPLES + (round % ROUNDS_PER_EPOCH) * SPEC.globalBatch;
/** A run that nobody waits for: it ends by a cancel or by a fault. */
export const ENDLESS = ofRounds(1_000_000);

export async function runOf(stack: Stack, id: string): Promise<Run> {
  const run = await stack.client.run(id);
  if (!run) throw new Error(`the api does not know run ${id}`);
  return run;
}

const inShort = ({ status, statusReason, progress, stepTasks }: Run) => ({
  status,
  statusReason,
  phase: progress.phase,
  round: progress.round,
  waitingFor: progress.waitingFor,
  seats: stepTasks.map(({ seat, incarnation, state, worker }) => `${seat}.${incarnation} ${state} ${worker?.id ?? ''}`),
});

/** @returns the run, as soon as it is in one of the statuses @throws Error when it ends otherwise or takes longer */
export async function untilStatus(stack: Stack, id: string, wanted: readonly RunStatus[], deadlineMs: number): Promise<Run> {
  let run!: Run;
  await stack.until(`run ${id} to be ${wanted.join(' or ')}`, deadlineMs, async () => {
    run = await runOf(stack, id);
    return wanted.includes(run.status) || FINAL_STATUSES.has(run.status) || inShort(run);
  });
  if (!wanted.includes(run.status)) throw new Error(`the run is not ${wanted.join(' or ')}: ${JSON.stringify(inShort(run))}`);
  return run;
}

export async function untilRound(stack: Stack, id: string, round: number, deadlineMs = 60_000, seats = 1): Promise<Run> {
  let run!: Run;
  await stack.until(`run ${id} to reach round ${round} with ${seats} workers`, deadlineMs, async () => {
    run = await runOf(stack, id);
    return FINAL_STATUSES.has(run.status) || (run.progress.round >= round && run.progress.workers >= seats) || inShort(run);
  });
  if (FINAL_STATUSES.has(run.status)) throw new Error(`the run ended before: ${JSON.stringify(inShort(run))}`);
  return run;
}

export async function eventsOf(stack: Stack, id: string): Promise<RunEvent[]> {
  const events: RunEvent[] = [];
  for (let after: string | undefined; ;) {
    const page = await stack.client.events(id, { first: 100, ...(after ? { after } : {}) });
    events.push(...page.nodes);
    if (page.nextCursor === null) return events;
    after = page.nextCursor;
  }
}

export const typesOf = (events: readonly RunEvent[]): string[] => events.map(({ type }) => type);

/** One point per stored row, for runs of at most 2000 rounds. */
export async function lossOf(stack: Stack, id: string) {
  const [series] = await stack.client.metrics(id, { names: ['loss'], maxPoints: 2_000 });
  return series!.points;
}

/** Committed rounds of the lineage as stored, a range that goes on over the cut up to the cut: what the api adds up must not only fit by chance. */
async function ledgerOf(stack: Stack, id: string) {
  const client = new pg.Client({ connectionString: stack.postgres.url });
  await client.connect();
  try {
    const { rows } = await client.query<{ fromRound: number; toRound: number; examples: string; isCut: boolean }>(
      `WITH RECURSIVE lineage AS (
         SELECT "number", "parentNumber", coalesce("parentRound", 0) AS "lo", 2^31 AS "hi" FROM "Attempt"
          WHERE "runId" = $1 AND "number" = (SELECT "attempt" FROM "Run" WHERE "id" = $1)
         UNION ALL
         SELECT parent."number", parent."parentNumber", coalesce(parent."parentRound", 0), lineage."lo"
           FROM lineage JOIN "Attempt" parent ON parent."runId" = $1 AND parent."number" = lineage."parentNumber")
       SELECT "fromRound", least("toRound", "hi" - 1)::int AS "toRound", "examples", "toRound" >= "hi" AS "isCut"
         FROM "LedgerRange" JOIN lineage ON "attempt" = "number"
        WHERE "runId" = $1 AND "fromRound" >= "lo" AND "fromRound" < "hi" ORDER BY "fromRound"`,
      [id],
    );
    return rows;
  } finally {
    await client.end();
  }
}

/** SUCCEEDED with everything stored once: every round in the ledger and in the metrics, events without a gap, the reference's weights. */
export async function expectComplete(
  stack: Stack,
  id: string,
  input: RunSpecInput,
  {
    deadlineMs = 90_000,
    attempts = 1,
    metricsHaveGaps = false,
  }: { deadlineMs?: number; attempts?: number; metricsHaveGaps?: boolean } = {},
): Promise<Run> {
  const { rounds } = input.length as { rounds: number };
  await untilStatus(stack, id, ['SUCCEEDED'], deadlineMs);
  // The end of a journal may arrive before reports that were lost on the way and are sent again.
  await stack.until('every round in the ledger', 15_000, async () => {
    const { ledger } = await runOf(stack, id);
    return ledger.committedRounds >= rounds || ledger;
  });
  const run = await runOf(stack, id);
  const examples = examplesBefore(rounds);
  expect(run.result).toMatchObject({ rounds, trainedExamples: examples, weightsSha256: await reference(input) });
  expect(run.attempt).toBe(attempts);
  expect(run.ledger).toMatchObject({ committedRounds: rounds, committedExamples: examples, expectedExamples: examples });
  let next = 0;
  for (const range of await ledgerOf(stack, id)) {
    expect(range.fromRound, 'the ledger goes on where it was').toBe(next);
    if (!range.isCut) expect(Number(range.examples)).toBe(examplesBefore(range.toRound + 1) - examplesBefore(range.fromRound));
    next = range.toRound + 1;
  }
  expect(next).toBe(rounds);
  let covered = 0;
  for (const point of await lossOf(stack, id)) {
    if (metricsHaveGaps) expect(point.round, 'metrics go forward').toBeGreaterThanOrEqual(covered + point.rounds - 1);
    else expect(point.round, 'each metric goes on where the last one ended').toBe(covered + point.rounds - 1);
    covered = point.round + 1;
  }
  expect(covered, 'rounds with metrics').toBe(rounds);
  const events = await eventsOf(stack, id);
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, i) => i + 1));
  for (const once of ['training.started', 'evaluation.started', 'run.finished'])
    expect(
      typesOf(events.filter(({ attempt }) => attempt === run.attempt)).filter((type) => type === once),
      once,
    ).toHaveLength(1);
  expect(run.statusHistory.map(({ to }) => to).slice(-3)).toEqual(['PROVISIONING', 'RUNNING', 'SUCCEEDED']);
  return run;
}

/** Nobody left, was lost or joined again: an outage was not noticed where the training is. */
export async function expectUndisturbed(stack: Stack, id: string): Promise<void> {
  const types = typesOf(await eventsOf(stack, id));
  for (const type of ['worker.lost', 'worker.left', 'worker.away', 'seat.failed', 'journal.gap']) expect(types).not.toContain(type);
  expect(types.filter((type) => type === 'worker.joined')).toHaveLength(2);
}

/** A second run comes while one has all the workers: both progress, and the first has its workers back afterwards. */
export async function expectShared(stack: Stack, spec: RunSpecInput, workers: number): Promise<void> {
  const first = await stack.client.createRun(ENDLESS);
  await untilRound(stack, first.id, 5, 60_000, workers);
  const second = await stack.client.createRun(spec);
  await stack.until('round 3 of the second run', 60_000, async () => {
    const run = await runOf(stack, second.id);
    return run.progress.round >= 3 || inShort(run);
  });
  if (workers > 1) await untilRound(stack, first.id, (await runOf(stack, first.id)).progress.round + 3);
  await expectComplete(stack, second.id, spec, { deadlineMs: 150_000 });
  await untilRound(stack, first.id, (await runOf(stack, first.id)).progress.round + 3, 60_000, workers);
  expect(typesOf(await eventsOf(stack, first.id))).toContain('worker.left');
  await stack.client.cancelRun(first.id);
  await untilStatus(stack, first.id, ['CANCELLED'], 10_000);
}

/** SIGTERM: it ends in time with exit code 0, and no process of it is left. One that does not end in time is killed, and `Stack.end` throws. */
export async function expectPoliteEnd(stack: Stack, member: TestProcess): Promise<void> {
  const pid = member.child.pid!;
  const children = childrenOf(pid);
  await stack.end(member, 'SIGTERM');
  const end = { code: member.child.exitCode, signal: member.child.signalCode };
  expect(end, `${member.app}: ${readFileSync(member.logFile, 'utf8').slice(-2_000)}`).toEqual({ code: 0, signal: null });
  expect([pid, ...children].filter(isAlive)).toEqual([]);
}

export function childrenOf(pid: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((other) => {
      try {
        const text = readFileSync(`/proc/${other}/stat`, 'latin1');
        return Number(text.slice(text.lastIndexOf(') ') + 2).split(' ')[1]) === pid;
      } catch {
        return false; // it ended while we looked
      }
    });
}

/** SHA-256 over the tensors of a safetensors file in the order of their offsets, which is layout order. */
export function tensorsSha256(file: Buffer): string {
  const headerBytes = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerBytes)) as Record<
    string,
    { dtype?: string; data_offsets?: [number, number] }
  >;
  const hash = createHash('sha256');
  const tensors = Object.entries(header).flatMap(([name, { data_offsets }]) => (name === '__metadata__' ? [] : [data_offsets!]));
  for (const [from, to] of tensors.sort((a, b) => a[0] - b[0])) hash.update(file.subarray(8 + headerBytes + from, 8 + headerBytes + to));
  return hash.digest('hex');
}

/** Lines of a process's log with this message about this run. */
export function logged(member: TestProcess, message: string, run: string): Record<string, unknown>[] {
  return readFileSync(member.logFile, 'utf8')
    .split('\n')
    .flatMap((line) => {
      if (!line.includes(run) || !line.includes(message)) return [];
      const entry = JSON.parse(line) as Record<string, unknown>;
      return entry['msg'] === message && entry['run'] === run ? [entry] : [];
    });
}

export const idle = async (stack: Stack): Promise<unknown> => {
  const members = [...(await stack.client.workers()), ...(await stack.client.servers())].filter(({ status }) => status !== 'LOST');
  return members.every(({ status }) => status === 'IDLE') || members.map(({ id, status, runId }) => `${id} ${status} ${runId}`);
};
