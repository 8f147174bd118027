/**
 * The part of a checkpoint that a server writes, with what codecs keep of replicas in it: from several arenas to several servers one chunk at a time, back
 * to arenas that are cut in other places, and within a time.
 */
import { codecOf, GradientEncoder } from '@paceline/codecs';
import type { GatheredResiduals, ResidualLayout } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, shardChunks, type Layout } from '@paceline/learning';
import type { Message, MessageOf } from '@paceline/protocol';
import { parseRunSpec, type ModelDescription, type RunSpec, type RunSpecInput } from '@paceline/spec';
import { CheckpointReader, Checkpoints, type ObjectStore } from '@paceline/storage';
import { expect, test } from 'vitest';
import { residualNamesOf, residualsIn, storedResidualsOf } from '../residuals.js';
import { virtualTime } from '../virtual-time.fixture.js';
import { CheckpointWriter } from './checkpoint-writer.js';
import type { Snapshot } from './snapshot.js';

const zeros = { className: 'Zeros', config: {} };
/** Four chunks of 16,384 and one of 14,464, then one of 40 elements of state. */
const LAYOUT = createLayout({
  variables: [
    { path: 'a', shape: [500, 160], section: 'trainable', initializer: zeros },
    { path: 'b', shape: [40], section: 'state', initializer: zeros },
  ] as unknown as ModelDescription['variables'],
  parameterCount: 80_000,
  stateCount: 40,
});
const RUN_ID = '0b8f7c1e-7a53-4b0e-9d8c-3f6f1c0d2a11';
const [ATTEMPT, ROUND, REPLICAS, SERVERS] = [1, 1, 3, 2];

function specOf(input: RunSpecInput): RunSpec {
  const parsed = parseRunSpec({ replicas: REPLICAS, globalBatch: 12, seed: 5, ...input });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
}
const DGC = specOf({ codec: { kind: 'dgc', density: 0.01 }, optimizer: { name: 'sgd' } });

/** A worker whose gradients lie in an arena for each of `cuts`, with the chunks from there on. */
class Worker {
  private readonly parts: { readonly arena: Arena; readonly encoder: GradientEncoder; readonly from: number; readonly length: number }[];

  constructor(spec: RunSpec, cuts: readonly number[]) {
    const chunks = LAYOUT.chunks;
    this.parts = cuts.map((first, i) => {
      const own = chunks.slice(first, cuts[i + 1] ?? chunks.length);
      const from = own[0]!.offset;
      const length = own.reduce((sum, chunk) => sum + chunk.length, 0);
      const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 23 });
      const encoded = own.map(({ index, offset, length: n, section }) => ({
        index,
        offset: offset - from,
        length: n,
        isEncoded: section === 'trainable',
      }));
      const encoder = new GradientEncoder(codecOf(spec.codec, LAYOUT)!, arena, encoded, spec.seed, spec.codec!, REPLICAS, () => 12);
      return { arena, encoder, from, length };
    });
  }

  encode(round: number, replica: number): string[] {
    return this.parts.flatMap(({ arena, encoder, from, length }) => {
      const gradient = arena.alloc(4 * length);
      const values = arena.f32(gradient, length);
      for (let i = 0; i < length; i++) values[i] = Math.sin((from + i) * 0.37 + round + 10 * replica);
      const { pointer, offsets, lengths, lost } = encoder.encode(round, replica, gradient);
      expect(lost).toBeUndefined();
      const sent = [...lengths].map((bytes, i) => Buffer.from(arena.bytes(pointer + offsets[i]!, bytes)).toString('base64'));
      arena.free(pointer);
      arena.free(gradient);
      return sent;
    });
  }

  /** The parts of what is kept, one behind the other. */
  private eachPart(values: Float32Array, act: (encoder: GradientEncoder, part: Float32Array) => void): void {
    let at = 0;
    for (const { encoder } of this.parts) act(encoder, values.subarray(at, (at += encoder.residualFloats)));
  }

  read(replica: number, floats: number): Float32Array {
    const values = new Float32Array(floats);
    this.eachPart(values, (encoder, part) => expect(encoder.readResidual(ROUND - 1, replica, part)).toBe(true));
    return values;
  }

  take(replica: number, values: Float32Array): void {
    this.eachPart(values, (encoder, part) => encoder.takeResidual(ROUND - 1, replica, part));
  }
}

