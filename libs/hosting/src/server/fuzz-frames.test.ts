/** Frames with mistakes in them, at the parser and the dispatcher of a server, with a real shard and a real coordinator behind: each is taken, or refused with a code. */
import {
  Coordinator,
  FramedConnection,
  Journal,
  PeerTimeouts,
  Rounds,
  Shard,
  acquireRegion,
  resolveOptions,
  type ByteStream,
  type Clock,
} from '@paceline/exchange';
import { codecKey, codecOf } from '@paceline/codecs';
import { Arena, references } from '@paceline/kernels';
import { ReductionTree, validNode, type Layout } from '@paceline/learning';
import {
  FrameFlag,
  FrameType,
  HEADER_BYTES,
  ProtocolError,
  encodeHeader,
  encodeMessage,
  packedTable,
  type FrameHeader,
  type Message,
} from '@paceline/protocol';
import { CODECS, type CodecSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { gradientDecoderOf } from '../run-codecs.js';
import { WorkerReceiver } from './receivers.js';
import { randomOf } from '../random.fixture.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
/** Frames with a mistake; between them as many go without. */
const FRAMES = IS_SOAK ? 1_000_000 : 4_000;
const FRAMES_OF_A_RUN = 400;
const CHUNKS = 3;
/** A matrix of 8 × 8, which power-sgd makes half as short. */
const LENGTH = 64;
const CHUNK_BYTES = 4 * LENGTH;
const REPLICAS = 4;
const WORKERS = 2;

const random = randomOf(1);
const pick = <T>(items: readonly T[]): T => items[random(items.length)]!;

const MESSAGES: readonly Message[] = [
  { type: 'heartbeat', progress: 3, rests: false },
  { type: 'pull', generation: 0, chunk: 1 },
  { type: 'fetch', n: 1, round: 0, replica: 0 },
  { type: 'contribution', round: 0, replica: 0, examples: 2, sums: [1, 1] },
  { type: 'evaluated', generation: 0, from: 0, to: 4, examples: 4, sums: [1, 1] },
  { type: 'leave', reason: 'why' },
  { type: 'failed', code: 'X', message: 'why', round: 0, replica: 0 },
  { type: 'credit', round: 0, base: 1 },
  { type: 'dropped', round: 0, chunks: 'AQ==' },
  { type: 'tell-again' },
  { type: 'reduced', round: 0 },
];
const NUMBERS = [0, 1, 2, 3, 4, 7, 255, 256, 65_535, 65_536, 0x7fffffff, 0xffffffff];
const VALUES: readonly unknown[] = [...NUMBERS, -1, 0.5, null, '', 'x'.repeat(5_000), [], {}, [[[[]]]], true, 1e308, '__proto__'];
const HEADER_FIELDS = [
  'type',
  'codec',
  'flags',
  'attempt',
  'term',
  'view',
  'round',
  'nodeLo',
  'nodeHi',
  'chunk',
  'length',
  'payloadChecksum',
] as const;

function sealed(header: Partial<FrameHeader>, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + payload.length);
  // Chunks have a checksum here, and messages none, as over a Unix socket.
  const isControl = (header.type ?? FrameType.control) === FrameType.control;
  const flags = isControl ? 0 : FrameFlag.payloadChecksum;
  const sum = isControl ? 0 : references.checksum(payload);
  const whole = { codec: 0, flags, attempt: 1, term: 1, view: 1, round: 0, nodeLo: 0, nodeHi: 0, chunk: 0 };
  const fields = Object.assign(
    whole,
    { type: FrameType.control as FrameHeader['type'], length: payload.length, payloadChecksum: sum },
    header,
  );
  encodeHeader(fields, bytes);
  bytes.set(payload, HEADER_BYTES);
  return bytes;
}

/** One of the messages, as it may be in this round. */
function messageOf(round: number): Record<string, unknown> {
  const message: Record<string, unknown> = { ...pick(MESSAGES) };
  if ('round' in message) message['round'] = round;
  if ('replica' in message) message['replica'] = random(REPLICAS);
  return message;
}

function mutated(message: Readonly<Record<string, unknown>>): Uint8Array {
  const made = { ...message };
  for (let n = Math.max(0, random(4) - 1); n > 0; n--) made[pick([...Object.keys(made), 'other'])] = pick(VALUES);
  return encodeMessage(made as unknown as Message);
}

