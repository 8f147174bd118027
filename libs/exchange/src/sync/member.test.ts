import { expect, test } from 'vitest';
import type { Message } from '@paceline/protocol';
import { FrameType } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { Member } from './member.js';
import { chunksOf } from '../transfer/chunks.js';
import { ResidualLayout } from '../transfer/residuals.js';

const BYTES = 16;

/** A member of one server, in round 0, whose replica is computed: what it sends from now on. */
function setUp(flushes = true, keepsEstimates = false) {
  const sent: string[] = [];
  const waiting: (() => void)[] = [];
  const messages: Message[] = [];
  const evaluated: number[] = [];
  const connection = {
    isOpen: true,
    queuedBytes: 0,
    remote: '10.0.0.1:7000',
    sentBytes: 1000,
    savedSentBytes: 0,
    savedReceivedBytes: 0,
    receivedBytes: 0,
    sendMessage: (message: Message) => void (sent.push(message.type), messages.push(message)),
    sendData: (_: unknown, __: unknown, onFlushed?: () => void) => {
      sent.push('gradient');
      if (flushes) onFlushed?.();
      else waiting.push(onFlushed!);
    },
  } as unknown as Connection;
  const memory = [new Uint8Array(BYTES), new Uint8Array(BYTES)];
  const sums: number[][] = [];
  const arrivals: unknown[][] = [];
  const member = new Member({
    id: 'w',
    attempt: 1,
    servers: 1,
    totalRounds: 3,
    chunks: [{ index: 0, offset: 0, length: BYTES / 4, server: 0 }],
    store: { bytes: (generation) => memory[generation & 1]! },
    compute: {
      step: () => undefined,
      evaluate: (generation) => void evaluated.push(generation),
      committed: () => undefined,
      arrivals: {
        opens: (generation, kept) => void arrivals.push(['opens', generation, ...kept]),
        came: (...of) => void arrivals.push(['came', ...of]),
        gone: (...of) => void arrivals.push(['gone', ...of]),
      },
    },
    onEnd: () => undefined,
    keepsEstimates,
    firstOfSums: (replicas) => (sums.push([...replicas]), [0]),
  });
  const own = [{ id: 'w', seat: 0, incarnation: 0, replicas: [0, 1] }];
  const view = (number: number, members = own) => member.message(0, { type: 'view', view: number, term: 1, round: 0, members });
  const flush = (): void => {
    for (const done of waiting.splice(0)) done();
  };
  const node = (replica: number) => {
    member.contribution(0, replica, 4, [1, 1]);
    member.node({ round: 0, lo: replica, hi: replica + 1, chunk: chunksOf(new Uint8Array(BYTES)), release: () => undefined });
  };
  member.attach(0, connection);
  member.message(0, {
    type: 'welcome',
    id: 'w',
    server: 0,
    round: 0,
    view: 1,
    term: 1,
    applied: '',
    window: 1,
    base: 0,
    phase: 'training',
  });
  const parameters = (round: number): void => {
    const header = { type: FrameType.parameters, codec: 0, attempt: 1, term: 1, view: 1, round, chunk: 0, length: BYTES };
    member.payloadFor(header as never);
    member.data(header as never);
  };
  parameters(0);
  view(1);
  node(0);
  sent.length = 0;
  const take = (): string[] => sent.splice(0);
  return {
    member,
    messages,
    evaluated,
    sums,
    arrivals,
    memory,
    parameters,
    take,
    view,
    node,
    flush,
    tellAgain: () => member.message(0, { type: 'tell-again' }),
  };
}

test('a new view has nothing sent again, whoever it names; TELL-AGAIN has, and a server that has dropped something', () => {
  const { member, take, view, node, tellAgain } = setUp();
  view(2);
  view(4, []);
  view(5);
  expect(take()).toEqual([]);
  tellAgain();
  expect(take()).toEqual(['contribution', 'gradient']);
  node(1);
  take();
  // Bit 0, of the chunk that there is; and those of another round.
  member.message(0, { type: 'dropped', round: 0, chunks: 'AA==' });
  member.message(0, { type: 'dropped', round: 1, chunks: 'AQ==' });
  expect(take()).toEqual([]);
  member.message(0, { type: 'dropped', round: 0, chunks: 'AQ==' });
  expect(take()).toEqual(['gradient', 'gradient']);
});

