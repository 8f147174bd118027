/** The way back: shards that publish encoded parameters, and members that decode them. All have the same bits, whoever serves, joins late or goes on from a checkpoint. */
import { Member, Region, Shard, checkChunk, type Connection } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, createSchedule, shardChunks, type Layout } from '@paceline/learning';
import { FrameType, type CodecSwitch, type FrameHeader, type Message } from '@paceline/protocol';
import { parseRunSpec, type RunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import { gradientDecoderOf, parameterDecoderOf } from './run-codecs.js';
import { createShard } from './server/create-shard.js';
import { ParameterStore } from './server/parameter-store.js';

const CHUNKS = 5;
const LENGTH = 600;
const STATE = 40;
const ELEMENTS = CHUNKS * LENGTH + STATE;
const ROUNDS = 4;
const REPLICAS = 2;
const NUMBERS = { attempt: 1, term: 1, view: 1 };

function layoutOf(): { model: never; layout: Layout } {
  const initializer = { className: 'GlorotUniform', config: {} };
  const zeros = { className: 'Zeros', config: {} };
  const variables = [
    { path: 'dense/kernel', shape: [CHUNKS, LENGTH], section: 'trainable', initializer },
    { path: 'norm/mean', shape: [STATE], section: 'state', initializer: zeros },
  ];
  const model = { variables, inputs: [], outputs: [], parameterCount: CHUNKS * LENGTH, stateCount: STATE } as never;
  const trainable = Array.from({ length: CHUNKS }, (_, index) => ({
    index,
    offset: index * LENGTH,
    length: LENGTH,
    section: 'trainable' as const,
  }));
  const state = { index: CHUNKS, offset: CHUNKS * LENGTH, length: STATE, section: 'state' as const };
  return { model, layout: { ...createLayout(model), chunks: [...trainable, state] } };
}

const { model, layout } = layoutOf();

function specOf(codec: RunSpec['codec'] | object): RunSpec {
  const parsed = parseRunSpec({ codec, replicas: REPLICAS, globalBatch: 4, seed: 5, optimizer: { name: 'adam' } });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
}

/** A worker: what it has of each generation, and how many bytes came. */
class Peer {
  readonly memory = [new Uint8Array(4 * ELEMENTS), new Uint8Array(4 * ELEMENTS)];
  readonly links: ReturnType<Shard['attach']>[] = [];
  readonly frames: FrameHeader[] = [];
  private readonly member: Member;

  constructor(
    readonly id: string,
    spec: RunSpec,
    shards: readonly Shard[],
    /** What a difference is to is not there when it comes. */
    private readonly lacksBase: (header: FrameHeader) => boolean = () => false,
  ) {
    const servers = shards.length;
    const owner = (index: number): number => shards.findIndex((_, server) => shardChunks(layout, servers, server).includes(index));
    this.member = new Member({
      id,
      attempt: 1,
      servers,
      totalRounds: 100,
      chunks: layout.chunks.map(({ index, offset, length }) => ({ index, offset, length, server: owner(index) })),
      parameters: parameterDecoderOf(spec, layout, servers),
      store: { bytes: (generation) => this.memory[generation & 1]! },
      compute: { step: () => undefined, evaluate: () => undefined, committed: () => undefined },
      onEnd: () => undefined,
    });
    for (const [server, shard] of shards.entries()) {
      const pulls = (message: Message): void => {
        if (message.type === 'pull') shard.onPull(this.links[server]!, message.generation, message.chunk);
      };
      this.member.attach(server, {
        isOpen: true,
        sentBytes: 0,
        receivedBytes: 0,
        savedSentBytes: 0,
        savedReceivedBytes: 0,
        sendMessage: pulls,
      } as unknown as Connection);
      this.links.push(shard.attach(id, this.connection(server)));
    }
  }

  parameters(generation: number): Float32Array {
    return new Float32Array(this.memory[generation & 1]!.slice().buffer);
  }

  commit(round: number): void {
    this.member.message(0, { type: 'commit', round, view: 1, term: 1 });
  }

  traffic(): { toWorkersBytes: number; denseToWorkersBytes: number } {
    let heard: Extract<Message, { type: 'heartbeat' }> | undefined;
    const listener = {
      isOpen: true,
      queuedBytes: 0,
      sentBytes: 0,
      receivedBytes: 0,
      savedSentBytes: 0,
      savedReceivedBytes: 0,
      sendMessage: (m: Message) => (heard = m as never),
    };
    this.member.attach(0, listener as unknown as Connection);
    this.member.heartbeat(0);
    return heard!.traffic!;
  }

  private connection(server: number): Connection {
    return {
      isOpen: true,
      queuedBytes: 0,
      sentBytes: 0,
      savedSentBytes: 0,
      savedReceivedBytes: 0,
      receivedBytes: 0,
      sendMessage: (message: Message) => this.member.message(server, message),
      sendData: (fields: FrameHeader, payload: Uint8Array, flushed: () => void) => {
        const header = { ...fields, length: payload.length };
        this.frames.push(header);
        if (header.codec !== 0 && this.lacksBase(header)) this.member['held'].forget(header.round - 1, header.chunk);
        this.member.payloadFor(header).set(payload);
        this.member.data(header);
        flushed();
      },
      close: () => undefined,
    } as unknown as Connection;
  }
}

/** Plays the rounds; the gradient of each replica follows from what the first worker has decoded. */
function play(
  codec: object,
  servers: number,
  from: { round: number; exact: Float32Array } | undefined = undefined,
  change?: CodecSwitch,
  lacksBase?: (header: FrameHeader) => boolean,
  rounds = 100,
) {
  const spec = specOf(codec);
  const schedule = createSchedule({ examples: 400, globalBatch: 4, dropRemainder: false, length: { rounds } });
  const arenas: Arena[] = [];
  const shards = Array.from({ length: servers }, (_, index) => {
    const owned = shardChunks(layout, servers, index);
    const store = new ParameterStore({
      layout,
      model,
      owned,
      optimizer: spec.optimizer,
      seed: spec.seed,
      gradientsInFlight: 4,
      examplesIn: () => 4,
      createArena: (options) => {
        const arena = Arena.create(options);
        arenas.push(arena);
        return arena;
      },
    });
    for (const step of store.begin()) void step;
    if (from) {
      for (const [place, { index: chunk, length }] of store.chunks.entries()) {
        const { offset } = layout.chunks[chunk]!;
        store.initial[place]!.floats.set(from.exact.subarray(offset, offset + length));
      }
    }
    const job = { spec, index, attempt: 1, restore: from && { round: from.round }, codec: from && change } as never;
    const ports = { host: { frameDropped: () => undefined }, coordinator: { tell: () => undefined } };
    return createShard(job, layout, store, schedule, { ...ports, slices: undefined } as never) as Shard;
  });
  const first = new Peer('first', spec, shards, lacksBase);
  for (const shard of shards) shard.onView(1, [{ id: 'first', seat: 0, incarnation: 0, replicas: [0, 1] }]);
  const exact = (generation: number): Float32Array => {
    const whole = new Float32Array(ELEMENTS);
    for (const shard of shards) {
      const { generations, chunks } = (
        shard as unknown as { present: { generations: { find(g: number, p: number): Region }; chunks: { index: number }[] } }
      ).present;
      for (const [place, { index }] of chunks.entries())
        whole.set(generations.find(generation, place).floats, layout.chunks[index]!.offset);
    }
    return whole;
  };
  const seen: Float32Array[] = [];
  const late: Float32Array[] = [];
  const start = from?.round ?? 0;
  const exacts: Float32Array[] = [];
  for (let round = start; round < ROUNDS; round++) {
    const parameters = first.parameters(round);
    seen.push(parameters);
    exacts.push(exact(round));
    late.push(new Peer(`late-${round}`, spec, shards).parameters(round));
    for (let replica = 0; replica < REPLICAS; replica++) {
      const gradient = parameters.map((w, i) => Math.sin(i + round) * 0.1 + w * (replica + 1));
      for (const [server, shard] of shards.entries()) {
        for (const chunk of shardChunks(layout, servers, server)) {
          const { offset, length } = layout.chunks[chunk]!;
          const header = { ...NUMBERS, type: FrameType.gradient, codec: 0, flags: 0, round, chunk, length: 4 * length, payloadChecksum: 0 };
          const whole = { ...header, nodeLo: replica, nodeHi: replica + 1 } as FrameHeader;
          shard.payloadFor(first.links[server]!, whole).set(new Uint8Array(gradient.slice(offset, offset + length).buffer));
          shard.data(first.links[server]!, whole);
        }
      }
    }
    const isSaid = change && round >= change.fromRound - 2 && round < change.fromRound;
    const commit = { type: 'commit', round, view: 1, term: 1, ...(isSaid ? { codec: change } : {}) } as const;
    for (const [server, shard] of shards.entries()) shard.fromCoordinator(first.links[server]!, commit);
    first.commit(round);
  }
  const end = { exact: exact(ROUNDS), seen: first.parameters(ROUNDS) };
  for (const shard of shards) shard.end();
  // What is left is the slots of the optimizer.
  const slotBytes = arenas.reduce((sum, arena) => sum + arena.bytesInUse, 0);
  return { seen, late, exacts, first, end, slotBytes };
}

test.each(['int8', 'bf16', 'fp16'] as const)(
  '%s: one and two servers, workers that join late and an attempt that goes on publish the same bits',
  (parameters) => {
    const one = play({ parameters }, 1);
    const two = play({ parameters }, 2);
    expect(two.seen).toEqual(one.seen);
    expect(one.late).toEqual(one.seen);
    expect(two.late).toEqual(one.seen);
    const [round, exact] = [2, one.exacts[2]!];
    expect(play({ parameters }, 2, { round, exact }).seen[0]).toEqual(one.seen[round]);
    // Servers keep more digits than workers get, of all but the state.
    const differs = (i: number): boolean => one.exacts[2]![i] !== one.seen[2]![i];
    const different = Array.from({ length: ELEMENTS }, (_, i) => differs(i));
    expect(different.slice(0, CHUNKS * LENGTH).filter(Boolean).length).toBeGreaterThan(CHUNKS * LENGTH * 0.9);
    expect(different.slice(CHUNKS * LENGTH).filter(Boolean)).toEqual([]);
    expect(one.slotBytes).toBe(two.slotBytes);
  },
);

test.each(['delta-int4', 'delta-int2', 'delta-top-k'] as const)(
  '%s: all workers have the same, one and two servers and late joiners; what is left out is in the next difference, and no memory is kept',
  (parameters) => {
    const one = play({ parameters }, 1);
    const two = play({ parameters }, 2);
    expect([two.seen, one.late, two.late]).toEqual([one.seen, one.seen, one.seen]);
    // The first generation comes as it is, those after it as differences, except to who has come late.
    expect(one.seen[0]).toEqual(one.exacts[0]);
    const rounds = (frames: readonly FrameHeader[], codec: number) =>
      new Set(frames.filter((frame) => frame.codec === codec && frame.chunk !== CHUNKS).map(({ round }) => round));
    expect([rounds(two.first.frames, 0), rounds(two.first.frames, 12)]).toEqual([new Set([0]), new Set([1, 2, 3, 4])]);
    for (const generation of [1, 2, 3]) {
      const [exact, seen] = [one.exacts[generation]!, one.seen[generation]!];
      const [away, moved] = [distance(exact, seen), distance(exact, one.exacts[0]!)];
      expect(away).toBeGreaterThan(0);
      expect(away).toBeLessThan(0.9 * moved);
      expect(seen.slice(CHUNKS * LENGTH)).toEqual(exact.slice(CHUNKS * LENGTH));
    }
    expect(one.slotBytes).toBe(two.slotBytes);
    expect(one.slotBytes).toBe(play({ parameters: 'int8' }, 1).slotBytes);
  },
);

test.each(['delta-int4', 'delta-int2', 'delta-top-k'] as const)(
  '%s: the generation that the run ends with comes as it is: the evaluation measures the weights that are stored',
  (parameters) => {
    const whole = play({ parameters }, 2, undefined, undefined, undefined, ROUNDS);
    expect(whole.end.seen).toEqual(whole.end.exact);
    const longer = play({ parameters }, 2);
    expect(longer.end.seen).not.toEqual(longer.end.exact);
    expect([longer.seen, longer.end.exact, longer.slotBytes]).toEqual([whole.seen, whole.end.exact, whole.slotBytes]);
  },
);

test('a worker that lacks what a difference is to asks for the chunk, and gets it as it is', () => {
  const whole = play({ parameters: 'delta-int4' }, 1);
  const torn = play({ parameters: 'delta-int4' }, 1, undefined, undefined, ({ round, chunk }) => round === 1 && chunk === 2);
  expect(torn.seen).toEqual(whole.seen);
  const ofChunk = torn.first.frames.filter(({ chunk }) => chunk === 2).map(({ round, codec }) => [round, codec]);
  expect(ofChunk).toEqual([
    [0, 0],
    [1, 12],
    [1, 0],
    [2, 12],
    [3, 12],
    [4, 12],
  ]);
});

const distance = (a: Float32Array, b: Float32Array): number => Math.sqrt(a.reduce((sum, x, i) => sum + (x - b[i]!) ** 2, 0));

test('what was saved is counted: frames of parameters are shorter, those of state are not', () => {
  const { first } = play({ parameters: 'int8' }, 2);
  expect(first.frames.map(({ codec, chunk }) => (codec === 0) === (chunk === CHUNKS))).not.toContain(false);
  const saved = first.frames.filter(({ codec }) => codec !== 0).reduce((sum, { length }) => sum + 4 * LENGTH - length, 0);
  const { toWorkersBytes, denseToWorkersBytes } = first.traffic();
  expect([toWorkersBytes, denseToWorkersBytes]).toEqual([0, saved]);
  expect(saved).toBeGreaterThan(2.9 * LENGTH * CHUNKS * ROUNDS);
});

test('auto: parameters are encoded from the generation on that a COMMIT has named, the same by all servers, to late joiners, and in a later attempt', () => {
  const change = { kind: 'int4', parameters: 'int8', fromRound: 2 };
  const one = play({ kind: 'auto' }, 1, undefined, change);
  const two = play({ kind: 'auto' }, 2, undefined, change);
  const isExact = (generation: number) => one.seen[generation]!.every((x, i) => x === one.exacts[generation]![i]);
  expect([0, 1, 2, 3].map(isExact)).toEqual([true, true, false, false]);
  expect([two.seen, one.late, two.late]).toEqual([one.seen, one.seen, one.seen]);
  for (const round of [1, 3])
    expect(play({ kind: 'auto' }, 2, { round, exact: one.exacts[round]! }, change).seen[0]).toEqual(one.seen[round]);
  const none = play({ kind: 'auto' }, 1);
  expect(none.seen).toEqual(none.exacts);
});

test('a chunk comes in the codec of the run or not at all; one of state as it is', () => {
  const codes = (codec: object, direction: 'gradient' | 'parameters') => {
    const spec = specOf(codec);
    const decoder = direction === 'gradient' ? gradientDecoderOf(spec, layout) : parameterDecoderOf(spec, layout, 1)?.decoder;
    const check = (chunk: number, number: number, length: number): string => {
      const type = FrameType[direction];
      try {
        checkChunk({ ...NUMBERS, type, codec: number, chunk, length } as FrameHeader, type, 1, layout.chunks[chunk]!, decoder);
        return 'taken';
      } catch (error) {
        return (error as { code: string }).code;
      }
    };
    return [check(0, 3, 616), check(0, 0, 4 * LENGTH), check(CHUNKS, 3, 52), check(CHUNKS, 0, 4 * STATE), check(0, 1, 4 + 2 * LENGTH)];
  };
  expect(codes({ kind: 'int8' }, 'gradient')).toEqual(['taken', 'BAD_CODEC', 'BAD_CODEC', 'taken', 'BAD_CODEC']);
  expect(codes({ parameters: 'int8' }, 'parameters')).toEqual(['taken', 'BAD_CODEC', 'BAD_CODEC', 'taken', 'BAD_CODEC']);
  expect(codes({ kind: 'none' }, 'gradient')).toEqual(['BAD_CODEC', 'taken', 'BAD_CODEC', 'taken', 'BAD_CODEC']);
  // Before one is picked, and among those that it picks.
  expect(codes({ kind: 'auto' }, 'gradient')).toEqual(['taken', 'taken', 'BAD_CODEC', 'taken', 'taken']);
  expect(codes({ kind: 'auto' }, 'parameters')).toEqual(['taken', 'taken', 'BAD_CODEC', 'taken', 'taken']);
  // A chunk that it may make longer travels as it is.
  const asItIs = (codec: object) => codes(codec, 'gradient')[1];
  expect(asItIs({ kind: 'top-k' })).toBe('BAD_CODEC');
  expect(asItIs({ kind: 'top-k', density: 0.5 })).toBe('taken');
  expect(asItIs({ kind: 'threshold', threshold: 1 })).toBe('taken');
});