/** As an honest worker sends it: so that rounds go on between the mistakes. */
function goodFrame(round: number, view: number, codec: CodecSpec | undefined): Uint8Array {
  const replica = random(REPLICAS);
  const contribution: Message = { type: 'contribution', round, replica, examples: 2, sums: [1, 1] };
  if (random(3) === 0) return sealed({ type: FrameType.control, round, view }, encodeMessage(contribution));
  const { payload, ...fields } = sentOf(codec, round, replica);
  return sealed({ type: FrameType.gradient, round, view, nodeLo: replica, nodeHi: replica + 1, ...fields }, payload);
}

/** One chunk, or some of them in one frame. */
function sentOf(spec: CodecSpec | undefined, round: number, replica: number): Partial<FrameHeader> & { payload: Uint8Array } {
  const chunk = random(CHUNKS);
  const first = payloadOf(spec, round, replica, chunk);
  if (random(3) > 0 || first.codec === 0 || chunk === CHUNKS - 1) return { ...first, chunk };
  const stride = Math.min(1 + random(2), CHUNKS - 1 - chunk);
  const payloads = [first.payload];
  for (let next = chunk + stride; next < CHUNKS; next += stride) payloads.push(payloadOf(spec, round, replica, next).payload);
  const table = packedTable(
    stride,
    payloads.map(({ length }) => length),
  );
  const payload = Uint8Array.from(Buffer.concat([table, ...payloads]));
  return { codec: first.codec, flags: FrameFlag.payloadChecksum | FrameFlag.packed, chunk, payload };
}

/** Half of the runs have no codec. */
const CODEC_SPECS: readonly CodecSpec[] = CODECS.filter((kind) => kind !== 'none' && kind !== 'auto').map((kind) => ({
  kind,
  errorFeedback: false,
  ...(kind === 'threshold' ? { threshold: 1 } : kind === 'dgc' || kind === 'top-k' || kind === 'random-k' ? { density: 0.1 } : {}),
}));
const SEED = 3;
const LAYOUT = {
  variables: [{ shape: [CHUNKS * 8, 8], offset: 0, length: CHUNKS * LENGTH }],
  chunks: Array.from({ length: CHUNKS }, (_, index) => ({ index, offset: index * LENGTH, length: LENGTH, section: 'trainable' })),
} as unknown as Layout;

const scratch = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
const [gradient, encoded] = [scratch.alloc(CHUNK_BYTES), scratch.alloc(4 * CHUNK_BYTES)];

/** A gradient as a worker of the run sends it. */
function payloadOf(spec: CodecSpec | undefined, round: number, replica: number, chunk: number): { codec: number; payload: Uint8Array } {
  const values = scratch.f32(gradient, LENGTH).map(() => (random(200) - 100) / 16);
  scratch.f32(gradient, LENGTH).set(values);
  const codec = codecOf(spec, LAYOUT);
  const own = codec?.of?.(chunk) ?? codec;
  const bytes = own?.encode(scratch, gradient, encoded, LENGTH, codecKey(SEED, round, replica, chunk), 1) ?? 0;
  return bytes > 0
    ? { codec: own!.number, payload: scratch.bytes(encoded, bytes).slice() }
    : { codec: 0, payload: scratch.bytes(gradient, CHUNK_BYTES).slice() };
}

/** Flipped bits and words that matter, in a payload whose checksum is right: what the decoder has to find. */
function spoilt(sent: Uint8Array): Uint8Array {
  const payload = sent.slice();
  const view = new DataView(payload.buffer);
  for (let left = random(4); left > 0; left--) {
    const at = random(payload.length);
    if (random(2) === 0) payload[at]! ^= 1 << random(8);
    else if (payload.length >= 4) view.setUint32(Math.min(random(2) * (at & ~3), payload.length - 4), pick(WORDS), true);
  }
  return random(10) === 0 ? payload.slice(0, random(payload.length)) : payload;
}
const WORDS = [0, 1, LENGTH, LENGTH + 1, 0x7fffffff, 0xffffffff, 0x7fc00000, 0x7f800000, 0x7e967699, 0x80000000];