test('a loss that was made in a round which is over by then is told with the next contribution of its replica', () => {
  const { member, messages, view, parameters } = setUp();
  const losses = () =>
    messages.flatMap((message) => (message.type === 'contribution' ? [[message.round, message.replica, message.lost]] : []));
  member.message(0, { type: 'commit', round: 0, view: 1, members: [] } as never);
  // Computed for round 0, whose gradient another worker has sent; what it leaves is what round 1 begins with.
  member.contribution(0, 1, 4, [1, 1], 'absent');
  parameters(1);
  view(2);
  member.contribution(1, 1, 4, [1, 1]);
  member.contribution(1, 0, 4, [1, 1]);
  member.contribution(1, 1, 4, [1, 1]);
  expect(losses().slice(1)).toEqual([
    [1, 1, 'absent'],
    [1, 0, undefined],
    [1, 1, undefined],
  ]);
});

test('a compute thread hears which chunks lie in the vectors, and before they are written anew', () => {
  const { member, arrivals, parameters } = setUp();
  expect(arrivals.splice(0)).toEqual([
    ['opens', 0],
    ['came', 0, 0],
  ]);
  parameters(1);
  const { id, ...rest } = { id: 'w', server: 0, round: 0, view: 1, applied: '', window: 1, base: 0 };
  member.message(0, { type: 'welcome', id, ...rest, term: 2, phase: 'training' });
  const header = { type: FrameType.parameters, codec: 0, attempt: 1, term: 2, view: 1, round: 1, chunk: 0, length: BYTES };
  member.payloadFor(header as never);
  expect(arrivals.splice(0)).toEqual([
    ['opens', 1],
    ['came', 1, 0],
    ['gone', 1, 0],
  ]);
  member.data(header as never);
  expect(arrivals.splice(0)).toEqual([['came', 1, 0]]);
  // A copy that nobody wants goes elsewhere.
  member.payloadFor(header as never);
  member.data(header as never);
  member.payloadFor({ ...header, round: 2 } as never);
  expect(arrivals.splice(0)).toEqual([['opens', 2]]);
});

test('a gradient that still lies in the queue is not put there again', () => {
  const { take, tellAgain, flush, node } = setUp(false);
  node(1);
  tellAgain();
  expect(take().filter((each) => each === 'gradient')).toHaveLength(1);
  flush();
  tellAgain();
  expect(take().filter((each) => each === 'gradient')).toHaveLength(2);
});

test('a chunk that does not come is pulled when the round stands still, of a generation that is to be measured too', () => {
  const { member, messages, evaluated, parameters, tellAgain } = setUp();
  const pulls = (): Message[] => messages.filter(({ type }) => type === 'pull');
  tellAgain();
  member.message(0, { type: 'evaluate', generation: 1, blocks: [{ from: 0, to: 4 }] });
  expect([pulls(), evaluated]).toEqual([[], []]);
  tellAgain();
  expect(pulls()).toEqual([{ type: 'pull', generation: 1, chunk: 0 }]);
  parameters(1);
  member.evaluated(1, 0, 4, 0, [0, 0]); // it was not measured
  tellAgain();
  expect([evaluated, pulls().length, messages.filter(({ type }) => type === 'evaluated')]).toEqual([[1], 1, []]);
});

test('of gradients that are encoded one by one those count as what they save that would be sent without a codec', () => {
  const { member, messages, node } = setUp();
  node(1);
  member.heartbeat(1);
  // Replica 0 stands for the sum of both; the frame of replica 1, a header and its chunk, would not be there.
  expect(messages.at(-1)).toMatchObject({ traffic: { toServersBytes: 1000, denseToServersBytes: 1000 - 44 - BYTES } });
});

