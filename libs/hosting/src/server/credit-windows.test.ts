/** 64 workers of one replica each and of unlike speed push into one shard: its memory is that of its windows, whoever is ahead. */
import { codecOf } from '@paceline/codecs';
import { chunksOf, Member, Shard, type ChunkDecoder, type Connection, type GradientNode } from '@paceline/exchange';
import { Arena, type ArenaOptions } from '@paceline/kernels';
import { ReductionTree, createLayout, validNode, type Layout } from '@paceline/learning';
import type { FrameHeader, Message } from '@paceline/protocol';
import { parseRunSpec, serverBytes, type CodecSpec, type OptimizerSpec, type RunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { gradientDecoderOf } from '../run-codecs.js';
import { copiesInFlight, gradientWindowChunks, windowOf } from './create-shard.js';
import { ParameterStore } from './parameter-store.js';

const WORKERS = 64;
const ROUNDS = 2;
const ADAM: OptimizerSpec = { name: 'adam', learningRate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 };
const SYNC = { replicas: WORKERS, strategy: { mode: 'sync', backupReplicas: 0 } } as unknown as RunSpec;

/** One variable of equal chunks. @param length elements of a chunk */
function layoutOf(chunks: number, length: number): { model: never; layout: Layout } {
  const initializer = { className: 'GlorotUniform', config: {} };
  const variable = { path: 'dense/kernel', shape: [chunks, length], section: 'trainable', initializer } as const;
  const model = { variables: [variable], inputs: [], outputs: [], parameterCount: chunks * length, stateCount: 0 } as never;
  const pieces = Array.from({ length: chunks }, (_, index) => ({ index, offset: index * length, length, section: 'trainable' as const }));
  return { model, layout: { ...createLayout(model), chunks: pieces } };
}

interface Pushed {
  readonly header: FrameHeader;
  readonly bytes: Uint8Array;
  flushed(): void;
}

/** What a worker has sent and the shard has not read yet; of one frame it has read the header. */
class Wire {
  readonly queue: Pushed[] = [];
  private coming: Pushed | undefined;

  /** One step of the shard's socket: the end of a frame, and the header of the next one. False when nothing is there. */
  read(shard: Shard, link: Parameters<Shard['data']>[0]): boolean {
    const { coming } = this;
    if (coming) {
      shard.data(link, coming.header);
      coming.flushed();
    }
    this.coming = this.queue.shift();
    if (this.coming) shard.payloadFor(link, this.coming.header).set(this.coming.bytes);
    return coming !== undefined || this.coming !== undefined;
  }
}

interface Played {
  readonly weights: Uint8Array;
  readonly peakBytes: number;
}

interface Setting {
  readonly chunks: number;
  readonly length: number;
  readonly windowChunks: number;
  createArena(options: ArenaOptions): Arena;
  /** What all workers send. Left out: a gradient as float32. */
  readonly chunk?: GradientNode['chunk'];
  readonly decoder?: ChunkDecoder | undefined;
}

const gradientBytes = (elements: number): Uint8Array =>
  new Uint8Array(Float32Array.from({ length: elements }, (_, i) => ((i % 97) - 48) / 7).buffer);

/** Plays the rounds to their end. Workers of even seats send whatever they may at once, the others a chunk in each turn. */
function play({ chunks, length, windowChunks, createArena, chunk = chunksOf(gradientBytes(chunks * length)), decoder }: Setting): Played {
  const { layout, model } = layoutOf(chunks, length);
  const arenas: Arena[] = [];
  const store = new ParameterStore({
    layout,
    model,
    owned: layout.chunks.map(({ index }) => index),
    optimizer: ADAM,
    seed: 1,
    gradientsInFlight: 1,
    window: { chunks: windowChunks, bytesOf: () => 4 * length * WORKERS },
    examplesIn: () => WORKERS,
    createArena: (options) => {
      const arena = createArena(options);
      arenas.push(arena);
      return arena;
    },
  });
  for (const step of store.begin()) void step;
  const shard = new Shard({
    index: 0,
    attempt: 1,
    replicas: WORKERS,
    chunks: store.chunks,
    initial: store.initial,
    createReduction: (operations) => new ReductionTree(WORKERS, operations),
    isValidNode: (lo, hi) => validNode(WORKERS, lo, hi),
    store,
    coordinator: { tell: () => undefined },
    gradientWindowChunks: windowChunks,
    decoder,
  });
  const members = Array.from({ length: WORKERS }, (_, seat) => ({ id: `w${seat}`, seat, incarnation: 0, replicas: [seat] }));
  // All have the same memory: they are sent the same.
  const bytes = 4 * chunks * length;
  const memory = [new Uint8Array(bytes), new Uint8Array(bytes)];
  shard.onView(1, members);
  const workers = members.map(({ id, seat }) => {
    const wire = new Wire();
    const nodes: GradientNode[] = [];
    const member = new Member({
      id,
      attempt: 1,
      servers: 1,
      totalRounds: ROUNDS,
      chunks: layout.chunks.map((chunk) => ({ ...chunk, server: 0 })),
      store: { bytes: (generation) => memory[generation & 1]! },
      compute: {
        step: (round) => void nodes.push({ round, lo: seat, hi: seat + 1, chunk, release: () => undefined }),
        evaluate: () => undefined,
        committed: () => undefined,
      },
      onEnd: () => undefined,
    });
    const toShard = {
      isOpen: true,
      queuedBytes: 0,
      sendMessage: () => undefined,
      sendData: (header: object, data: Uint8Array, flushed: () => void) =>
        void wire.queue.push({
          header: { flags: 0, payloadChecksum: 0, length: data.byteLength, ...header } as FrameHeader,
          bytes: data,
          flushed,
        }),
    } as unknown as Connection;
    const toMember = {
      isOpen: true,
      queuedBytes: 0,
      sendMessage: (message: Message) => member.message(0, message),
      sendData: (header: object, data: Uint8Array, flushed: () => void) => {
        const whole = { flags: 0, payloadChecksum: 0, length: data.byteLength, ...header } as FrameHeader;
        member.payloadFor(whole).set(data);
        member.data(whole);
        flushed();
      },
      close: () => undefined,
    } as unknown as Connection;
    member.attach(0, toShard);
    const link = shard.attach(id, toMember);
    member.message(0, { type: 'view', view: 1, term: 1, round: 0, members });
    return { seat, member, wire, nodes, link };
  });
  let peakBytes = 0;
  const note = (): void =>
    void (peakBytes = Math.max(
      peakBytes,
      arenas.reduce((sum, arena) => sum + arena.bytesInUse, 0),
    ));
  /** Until nothing moves. */
  const turns = (): void => {
    for (let moves = true; moves;) {
      moves = false;
      for (const { seat, member, wire, nodes, link } of workers) {
        for (const node of nodes.splice(0)) member.node(node);
        const isFast = seat % 2 === 0;
        while (wire.read(shard, link)) {
          moves = true;
          note();
          if (!isFast) break;
        }
      }
    }
  };
  for (let round = 0; round < ROUNDS; round++) {
    turns();
    expect(shard.table.state).toBe('REDUCED');
    const commit = { type: 'commit', round, view: 1, term: 1, ...(round === ROUNDS - 1 ? { last: true } : {}) } as const;
    // The members hear it first: what they push of the next round is held.
    for (const { member } of workers) member.message(0, commit);
    turns();
    shard.onCommit(commit);
  }
  const weights = memory[ROUNDS & 1]!;
  shard.end();
  return { weights, peakBytes };
}

/** Bytes that a shard may take: two generations, slots, and its windows. */
const boundOf = (chunks: number, length: number, windowChunks: number): number => 4 * length * (chunks * (2 + 2) + windowChunks * WORKERS);

test('a shard whose arena has room for its windows takes 64 workers of unlike speed, and the bits are those of workers that are in step', () => {
  const [chunks, length, windowChunks] = [24, 64, 2];
  const bound = boundOf(chunks, length, windowChunks);
  const sizeBytes = Math.floor(1.2 * bound);
  const { weights, peakBytes } = play({
    chunks,
    length,
    windowChunks,
    createArena: () => Arena.create({ initialBytes: sizeBytes, maximumBytes: sizeBytes }),
  });
  expect(peakBytes).toBeLessThanOrEqual(bound);
  const roomy = play({
    chunks,
    length,
    windowChunks: chunks,
    createArena: () => Arena.create({ initialBytes: 1 << 24, maximumBytes: 1 << 24 }),
  });
  expect(roomy.peakBytes).toBeGreaterThan(1.5 * sizeBytes);
  expect(Buffer.compare(weights, roomy.weights)).toBe(0);
});

/** The gradient as a codec sends it, and as servers decode that. */
function sentAs(spec: CodecSpec, layout: Layout, length: number): Pick<Setting, 'chunk' | 'decoder'> & { readonly decoded: Uint8Array } {
  const codec = codecOf(spec)!;
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const [from, to, back] = [arena.alloc(4 * length), arena.alloc(codec.maxBytes(length)), arena.alloc(4 * length)];
  const decoded = gradientBytes(layout.chunks.length * length);
  const payloads = layout.chunks.map(({ index }) => {
    const own = decoded.subarray(4 * length * index, 4 * length * (index + 1));
    arena.bytes(from, 4 * length).set(own);
    const bytes = codec.encode(arena, from, to, length, 0, 1);
    codec.decode(arena, to, bytes, back, length, 0);
    own.set(arena.bytes(back, 4 * length));
    return arena.bytes(to, bytes).slice();
  });
  const chunk: GradientNode['chunk'] = ({ index }) => ({ codec: codec.number, bytes: payloads[index]! });
  return { chunk, decoder: gradientDecoderOf({ codec: spec, seed: 1 }, layout), decoded };
}

test('encoded gradients that wait take what they came in: the memory is that which is planned with the codec, and the bits are those of decoding first', () => {
  const [chunks, length] = [12, 4096];
  const codec: CodecSpec = { kind: 'top-k', density: 0.01, errorFeedback: false };
  const { layout } = layoutOf(chunks, length);
  const { bytesOf } = windowOf({ ...SYNC, codec } as RunSpec, layout, [0])!;
  const windowChunks = 4;
  // Of the chunk that is being applied there is a sum.
  const bound = 4 * length * (chunks * (2 + 2) + 1) + windowChunks * bytesOf(0);
  expect(bytesOf(0)).toBeLessThan((4 * length * WORKERS) / 3);
  const { decoded, ...sent } = sentAs(codec, layout, length);
  const createArena = (): Arena => Arena.create({ initialBytes: 1 << 24, maximumBytes: 1 << 24 });
  const encoded = play({ chunks, length, windowChunks, createArena, ...sent });
  expect(encoded.peakBytes).toBeLessThanOrEqual(bound);
  const dense = play({ chunks, length, windowChunks, createArena, chunk: chunksOf(decoded) });
  expect(dense.peakBytes).toBeGreaterThan(bound);
  expect(Buffer.compare(encoded.weights, dense.weights)).toBe(0);
});

test.each([
  // replicas, MiB of a chunk, chunks, window
  [2, 1, 100, 16],
  [16, 1, 100, 16],
  [32, 1, 100, 8],
  [64, 1, 64, 4],
  [1024, 1, 64, 1],
  [2, 1 / 16, 15, 15],
  [2, 1 / 16, 1000, 256],
  [1, 32, 10, 1],
])('of %d replicas and chunks of %d MiB, %d of them: a window of %d', (replicas, chunkMiB, chunks, window) => {
  const spec = { ...SYNC, replicas } as RunSpec;
  expect(gradientWindowChunks(spec, new Array<number>(chunks).fill(replicas * chunkMiB * 2 ** 20))).toBe(window);
});

test.each([
  [{ parameters: 'float32' }, 0],
  [{ parameters: 'int8' }, 0.5125],
  [{ parameters: 'delta-int4' }, 2.2625],
  [{ parameters: 'delta-top-k', parameterDensity: 0.5 }, 4.25],
])('arenas have room for the copies that the memory of a server is computed with: %j', (codec, copies) => {
  const specOf = (given: object): RunSpec => {
    const parsed = parseRunSpec({ codec: given });
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
    return parsed.spec;
  };
  const [spec, plain] = [specOf(codec), specOf({})];
  expect(copiesInFlight(spec) - copiesInFlight(plain)).toBeCloseTo(copies, 6);
  expect((serverBytes(spec, 0, 2 ** 20) - serverBytes(plain, 0, 2 ** 20)) / 2 ** 22).toBeCloseTo(copies, 6);
});

test('a window of encoded gradients has more chunks in the same memory; state travels as it is', () => {
  const { layout } = layoutOf(64, 2 ** 18);
  const all = layout.chunks.map(({ index }) => index);
  const spec = { ...SYNC, codec: { kind: 'top-k', density: 0.01, errorFeedback: false } } as RunSpec;
  expect([windowOf(SYNC, layout, all)!.chunks, windowOf(spec, layout, all)!.chunks]).toEqual([4, 15]);
  const withState = {
    ...layout,
    chunks: layout.chunks.map((chunk) => (chunk.index === 63 ? { ...chunk, section: 'state' as const } : chunk)),
  };
  expect(windowOf(spec, withState, all)!.chunks).toBe(4);
});

test('backup replicas, and modes without rounds, have no window', () => {
  const lengths = new Array<number>(100).fill(2 ** 18);
  expect(gradientWindowChunks({ replicas: 4, strategy: { mode: 'sync', backupReplicas: 1 } } as unknown as RunSpec, lengths)).toBe(100);
  expect(gradientWindowChunks({ replicas: 4, strategy: { mode: 'async' } } as unknown as RunSpec, lengths)).toBe(100);
});

test.runIf(process.env['PACELINE_SOAK'] === '1')('a shard of 64 MiB, in the arenas that it plans', { timeout: 600_000 }, () => {
  const [chunks, length] = [64, 1 << 18];
  const windowChunks = gradientWindowChunks(SYNC, new Array<number>(chunks).fill(4 * length * WORKERS));
  expect(windowChunks).toBe(4);
  const { peakBytes } = play({ chunks, length, windowChunks, createArena: (options) => Arena.create(options) });
  process.stdout.write(`64 workers, 64 MiB, adam: at most ${(peakBytes / 2 ** 20).toFixed(0)} MiB\n`);
  expect(peakBytes).toBeLessThan(1.2 * boundOf(chunks, length, windowChunks));
});
