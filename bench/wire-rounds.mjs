/**
 * The whole data plane: Coordinator and Shard at the server, Member at each worker, as apps/ps and apps/worker use them,
 * with the reduction tree of @paceline/learning and the SIMD kernels. Gradients of one replica per worker are added up and SGD is applied chunk
 * by chunk; a round ends with its COMMIT and all its new parameters. Only the computation of gradients is left out.
 */
import { Coordinator, Journal, Member, Shard, ShardLink, acquireRegion, connect, listen, memoryPair } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { ReductionTree, maximalNodes, validNode } from '@paceline/learning';
import { ProtocolError } from '@paceline/protocol';
import { hello } from './wire-frames.mjs';

const ATTEMPT = 1;
const NUMBERS = { attempt: ATTEMPT, term: 0, view: 0, round: 0 };
const LEARNING_RATE = 0.01;
/** Nothing here sends heartbeats: the deadlines of the real processes are not what is measured. */
const NEVER_MS = 1e9;

/**
 * @param {number} totalBytes
 * @param {number} chunkBytes
 */
function chunkGrid(totalBytes, chunkBytes) {
  return Array.from({ length: Math.ceil(totalBytes / chunkBytes) }, (_, index) => ({
    index,
    offset: (index * chunkBytes) / 4,
    length: Math.min(chunkBytes, totalBytes - index * chunkBytes) / 4,
    server: 0,
  }));
}

function nothing() {}

/** @returns {never} */
function noData() {
  throw new ProtocolError('BAD_FRAME', 'no data comes over this connection');
}

/**
 * Something that nobody expects here: the bench would stand still, so its process ends and says why.
 * @param {string} what
 * @returns {never}
 */
function unexpected(what) {
  process.stderr.write(`${what}\n`);
  process.exit(1);
}

/**
 * @param {import('./wire-process.mjs').Place} place
 * @param {Arena} arena
 * @param {(message: import('@paceline/protocol').Message) => void} tellCoordinator
 */
function createShard({ workers, totalBytes, chunkBytes }, arena, tellCoordinator) {
  const chunks = chunkGrid(totalBytes, chunkBytes).map(({ index, length }) => ({ index, length, arena }));
  const initial = chunks.map(({ length }) => acquireRegion(arena, length));
  for (const region of initial) arena.kernels.fill(region.pointer, region.length, 1);
  return new Shard({
    index: 0,
    attempt: ATTEMPT,
    replicas: workers,
    chunks,
    initial,
    createReduction: (operations) => new ReductionTree(workers, operations),
    isValidNode: (lo, hi) => validNode(workers, lo, hi),
    update: (chunk, _round, paramIn, paramOut, gradient) =>
      arena.kernels.sgd(paramIn.pointer, paramOut.pointer, gradient.pointer, chunk.length, LEARNING_RATE, 1 / workers),
    tellCoordinator,
  });
}

/**
 * Coordinator and shard of one process speak through connections only, as they do in apps/ps.
 * @param {Coordinator} coordinator
 * @param {Shard} shard
 * @param {{ here: import('@paceline/exchange').Connection, there: import('@paceline/exchange').Connection }} pair
 */
function join(coordinator, shard, { here, there }) {
  const link = new ShardLink('coordinator', here, false);
  here.setReceiver({
    payloadFor: noData,
    data: nothing,
    message: (message) => {
      if (message.type === 'heartbeat' || shard.fromCoordinator(link, message)) return;
      unexpected(`the coordinator sends ${message.type} to a server: ${JSON.stringify(message)}`);
    },
    closed: nothing,
  });
  there.setReceiver({
    payloadFor: noData,
    data: nothing,
    message: (message) => coordinator.serverMessage(0, message),
    closed: nothing,
  });
  coordinator.serverJoined(0, there);
}