/** Objects in memory. */
class MemoryStore implements ObjectStore {
  readonly kind = 'local';
  readonly place = 'memory';
  private readonly objects = new Map<string, Buffer>();

  identity = (): Promise<string> => Promise.resolve('memory');

  async put(key: string, body: Parameters<ObjectStore['put']>[1]): Promise<{ bytes: number; sha256: string }> {
    const pieces: Buffer[] = [];
    for await (const piece of body) pieces.push(Buffer.from(piece));
    const bytes = Buffer.concat(pieces);
    this.objects.set(key, bytes);
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    return { bytes: bytes.length, sha256: Buffer.from(digest).toString('hex') };
  }

  read = (key: string, from = 0, to?: number): Promise<Uint8Array> => Promise.resolve(this.objects.get(key)!.subarray(from, to));

  async *stream(key: string): AsyncIterable<Uint8Array> {
    yield await this.read(key);
  }

  list = (prefix: string): Promise<{ key: string; bytes: number }[]> =>
    Promise.resolve([...this.objects].filter(([key]) => key.startsWith(prefix)).map(([key, { length }]) => ({ key, bytes: length })));

  remove = (): Promise<void> => Promise.resolve();
  removeUnfinished = (): Promise<number> => Promise.resolve(0);
}

/** What a shard gathers: chunk by chunk of what the worker has, and of `stuck` replicas nothing ever. */
function gatheredOf(server: number, residuals: ResidualLayout, kept: ReadonlyMap<number, Float32Array>, stuck: readonly number[] = []) {
  const chunks = residuals.kept(shardChunks(LAYOUT, SERVERS, server));
  const names = [...kept.keys()].flatMap((replica) => chunks.map((chunk) => ({ round: ROUND - 1, replica, chunk })));
  let giveUp = (): void => undefined;
  const abandoned = new Promise<void>((resolve) => (giveUp = resolve));
  const gathered: GatheredResiduals = {
    names,
    lengthOf: ({ chunk }) => residuals.lengthOf(chunk),
    read: async (piece) => {
      const { replica, chunk } = names[piece]!;
      if (stuck.includes(replica)) return abandoned.then(() => undefined);
      return residuals.part(kept.get(replica)!, chunk);
    },
    abandon: giveUp,
  };
  return gathered;
}

const snapshotOf = (server: number): Snapshot =>
  ({
    generation: ROUND,
    abandoned: new AbortController(),
    tensors: () => [{ name: `parameters/${server}`, shape: [1], read: () => new Uint8Array(4) }],
    abandon: () => undefined,
  }) as unknown as Snapshot;

function writing(store: ObjectStore, server: number, needsResiduals = false) {
  const time = virtualTime();
  let tell = (_message: Message): void => undefined;
  const told = new Promise<Message>((resolve) => (tell = resolve));
  const writer = new CheckpointWriter({
    checkpoints: new Checkpoints(store),
    runId: RUN_ID,
    attempt: ATTEMPT,
    index: server,
    servers: SERVERS,
    needsResiduals,
    clock: time.clock,
    residualsWithinMs: 1000,
    tell,
  });
  return { writer, told, time };
}