test('what a worker would add up is computed once for the replicas that it has, not for each gradient', () => {
  const { sums, view, node } = setUp();
  node(1);
  view(2, [{ id: 'w', seat: 0, incarnation: 0, replicas: [0, 1, 2, 3] }]);
  for (const replica of [2, 3]) node(replica);
  expect(sums).toEqual([
    [0, 1],
    [0, 1, 2, 3],
  ]);
});

test('whether a chunk is kept is decided when its header comes: a copy of what was there does not count when that is let go meanwhile', () => {
  const { member, messages, evaluated, memory, parameters, tellAgain } = setUp();
  parameters(1);
  const header = { type: FrameType.parameters, codec: 0, attempt: 1, term: 1, view: 1, round: 1, chunk: 0, length: BYTES };
  const destination = member.payloadFor(header as never);
  expect(destination.buffer).not.toBe(memory[1]!.buffer);
  // Another server leads: what its primary had of the generation that is not committed is asked for again.
  const { id, ...rest } = { id: 'w', server: 0, round: 0, view: 1, applied: '', window: 1, base: 0 };
  member.message(0, { type: 'welcome', id, ...rest, term: 2, phase: 'training' });
  member.message(0, { type: 'evaluate', generation: 1, blocks: [{ from: 0, to: 4 }] });
  member.data(header as never);
  expect(evaluated, 'the copy lies elsewhere').toEqual([]);
  tellAgain();
  expect(messages.filter(({ type }) => type === 'pull')).toEqual([{ type: 'pull', generation: 1, chunk: 0 }]);
});

const connectionOf = (messages: Message[]): Connection =>
  ({
    isOpen: true,
    queuedBytes: 0,
    sentBytes: 0,
    savedSentBytes: 0,
    savedReceivedBytes: 0,
    receivedBytes: 0,
    sendMessage: (message: Message) => void messages.push(message),
  }) as never;
const welcomeOf = (server: number, round: number, more: object = {}): Message =>
  ({ type: 'welcome', id: 'w', server, round, view: 1, term: 1, applied: '', window: 8, base: 0, phase: 'training', ...more }) as Message;
const headerOf = (type: number, round: number, chunk: number, nodeHi = 0): never =>
  ({ type, codec: 0, attempt: 1, term: 1, view: 1, round, chunk, nodeLo: 0, nodeHi, length: BYTES }) as never;

/** A member whose codec keeps something, in round 5: what it sends, computes, and takes over. @param late replicas whose contributions do not come */
function keeping(replicas: number[], { late = [] as readonly number[], ofRun = 4, welcome = {} } = {}) {
  const messages: Message[] = [];
  const residuals: (readonly [number, number, number])[] = [];
  const connection = {
    ...connectionOf(messages),
    sendData: ({ round, nodeLo }: { round: number; nodeLo: number }, bytes: Uint8Array, onFlushed?: () => void) => {
      residuals.push([round, nodeLo, bytes.length]);
      onFlushed?.();
    },
  } as never;
  const memory = [new Uint8Array(BYTES), new Uint8Array(BYTES)];
  const [steps, taken]: [(readonly [number, readonly number[]])[], (readonly [number, number])[]] = [[], []];
  const member = new Member({
    id: 'w',
    attempt: 1,
    servers: 1,
    totalRounds: 10,
    chunks: [{ index: 0, offset: 0, length: BYTES / 4, server: 0 }],
    store: { bytes: (generation) => memory[generation & 1]! },
    compute: {
      step: (round, replicasOf) => {
        steps.push([round, replicasOf]);
        for (const replica of replicasOf) if (!late.includes(replica)) member.contribution(round, replica, 4, [1, 1]);
      },
      evaluate: () => undefined,
      committed: () => undefined,
      readResiduals: (round, of) =>
        void member.residuals(
          round,
          of.map((replica) => ({ replica, values: new Float32Array(BYTES / 4) })),
        ),
      takeResidual: (round, { replica }) => void taken.push([round, replica]),
    },
    residuals: new ResidualLayout([BYTES / 4], ofRun),
    onEnd: () => undefined,
  });
  member.attach(0, connection);
  member.message(0, welcomeOf(0, 5, welcome));
  member.message(0, { type: 'view', view: 1, term: 1, round: 5, members: [{ id: 'w', seat: 0, incarnation: 0, replicas }] });
  const come = (header: never): void => {
    member.payloadFor(header);
    member.data(header);
  };
  come(headerOf(FrameType.parameters, 5, 0));
  /** The next round, with these replicas of which `handedOn` were another's, or will be. */
  const commit = (round: number, own: number[], handedOn?: number[]): void => {
    const members = [{ id: 'w', seat: 0, incarnation: 0, replicas: own }];
    member.message(0, { type: 'commit', round, view: round, term: 1, members, ...(handedOn ? { handedOn } : {}) });
    come(headerOf(FrameType.parameters, round + 1, 0));
  };
  const pulls = () => messages.flatMap((message) => (message.type === 'residual-pull' ? [[message.round, message.replica]] : []));
  return { member, messages, residuals, steps, taken, come, commit, pulls };
}

