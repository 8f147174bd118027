/** Tests who may record a trace and how much of one is kept, on a real Redis; the processes of the run are the test's. */
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectRedis, traceKey, tracedRunKey, type TracedProcess, type TraceRequest } from '@paceline/control-plane';
import { startRedis, type RunningRedis } from '@paceline/runtime';
import type { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import type { ControlHashes } from '../../apps/api/src/dispatch/control-hashes.js';
import type { RedisConnections } from '../../apps/api/src/dispatch/redis-connections.js';
import { MAX_TRACES, RunTraces } from '../../apps/api/src/traces/run-traces.js';
import { MAX_TRACE_BYTES, TraceKeeper } from '../../apps/api/src/traces/trace-keeper.js';
import type { Run } from '../../apps/api/src/runs/run.types.js';

const dataDir = join(tmpdir(), `paceline-traces-${process.pid}-${randomBytes(4).toString('hex')}`);
let redis: RunningRedis;
let commands: Redis;
let keeper: TraceKeeper;

beforeAll(async () => {
  redis = await startRedis({ dataDir, temporary: true, port: 0 });
  commands = connectRedis(redis.urlOf('api'), 'paceline-traces-test');
  await once(commands, 'ready', { signal: AbortSignal.timeout(10_000) });
  keeper = new TraceKeeper({ commands } as unknown as RedisConnections);
});

afterAll(async () => {
  commands.disconnect();
  await redis.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

afterEach(() => void vi.useRealTimers());

/** Ten rounds of 100 µs, in so many bytes more. */
function processOf(runId: string, traceId: string, id: string, bytes = 0): TracedProcess {
  const spans = Array.from({ length: 10 }, (_, i): [number, number, number, number, number] => [0, 0, i * 100, 100, i]);
  const threads = [{ thread: 'main', tracks: ['main', 'x'.repeat(bytes)], spans, lost: 0, startUs: 0, wallStartUs: 0 }];
  return { kind: 'traced', runId, attempt: 1, traceId, role: 'worker', id, host: 'here', pid: 7, names: ['round'], threads };
}

test('what is beyond the bytes of a trace is left out and counted, and no key stays for ever', async () => {
  const [runId, traceId] = [randomUUID(), randomUUID()];
  expect(await keeper.begin(runId, traceId)).toBe(true);
  const bytes = MAX_TRACE_BYTES / 4;
  for (const id of ['a', 'b', 'c', 'd', 'd', 'e']) await keeper.keep(processOf(runId, traceId, id, bytes));
  await keeper.keep(processOf(randomUUID(), traceId, 'of another run'));
  const { processes, leftOut } = await keeper.read(traceId);
  expect([processes.map(({ id }) => id).sort(), leftOut]).toEqual([['a', 'b', 'c'], 2]);
  for (const key of [traceKey(traceId), tracedRunKey(runId)]) expect(await commands.pttl(key)).toBeGreaterThan(0);
  const older = randomUUID();
  await commands.hset(traceKey(older), 'run', runId); // as if it had expired in between
  await keeper.keep(processOf(runId, older, 'a'));
  expect(await commands.pttl(traceKey(older))).toBeGreaterThan(0);
  await keeper.end(runId, traceId);
  expect(await commands.exists(traceKey(traceId), tracedRunKey(runId))).toBe(0);
});

const runOf = (teamId: string = randomUUID(), id: string = randomUUID()): Run =>
  ({ id, attempt: 1, status: 'RUNNING', row: { teamId, shortSpec: { strategy: { mode: 'sync' } } } }) as unknown as Run;

/** An api; `asked` is what it has written into control hashes. */
function apiOf(): { traces: RunTraces; asked: { runId: string; request: TraceRequest }[] } {
  const asked: { runId: string; request: TraceRequest }[] = [];
  const write = (runId: string, { trace }: Record<string, string>): Promise<void> =>
    Promise.resolve(void asked.push({ runId, request: JSON.parse(trace!) as TraceRequest }));
  return { traces: new RunTraces({ write } as unknown as ControlHashes, keeper), asked };
}

test('a run and a team have one trace at a time and an api four; an api that stops ends them at once, and others may begin', async () => {
  const [one, other] = [apiOf(), apiOf()];
  const runs = Array.from({ length: MAX_TRACES }, () => runOf());
  vi.useFakeTimers({ toFake: ['Date'] }); // no trace comes to its deadline
  const record = (run: Run): Promise<unknown> => one.traces.record(run, 2).catch((error: Error) => error);
  const recorded = [record(runs[0]!)];
  await expect.poll(() => one.asked.length).toBe(1);
  const ofTheTeam = runOf(runs[0]!.row.teamId);
  await expect(one.traces.record(ofTheTeam, 2)).rejects.toMatchObject({ code: 'CONFLICT', message: expect.stringMatching(/your team/) });
  recorded.push(...runs.slice(1).map(record));
  await expect.poll(() => one.asked.length).toBe(MAX_TRACES);
  await expect(one.traces.record(runOf(), 2)).rejects.toMatchObject({ code: 'CONFLICT', message: expect.stringMatching(/^4 traces/) });
  await expect(other.traces.record(runs[0]!, 2)).rejects.toMatchObject({ code: 'CONFLICT', message: expect.stringMatching(/already/) });
  one.traces.onModuleDestroy();
  for (const error of await Promise.all(recorded)) expect(error).toMatchObject({ code: 'SERVICE_UNAVAILABLE', status: 503 });
  vi.useRealTimers();

  const again = other.traces.record(runs[0]!, 2);
  await expect.poll(() => other.asked.length).toBe(1);
  await keeper.keep(processOf(runs[0]!.id, other.asked[0]!.request.id, 'a'));
  expect((await again).otherData).toMatchObject({ toRound: 9, fromRound: 8, processes: 1, leftOut: 0 });
});