/** Of the manifest what is read of it. */
function readerOf(store: ObjectStore, parts: readonly MessageOf<'part-written'>[], residuals: ResidualLayout): CheckpointReader {
  const shards = parts.map(({ file }) => ({
    ...file,
    tensors: [...file.tensors, ...residualNamesOf(residuals, LAYOUT, SERVERS, file.server)],
  }));
  const missing = new Set(parts.flatMap((part) => part.missing ?? []));
  const whole = Array.from({ length: REPLICAS }, (_, replica) => replica).filter((replica) => !missing.has(replica));
  return new CheckpointReader(store, { runId: RUN_ID, attempt: ATTEMPT, round: ROUND, residuals: whole, shards } as never, 'ab'.repeat(32));
}

test('what several arenas keep is in the parts of two servers, and goes on in arenas that are cut elsewhere', async () => {
  const residuals = storedResidualsOf(DGC, LAYOUT, SERVERS)!;
  expect(residuals.totalLength).toBe(2 * 80_000);
  const worker = new Worker(DGC, [0, 2, 4]);
  const kept = new Map<number, Float32Array>();
  for (let replica = 0; replica < REPLICAS; replica++) {
    worker.encode(ROUND - 1, replica);
    kept.set(replica, worker.read(replica, residuals.totalLength));
  }
  const store = new MemoryStore();
  const parts: MessageOf<'part-written'>[] = [];
  for (let server = 0; server < SERVERS; server++) {
    const { writer, told } = writing(store, server);
    writer.start(snapshotOf(server), gatheredOf(server, residuals, kept));
    const message = (await told) as MessageOf<'part-written'>;
    expect(message).toMatchObject({ type: 'part-written', missing: [] });
    expect(message.file.tensors, 'names of residuals do not travel').toEqual([`parameters/${server}`]);
    parts.push(message);
  }
  const reader = readerOf(store, parts, residuals);
  const stored = residualsIn(reader, { runId: RUN_ID, spec: DGC }, (error) => {
    throw error;
  })!;
  const next = new Worker(DGC, [0, 1, 3, 5]);
  for (let replica = 0; replica < REPLICAS; replica++) {
    const values = new Float32Array(residuals.totalLength);
    for (const chunk of residuals.kept(LAYOUT.chunks.map(({ index }) => index)))
      residuals.part(values, chunk).set((await stored.read(replica, chunk))!);
    next.take(replica, values);
    expect(next.encode(ROUND, replica).join()).toBe(worker.encode(ROUND, replica).join());
  }
});

test('a run beyond the bounds of a server stores none of it', () => {
  const bytes = 4 * 2 * REPLICAS * 3 * 16_384;
  const layoutOf = (bounds?: { bytes: number; tensors: number }, layout: Layout = LAYOUT) =>
    storedResidualsOf(DGC, layout, SERVERS, bounds);
  expect(layoutOf({ bytes, tensors: 9 })).toBeDefined();
  expect(layoutOf({ bytes: bytes / 2, tensors: 9 })).toBeUndefined();
  expect(layoutOf({ bytes, tensors: 5 })).toBeUndefined();
});

test.each([false, true])(
  'what does not come in time is written as zeros, and its replica is missing; with EF21 (%s) the part fails',
  async (isNeeded) => {
    const residuals = storedResidualsOf(DGC, LAYOUT, SERVERS)!;
    const kept = new Map([0, 1].map((replica) => [replica, new Float32Array(residuals.totalLength).fill(7)]));
    const store = new MemoryStore();
    const { writer, told, time } = writing(store, 0, isNeeded);
    writer.start(snapshotOf(0), gatheredOf(0, residuals, kept, [1]));
    let isOver = false;
    void told.then(() => (isOver = true));
    await time.run(999);
    expect(isOver).toBe(false);
    await time.run(1000);
    const message = await told;
    if (isNeeded) expect(message).toMatchObject({ type: 'part-failed', code: 'CHECKPOINT_INCOMPLETE' });
    else expect(message).toMatchObject({ type: 'part-written', missing: [1] });
    const after = writing(store, 0, isNeeded);
    after.writer.start(snapshotOf(0), gatheredOf(0, residuals, kept));
    expect(await after.told, 'in time').toMatchObject({ type: 'part-written', missing: [] });
  },
);