/** A frame with a mistake: what is sent differs from what it is made of, which is without one. */
function badFrame(round: number, codec: CodecSpec | undefined): Uint8Array {
  for (;;) {
    const isControl = random(2) === 0;
    const [lo, message] = [random(REPLICAS), messageOf(round)];
    const { payload: sent, ...fields } = isControl ? { payload: encodeMessage(message as unknown as Message) } : sentOf(codec, round, lo);
    const common = { type: isControl ? FrameType.control : FrameType.gradient, round, view: 1 + random(2), ...fields };
    const good: Partial<FrameHeader> = isControl ? common : { ...common, nodeLo: lo, nodeHi: lo + 1 };
    const header = random(4) === 0 ? { ...good, [pick(HEADER_FIELDS)]: pick(NUMBERS) } : good;
    const bytes = sealed(header, isControl ? mutated(message) : spoilt(sent));
    // What a wire does: flipped bits, and frames that are cut short.
    if (random(10) === 0) bytes[random(bytes.length)]! ^= 1 << random(8);
    const arriving = random(20) === 0 ? bytes.subarray(0, random(bytes.length)) : bytes;
    if (Buffer.compare(arriving, sealed(good, sent)) !== 0) return arriving;
  }
}

/** One run of a server, and the workers that are connected to it. */
class FuzzedRun {
  private readonly later: (() => void)[] = [];
  private readonly clock: Clock = {
    now: () => 0,
    soon: (act: () => void) => void this.later.push(act),
    after: () => () => undefined,
    every: () => () => undefined,
  } as unknown as Clock;
  readonly arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  readonly shard: Shard;
  readonly coordinator: Coordinator;
  readonly faults: unknown[] = [];
  readonly refusals = new Map<string, number>();
  private readonly connections: FramedConnection[] = [];

  constructor(readonly codec: CodecSpec | undefined) {
    const initial = Array.from({ length: CHUNKS }, () => acquireRegion(this.arena, LENGTH));
    const quiet = { isOpen: true, queuedBytes: 0, receivedBytes: 0, close: () => undefined };
    this.shard = new Shard({
      index: 0,
      attempt: 1,
      replicas: REPLICAS,
      chunks: initial.map((_, index) => ({ index, length: LENGTH, arena: this.arena })),
      initial,
      createReduction: (operations) => new ReductionTree(REPLICAS, operations),
      isValidNode: (lo, hi) => validNode(REPLICAS, lo, hi),
      store: { update: (_chunk, _round, from, to, sum) => to.floats.forEach((_, i) => (to.floats[i] = from.floats[i]! - sum.floats[i]!)) },
      coordinator: { tell: (message) => this.coordinator.serverMessage(0, message) },
      gradientWindowChunks: 2,
      decoder: gradientDecoderOf({ codec, seed: SEED }, LAYOUT),
    });
    this.coordinator = new Coordinator(
      {
        attempt: 1,
        replicas: REPLICAS,
        servers: 1,
        evalExamples: 0,
        journal: new Journal({ now: () => 0 }),
        now: () => 0,
        schedule: { totalRounds: 1_000, examplesIn: () => 8, epochOf: () => 0, replicaExamples: () => 2 },
        surroundings: {
          publishCheckpoint: () => undefined,
          collectWeights: () => undefined,
          serverBack: () => undefined,
          concluded: (end: { say(): void }) => end.say(),
          over: () => undefined,
        },
      } as never,
      Rounds as never,
    );
    const toShard = (message: Message): void => {
      if (message.type === 'view') this.shard.onView(message.view, message.members);
      else if (message.type === 'commit') this.later.push(() => this.shard.onCommit(message));
      else if (message.type === 'tell-again') this.shard.tellAgain();
    };
    this.coordinator.serverJoined(0, { ...quiet, sendMessage: toShard } as never);
    for (let seat = 0; seat < WORKERS; seat++) this.connect(seat);
  }

  /** A worker comes, or comes again. */
  private connect(seat: number): void {
    const connection = new FramedConnection(resolveOptions({ clock: this.clock, checksum: true }));
    const stream: ByteStream = {
      kind: 'unix',
      remote: `w${seat}`,
      write: (_parts, done) => void this.later.push(done),
      setReading: () => undefined,
      end: () => undefined,
      destroy: () => undefined,
    };
    connection.attach(stream);
    const id = `w${seat}`;
    const link = this.shard.attach(id, connection);
    const receiver = new WorkerReceiver(
      {
        job: { attempt: 1 },
        shard: this.shard,
        coordinator: { machine: this.coordinator },
        silence: new PeerTimeouts(this.clock, { silentAfterMs: 1_000, tickMs: 1_000 }),
        guard: (act) => {
          try {
            act();
          } catch (error) {
            if (!(error instanceof ProtocolError)) this.faults.push(error);
            throw error;
          }
        },
      },
      link,
    );
    connection.setReceiver({
      payloadFor: (header) => receiver.payloadFor(header),
      check: (header) => receiver.check(header),
      data: (header) => receiver.data(header),
      message: (message, header) => receiver.message(message, header),
      closed: (reason) => {
        const code = reason.error?.code ?? 'none';
        this.refusals.set(code, (this.refusals.get(code) ?? 0) + 1);
        receiver.closed(reason);
      },
    });
    this.connections[seat] = connection;
    if (this.coordinator.table.state === 'OVER') return;
    const names = {
      token: 't',
      run: '00000000-0000-4000-8000-000000000001',
      role: 'worker',
      host: 'h',
      fingerprint: 'f',
      layout: 'l',
    } as const;
    this.coordinator.memberJoined({ type: 'hello', ...names, id, seat, incarnation: 0 }, connection);
  }

