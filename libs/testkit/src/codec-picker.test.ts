/** Rounds over a real socket, as it is and behind a slow link: what `codec: auto` picks for them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Link, connect, listen, processClock, RoundPace, type Connection, type LinkSpeed } from '@paceline/exchange';
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

/** Gradients out and parameters back, by a server that answers each with the other. */
async function picked(speed?: LinkSpeed): Promise<Omit<CodecChoice, 'fromRound'>> {
  const scratch = new Uint8Array(4 * FLOATS);
  const payloadFor = ({ length }: { length: number }) => scratch.subarray(0, length);
  const unixPath = path.join(folder, `${speed ? 'slow' : 'fast'}.sock`);
  const listener = await listen({ host: '127.0.0.1', port: 0, unixPath }, (far: Connection) =>
    far.setReceiver({
      payloadFor,
      data: () => far.sendData({ ...FRAME, type: FrameType.parameters }, scratch, () => undefined),
      message: (message) => far.sendMessage(message.type === 'hello' ? WELCOME : message, NUMBERS),
      closed: () => undefined,
    }),
  );
  const link = speed && new Link(speed, processClock);
  const near = await connect({ host: '127.0.0.1', port: listener.port ?? 0, unixPath }, { deadlineMs: 5000, ...(link ? { link } : {}) });
  const begunMs = performance.now();
  let latencyMs: number | undefined;
  const pace = new RoundPace({ now: () => performance.now(), latencyMs: () => latencyMs });
  await new Promise<void>((resolve) => {
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
        if (message.type === 'welcome') latencyMs = performance.now() - begunMs;
        else pace.answered((message as { echo: number }).echo);
        if (answers++ < ANSWERS) near.sendMessage({ type: 'heartbeat', progress: 0, echo: pace.asks() }, NUMBERS);
        else begins(0);
      },
      closed: () => undefined,
    });
    near.sendMessage({ ...HELLO, incarnation: 0, fingerprint: '', layout: '' }, NUMBERS);
  });
  near.close();
  await listener.close();
  return codecPickerOf(JOB, LAYOUT, () => performance.now())!.pick([pace.pace!]);
}

test('a link of 20 Mbit/s and 30 ms has a codec, a Unix socket none', { timeout: 30_000 }, async () => {
  const slow = await picked(readEnvironment({ PACELINE_LINK: VARIABLES.PACELINE_LINK }, { PACELINE_LINK: '20mbit,30ms' }).PACELINE_LINK);
  expect(slow.kind, slow.why).toMatch(/^int/);
  expect(slow.parameters).toBe('int8');
  // 2 · 240 KB at 2.5 MB/s take 192 ms. It says so, and a machine that is busy makes it more.
  expect(slow.measured.latencyMs).toBeGreaterThan(59);
  expect(slow.measured.bytesPerSecond).toBeLessThan(3.2e6);
  expect(slow.measured.expectedMs).toBeLessThan(0.8 * slow.measured.roundMs);
  const fast = await picked();
  expect([fast.kind, fast.parameters]).toEqual(['none', 'float32']);
});

test('a spec that names its codec has nobody who picks', () => {
  expect(codecPickerOf({ ...JOB, spec: { ...JOB.spec, codec: undefined } }, LAYOUT, () => 0)).toBeUndefined();
});
