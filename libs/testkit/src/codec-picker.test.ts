/** Rounds over a real socket, as it is and behind a slow link: what `codec: auto` picks for them. Only the clock is simulated. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { Link, connect, listen, RoundPace, type Clock, type Connection, type LinkSpeed } from '@paceline/exchange';
import type { PlacementJob } from '@paceline/control-plane';
import type { Layout } from '@paceline/learning';
import { FrameType, type CodecChoice } from '@paceline/protocol';
import { VARIABLES, readEnvironment } from '@paceline/runtime';
import { parseRunSpec } from '@paceline/spec';
import { afterAll, expect, test } from 'vitest';
import { codecPickerOf } from '@paceline/hosting';

const folder = mkdtempSync(path.join(tmpdir(), 'paceline-pick-'));
afterAll(() => rmSync(folder, { recursive: true }));

const FLOATS = 60_000;
const ROUNDS = 5;
const ANSWERS = 3;
const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };
const FRAME = { ...NUMBERS, codec: 0, nodeLo: 0, nodeHi: 1, chunk: 0 };
const HELLO = {
  type: 'hello',
  token: '',
  run: '00000000-0000-4000-8000-000000000001',
  role: 'worker',
  id: 'w',
  host: 'h',
  seat: 0,
} as const;
const WELCOME = { type: 'welcome', id: 'ps', server: 0, round: 0, view: 0, term: 1, applied: '', window: 1, base: 0, phase: '' } as const;

const parsed = parseRunSpec({ codec: { kind: 'auto' }, replicas: 2, globalBatch: 4 });
if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
const JOB = { spec: parsed.spec, servers: 1 } as unknown as PlacementJob;
const LAYOUT = { totalLength: FLOATS } as Layout;

/** What a server takes for one update, and for one answer to a message. */
const [UPDATE_MS, ANSWER_MS] = [0.5, 0.1];
/** What a worker that tries a codec takes between two looks at the clock. */
const TRIED_MS = 0.05;

/** Time passes where it is said to: by `spend`, and to the next timer of a link when the sockets have nothing more to hand over. */
function simulatedClock() {
  let nowMs = 0;
  const timers = new Set<{ readonly atMs: number; act(): void }>();
  const clock: Clock = {
    now: () => nowMs,
    after(ms, act) {
      const timer = { atMs: nowMs + ms, act };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    every: () => {
      throw new Error('a link has no steady timer');
    },
    soon: (act) => process.nextTick(act),
  };
  const spend = (ms: number): void => void (nowMs += ms);
  /** Lets time pass until it is over. */
  const pass = async (isOver: () => boolean): Promise<void> => {
    while (!isOver()) {
      for (let i = 0; i < 3; i++) await turn();
      const next = [...timers].sort((a, b) => a.atMs - b.atMs)[0];
      if (!next) continue;
      timers.delete(next);
      nowMs = Math.max(nowMs, next.atMs);
      next.act();
    }
  };
  return { clock, spend, pass };
}

/** Gradients out and parameters back, by a server that answers each with the other. */
async function picked(speed?: LinkSpeed): Promise<Omit<CodecChoice, 'fromRound'>> {
  const { clock, spend, pass } = simulatedClock();
  const scratch = new Uint8Array(4 * FLOATS);
  const payloadFor = ({ length }: { length: number }) => scratch.subarray(0, length);
  const unixPath = path.join(folder, `${speed ? 'slow' : 'fast'}.sock`);
  const listener = await listen({ host: '127.0.0.1', port: 0, unixPath }, (far: Connection) =>
    far.setReceiver({
      payloadFor,
      data: () => {
        spend(UPDATE_MS);
        far.sendData({ ...FRAME, type: FrameType.parameters }, scratch, () => undefined);
      },
      message: (message) => {
        spend(ANSWER_MS);
        far.sendMessage(message.type === 'hello' ? WELCOME : message, NUMBERS);
      },
      closed: () => undefined,
    }),
  );
  const link = speed && new Link(speed, clock);
  const near = await connect({ host: '127.0.0.1', port: listener.port ?? 0, unixPath }, { deadlineMs: 5000, ...(link ? { link } : {}) });
  const begunMs = clock.now();
  let latencyMs: number | undefined;
  const pace = new RoundPace({ now: () => clock.now(), latencyMs: () => latencyMs });
  let isOver = false;
  const rounds = new Promise<void>((resolve) => {
    const begins = (round: number): void => {
      pace.begins(round);
      if (round > ROUNDS) return resolve();
      pace.computed(1, 1);
      near.sendData({ ...FRAME, type: FrameType.gradient, round }, scratch, () => undefined);
    };
    let [round, answers] = [0, 0];
    near.setReceiver({
      payloadFor,
      data: () => begins(++round),
      message: (message) => {
        if (message.type === 'welcome') latencyMs = clock.now() - begunMs;
        else pace.answered((message as { echo: number }).echo);
        if (answers++ < ANSWERS) near.sendMessage({ type: 'heartbeat', progress: 0, echo: pace.asks() }, NUMBERS);
        else begins(0);
      },
      closed: () => undefined,
    });
    near.sendMessage({ ...HELLO, incarnation: 0, fingerprint: '', layout: '' }, NUMBERS);
  }).then(() => (isOver = true));
  await pass(() => isOver);
  await rounds;
  near.close();
  await listener.close();
  return codecPickerOf(JOB, LAYOUT, () => {
    spend(TRIED_MS);
    return clock.now();
  })!.pick([pace.pace!]);
}

test('a link of 20 Mbit/s and 30 ms has a codec, a Unix socket none', async () => {
  const slow = await picked(readEnvironment({ PACELINE_LINK: VARIABLES.PACELINE_LINK }, { PACELINE_LINK: '20mbit,30ms' }).PACELINE_LINK);
  expect(slow.kind, slow.why).toMatch(/^int/);
  expect(slow.parameters).toBe('int8');
  // 2 · 240 KB at 2.5 MB/s take 192 ms.
  expect(slow.measured.latencyMs).toBeGreaterThan(59);
  expect(slow.measured.bytesPerSecond).toBeLessThan(3.2e6);
  expect(slow.measured.expectedMs).toBeLessThan(0.8 * slow.measured.roundMs);
  const fast = await picked();
  expect([fast.kind, fast.parameters]).toEqual(['none', 'float32']);
});

test('a spec that names its codec has nobody who picks', () => {
  expect(codecPickerOf({ ...JOB, spec: { ...JOB.spec, codec: undefined } }, LAYOUT, () => 0)).toBeUndefined();
});