  /** Some bytes come from a worker, in one read or in two; then everybody has a turn. */
  take(bytes: Uint8Array): void {
    const seat = random(WORKERS);
    const connection = this.connections[seat]!;
    const cut = random(bytes.length + 1);
    for (const part of [bytes.subarray(0, cut), bytes.subarray(cut)]) connection.fed(part);
    for (let turns = 0; this.later.length > 0; turns++) {
      if (turns > 10_000) throw new Error('a frame keeps the server busy for ever');
      this.later.shift()!();
    }
    if (!connection.isOpen) this.connect(seat);
  }

  end(): void {
    for (const connection of this.connections) connection.close();
    this.shard.end();
    while (this.later.length > 0) this.later.shift()!();
  }
}

/** What the process holds, in bytes: the least in a quarter of the frames, which is what was left after a collection of garbage. */
class Held {
  private readonly quarters = Array.from({ length: 4 }, () => ({ heap: Infinity, rss: Infinity }));

  look(sent: number): void {
    const { heapUsed, external, rss } = process.memoryUsage();
    const least = this.quarters[Math.min(3, Math.floor((4 * sent) / FRAMES))]!;
    least.heap = Math.min(least.heap, heapUsed + external);
    least.rss = Math.min(least.rss, rss);
  }

  /** From the second quarter, by which everything has been compiled, to the last. */
  get growth(): { readonly heap: number; readonly rss: number } {
    const [, from, , to] = this.quarters;
    return { heap: to!.heap - from!.heap, rss: to!.rss - from!.rss };
  }
}
/** In the soak 16 bytes a frame. A quarter of few frames may pass without a collection of all garbage. */
const MOST_HEAP_GROWTH = (IS_SOAK ? 8 : 32) << 20;
/** Memories of arenas that are gone leave the process when the collector comes to them. */
const MOST_RSS_GROWTH = 64 << 20;

test(`${FRAMES} frames with mistakes: nothing fails, nothing goes on for ever, and no memory is kept`, { timeout: 3_600_000 }, () => {
  const refusals = new Map<string, number>();
  let [rounds, mostBytes, sent] = [0, 0, 0];
  const held = new Held();
  while (sent < FRAMES) {
    const run = new FuzzedRun(CODEC_SPECS[random(2 * CODEC_SPECS.length)]);
    for (let i = 0; i < FRAMES_OF_A_RUN && run.coordinator.table.state !== 'OVER'; i++) {
      const { round, view } = run.shard;
      const isBad = random(2) === 0;
      run.take(isBad ? badFrame(round, run.codec) : goodFrame(round, view, run.codec));
      if (isBad) sent++;
      mostBytes = Math.max(mostBytes, run.arena.bytesInUse);
    }
    rounds += run.shard.round;
    run.end();
    expect(run.faults).toEqual([]);
    expect(run.arena.bytesInUse).toBe(0);
    for (const [code, count] of run.refusals) refusals.set(code, (refusals.get(code) ?? 0) + count);
    held.look(sent);
  }
  expect(held.growth.heap).toBeLessThan(MOST_HEAP_GROWTH);
  expect(held.growth.rss).toBeLessThan(MOST_RSS_GROWTH);
  // It is known to reach what it is for.
  expect([...refusals.keys()]).toEqual(
    expect.arrayContaining([
      'BAD_FRAME',
      'BAD_PAYLOAD',
      'BAD_CODEC',
      'BAD_CHECKSUM',
      'BAD_MESSAGE',
      'BAD_NODE',
      'BAD_ROUND',
      'STALE_FENCE',
      'UNKNOWN_CHUNK',
      'WRONG_LENGTH',
    ]),
  );
  expect(rounds).toBeGreaterThan(0);
  // Two generations, what waits in the window or is held, and one frame of each worker.
  expect(mostBytes).toBeLessThanOrEqual(CHUNK_BYTES * (2 * CHUNKS + WORKERS * 2 * (2 * REPLICAS) + WORKERS));
});