const residual = (round: number, replica: number, length = BYTES): never =>
  ({ ...(headerOf(FrameType.residual, round, 0, replica + 1) as object), nodeLo: replica, length }) as never;

test('what was kept of a replica is taken from the worker that had it, before it is computed; its own is handed on until the next COMMIT', () => {
  const { member, messages, residuals, steps, taken, come, commit, pulls } = keeping([0, 1]);
  expect(steps).toEqual([[5, [0, 1]]]);
  commit(5, [0, 2, 3], [1, 2]);
  // 2 comes from another; 3 had no worker that could hand it on, and waits for nothing.
  expect([pulls(), steps.at(-1)]).toEqual([[[5, 2]], [6, [0, 3]]]);
  const pull = (round: number, replica: number): void => member.message(0, { type: 'residual-pull', round, replica, chunk: 0 });
  for (const replica of [1, 1, 0]) pull(5, replica);
  expect(residuals).toEqual([
    [5, 1, BYTES],
    [5, 1, BYTES],
    [5, 0, 0],
  ]);
  expect(messages.filter(({ type }) => type === 'handed-on')).toEqual([{ type: 'handed-on', round: 5 }]);
  come(residual(5, 2));
  expect([taken, steps.at(-1)]).toEqual([[[5, 2]], [6, [2]]]);
  commit(6, [0, 2, 3]);
  pull(5, 1);
  expect(residuals.at(-1)).toEqual([5, 1, 0]);
});

test('of a replica that was still computed when its round was committed nothing is handed on: another gradient counted', () => {
  const { member, residuals, commit } = keeping([0, 1, 2], { late: [1] });
  commit(5, [0], [1, 2]);
  for (const replica of [1, 2]) member.message(0, { type: 'residual-pull', round: 5, replica, chunk: 0 });
  expect(residuals).toEqual([
    [5, 1, 0],
    [5, 2, BYTES],
  ]);
});

test('a server may pull each chunk of all replicas twice before COMMIT has come, and no more', () => {
  const { member, residuals, commit } = keeping([0, 1], { ofRun: 20 });
  const pull = (replica: number): void => member.message(0, { type: 'residual-pull', round: 5, replica, chunk: 0 });
  for (let i = 0; i < 40; i++) pull(i % 20);
  expect(() => pull(0)).toThrow('more pulls of what is kept than all replicas have chunks');
  commit(5, [0], [1]);
  expect(residuals).toHaveLength(40);
  expect(residuals.filter(([, , bytes]) => bytes > 0)).toEqual([
    [5, 1, BYTES],
    [5, 1, BYTES],
  ]);
});

test('a replica that another worker computed too is not taken from there: what is here was told', () => {
  const { steps, taken, commit, pulls } = keeping([0, 1]);
  commit(5, [0, 1], [1]);
  expect([pulls(), taken, steps.at(-1)]).toEqual([[], [], [6, [0, 1]]]);
});

test('a replica of which another worker has nothing, or does not answer while the round stands still, is computed without', () => {
  const nothing = keeping([0]);
  nothing.commit(5, [0, 1], [1]);
  nothing.come(residual(5, 1, 0));
  expect([nothing.taken, nothing.steps.at(-1)]).toEqual([[], [6, [1]]]);
  const silent = keeping([0]);
  silent.commit(5, [0, 1, 2], [1, 2]);
  expect(silent.steps.at(-1)).toEqual([6, [0]]);
  silent.member.message(0, { type: 'tell-again' });
  expect([silent.taken, silent.steps.at(-1)]).toEqual([[], [6, [1, 2]]]);
  silent.come(residual(5, 1));
  expect(silent.taken).toEqual([]);
});