/** @type {import('./wire-process.mjs').Serve} */
export async function serveRounds(place) {
  const { listenAt, workers, totalBytes, options } = place;
  // Two generations, and a gradient per worker in flight.
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: Math.min(1 << 30, (2 + workers) * totalBytes + (64 << 20)) });
  const coordinator = new Coordinator({
    attempt: ATTEMPT,
    replicas: workers,
    servers: 1,
    schedule: { totalRounds: 1e9, examplesIn: () => workers, epochOf: () => 0, replicaExamples: () => 1 },
    evalExamples: 0,
    journal: new Journal({ now: Date.now }),
    now: () => performance.now(),
    collectWeights: nothing,
    onOver: (outcome, message) => unexpected(`the attempt is over, ${outcome}: ${message}`),
    heartbeatDeadlineMs: NEVER_MS,
    stepDeadlineMs: NEVER_MS,
  });
  const [here, there] = memoryPair();
  const shard = createShard(place, arena, (message) => here.sendMessage(message, { ...NUMBERS, round: shard.round }));
  join(coordinator, shard, { here, there });
  /** @param {import('@paceline/exchange').Connection} connection */
  const admit = (connection) => {
    /** @type {{ id: string, link: ShardLink } | undefined} */
    let member;
    const admitted = () => member ?? noData();
    connection.setReceiver({
      payloadFor: (header) => shard.payloadFor(admitted().link, header),
      data: (header) => shard.data(admitted().link, header),
      message: (message) => {
        if (message.type === 'hello') {
          coordinator.memberJoined(message, connection);
          member = { id: message.id, link: shard.attach(message.id, connection, true) };
        } else if (message.type === 'pull') shard.onPull(admitted().link, message.generation, message.chunk);
        else coordinator.memberMessage(admitted().id, message);
      },
      closed: ({ description }) => {
        if (!member) return;
        shard.detach(member.link);
        coordinator.memberClosed(member.id, connection, description);
      },
    });
  };
  const listener = await listen(listenAt, admit, options);
  return {
    address: { host: listener.host ?? '127.0.0.1', port: listener.port ?? 0, unixPath: listener.unixPath },
    close: async () => {
      shard.end();
      here.close();
      await listener.close();
    },
  };
}

/** @type {import('./wire-process.mjs').Work} */
export async function workRounds({ address, id, seat, workers, totalBytes, chunkBytes, options }) {
  const arena = Arena.create({ initialBytes: 3 * totalBytes + (1 << 20), maximumBytes: 3 * totalBytes + (2 << 20) });
  const generations = [0, 1].map(() => arena.bytes(arena.alloc(totalBytes), totalBytes));
  const pointer = arena.alloc(totalBytes);
  arena.kernels.fill(pointer, totalBytes / 4, 0.5);
  const gradient = arena.bytes(pointer, totalBytes);
  /**
   * The round that may start: parameters are here, the round before is committed.
   * @type {{ round: number, replicas: readonly number[] } | undefined}
   */
  let due;
  /** @type {() => void} */
  let whenDue = nothing;
  const contribute = () => {
    if (!due) throw new Error('no round is due');
    const { round, replicas } = due;
    due = undefined;
    for (const replica of replicas) member.contribution(round, replica, 1, [0, 0]);
    for (const { lo, hi } of maximalNodes(workers, new Set(replicas))) member.node({ round, lo, hi, bytes: gradient, release: nothing });
  };
  const member = new Member({
    id,
    attempt: ATTEMPT,
    chunks: chunkGrid(totalBytes, chunkBytes),
    servers: 1,
    totalRounds: 1e9,
    store: { bytes: (generation) => /** @type {Uint8Array} */ (generations[generation & 1]) },
    compute: {
      step: (round, replicas) => {
        due = { round, replicas };
        // Until all workers are there some hold more than one replica: those rounds run by themselves.
        if (replicas.length > 1) contribute();
        else whenDue();
      },
      evaluate: nothing,
      committed: nothing,
    },
    now: () => performance.now(),
    onEnd: (outcome, message) => unexpected(`worker ${id} hears the end, ${outcome}: ${message}`),
  });
  /** @returns {Promise<void>} */
  const untilDue = () => (due ? Promise.resolve() : new Promise((resolve) => (whenDue = resolve)));
  const connection = await connect(address, { deadlineMs: 5000, transport: address.unixPath ? 'unix' : 'tcp', ...options });
  let isClosing = false;
  connection.setReceiver({
    payloadFor: (header) => member.payloadFor(header),
    data: (header) => member.data(header),
    message: (message) => member.message(0, message),
    closed: ({ description }) => {
      if (!isClosing) unexpected(`worker ${id} has lost its server: ${description}`);
    },
  });
  connection.sendMessage({ ...hello(id), seat }, NUMBERS);
  member.attach(0, connection);
  await untilDue();
  return {
    round: () => {
      contribute();
      return untilDue();
    },
    close: () => {
      isClosing = true;
      connection.close();
    },
  };
}