test('a compute thread whose replicas wait for residuals of a checkpoint rests: the load is no hang', () => {
  const { member, messages, steps, come, pulls } = keeping([0], { welcome: { residuals: 4 } });
  const beats = (): number[] => {
    messages.length = 0;
    for (let i = 0; i < 3; i++) member.heartbeat(7);
    const progress = messages.flatMap((message) => (message.type === 'heartbeat' ? [message.progress] : []));
    return progress.map((each) => each - progress[0]!);
  };
  expect(pulls()).toEqual([[4, 0]]);
  expect([beats(), steps]).toEqual([[0, 1, 2], []]);
  come(residual(4, 0));
  expect([beats(), steps]).toEqual([[0, 0, 0], [[5, [0]]]]);
});

test('chunks that no round has exchanged since are here after a gap of rounds, with their values', () => {
  const count = 8;
  const chunks = Array.from({ length: count }, (_, index) => ({ index, server: index >> 1, offset: 4 * index, length: 4 }));
  const memory = [new Uint8Array(BYTES * count), new Uint8Array(BYTES * count)];
  const steps: number[] = [];
  const member = new Member({
    id: 'w',
    attempt: 1,
    servers: 4,
    totalRounds: 100,
    chunks,
    isExchanged: (round, chunk) => chunk === round % count,
    store: { bytes: (generation) => memory[generation & 1]! },
    compute: { step: (round) => void steps.push(round), evaluate: () => undefined, committed: () => undefined },
    onEnd: () => undefined,
  });
  const members = [{ id: 'w', seat: 0, incarnation: 0, replicas: [0] }];
  const value = (generation: number, chunk: number): number => 10 * generation + chunk;
  const come = (generation: number, chunk: number): void => {
    const header = headerOf(FrameType.parameters, generation, chunk);
    member.payloadFor(header).fill(value(generation, chunk));
    member.data(header);
  };
  for (let server = 0; server < 4; server++) member.attach(server, connectionOf([]));
  for (let server = 0; server < 4; server++) member.message(server, welcomeOf(server, 4));
  for (const { index } of chunks) come(4, index);
  member.message(0, { type: 'view', view: 1, term: 1, round: 4, members });
  expect(steps).toEqual([4]);
  come(5, 4);
  // Away from server 0, which has chunks 0 and 1: rounds 8 and 9 exchange nothing else.
  for (let round = 5; round <= 10; round++) if (round % count > 1) come(round + 1, round % count);
  member.attach(0, connectionOf([]));
  member.message(0, welcomeOf(0, 11));
  for (const chunk of [0, 1]) come(11, chunk);
  member.message(0, { type: 'view', view: 9, term: 1, round: 11, members });
  expect(steps).toEqual([4, 11]);
  const newest = [11, 11, 11, 4, 5, 6, 7, 8];
  expect(Array.from({ length: count }, (_, chunk) => memory[1]![chunk * BYTES])).toEqual(newest.map(value));
});

test('with EF21 the gradient of a replica whose estimate is lost is told of and not sent', () => {
  const { member, take, messages, view } = setUp(true, true);
  view(2);
  const node = (replica: number, lost?: 'absent') => {
    let isReleased = false;
    member.contribution(0, replica, 4, [1, 1], lost);
    member.node({ round: 0, lo: replica, hi: replica + 1, chunk: chunksOf(new Uint8Array(BYTES)), release: () => (isReleased = true) });
    return isReleased;
  };
  take();
  expect(node(1, 'absent')).toBe(true);
  expect(take()).toEqual(['contribution']);
  expect(messages.at(-1)).toMatchObject({ replica: 1, lost: 'absent' });
  expect(node(0)).toBe(false);
  expect(take()).toEqual(['contribution', 'gradient']);
});
