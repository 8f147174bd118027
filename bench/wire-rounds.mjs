/**
 * The whole data plane: Gate and HostedRun at the server, SeatSession at each worker, as apps/ps and apps/worker run them, with the SIMD
 * kernels. Gradients of one replica per worker are added up and SGD is applied chunk by chunk; a round ends with its COMMIT and all its new
 * parameters. Only the computation of gradients is left out, and nobody collects reports.
 */
import { chunksOf, connect, listen, memoryPair, processClock } from '@paceline/exchange';
import { Gate, HostedRun, ParameterStore, SeatSession, parameterBytes } from '@paceline/hosting';
import { Arena, sharedBuffer } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import { Checkpoints, openStore } from '@paceline/storage';

/** @param {number} index */
const serverNamed = (index) => `server-${index}`;
const TOKENS = { worker: 'bench', server: 'bench of a server' };
const DEADLINE_MS = 5_000;

function nothing() {}
const done = () => Promise.resolve();

/**
 * Something that nobody expects here: the bench would stand still, so its process ends and says why.
 * @param {string} what
 * @returns {never}
 */
function unexpected(what) {
  process.stderr.write(`${what}\n`);
  process.exit(1);
}

const log = {
  debug: nothing,
  info: nothing,
  warn: nothing,
  /**
   * @param {Readonly<Record<string, unknown>>} fields
   * @param {string} message
   */
  error: (fields, message) => unexpected(`${message}: ${String(fields.err)}`),
};

/**
 * What server and workers are given of the run: one variable, one replica for each worker, which all begin together.
 * @param {Pick<import('./wire-process.mjs').Sizes, 'workers' | 'servers' | 'totalBytes' | 'chunkBytes'>} sizes
 */
function runOf({ workers, servers, totalBytes, chunkBytes }) {
  const parsed = parseRunSpec({
    model: 'mlp',
    globalBatch: workers,
    replicas: workers,
    length: { rounds: 1_000_000 },
    optimizer: { name: 'sgd', learningRate: 0.01 },
    strategy: { kind: 'parameter-server', startWorkers: workers, servers },
    checkpoint: { final: false, everySeconds: 0 },
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { spec } = parsed;
  const length = totalBytes / 4;
  /** @type {import('@paceline/spec').ModelDescription} */
  const model = {
    variables: [{ path: 'w', shape: [length], section: 'trainable', initializer: { className: 'Ones', config: {} } }],
    inputs: [{ name: 'input', shape: [1] }],
    outputs: [{ name: 'output', shape: [1] }],
    parameterCount: length,
    stateCount: 0,
  };
  /** @type {import('@paceline/spec').RunData} */
  const data = {
    source: { kind: 'built-in', name: 'bench' },
    format: { inputs: [{ name: 'input', shape: [1] }], targets: [{ name: 'output', kind: 'values', shape: [1] }], isWeighted: false },
    trainExamples: workers,
    evalExamples: 0,
    evaluateOn: 'test',
  };
  const step = chunkBytes / 4;
  const chunks = Array.from({ length: Math.ceil(length / step) }, (_, index) => {
    const offset = index * step;
    return { index, section: /** @type {const} */ ('trainable'), offset, length: Math.min(step, length - offset) };
  });
  const layout = { ...createLayout(model), chunks };
  const job = { runId: '00000000-0000-4000-8000-000000000001', attempt: 1, token: TOKENS.worker, spec, model, data };
  return { job, layout };
}

/** @type {import('./wire-process.mjs').Serve} */
export async function serveRounds({ listenAt, index, options, ...sizes }) {
  const { servers } = sizes;
  const { job, layout } = runOf(sizes);
  /** @type {import('@paceline/hosting').ServerContext} */
  const context = {
    serverId: serverNamed(index),
    host: 'localhost',
    clock: processClock,
    wallMs: Date.now,
    controlPlane: { readControl: () => Promise.resolve({}), sendReport: done },
    checkpoints: new Checkpoints(openStore('nothing-is-stored')),
    weights: { pathOf: () => unexpected('the run is over'), create: () => unexpected('the run is over') },
    log,
    connectTo: (address) => connect(address, { deadlineMs: DEADLINE_MS, transport: address.unixPath ? 'unix' : 'tcp', ...options }),
    memoryPair: () => memoryPair(),
    createStore: (plan) => new ParameterStore({ ...plan, createArena: (arena) => Arena.create(arena) }),
    layoutOf: () => layout,
    refusals: () => ({ frames: 0, connections: gate.refusedConnections }),
  };
  const placement = { kind: /** @type {const} */ ('placement'), index, servers, role: /** @type {const} */ ('primary'), restore: null };
  const run = new HostedRun({ ...job, token: TOKENS.server, ...placement }, context, nothing);
  const gate = new Gate(
    (token) => Promise.resolve({ run: job.runId, role: token === TOKENS.server ? 'server' : 'worker', attempt: job.attempt, exp: 2 ** 40 }),
    log,
    () => run,
  );
  const listener = await listen(listenAt, gate.accept, options);
  const address = { host: listener.host ?? '127.0.0.1', port: listener.port ?? 0, unixPath: listener.unixPath };
  await run.prepare();
  return {
    address,
    begin: (addresses) => run.start(addressed(addresses)),
    close: async () => {
      run.stop('the bench is over');
      await listener.close();
    },
  };
}

/** @param {readonly import('./wire-process.mjs').Address[]} addresses in the order of the servers */
const addressed = (addresses) =>
  addresses.map(({ host = '127.0.0.1', port = 0, unixPath = null }, index) => ({
    host,
    port,
    unixPath,
    serverId: serverNamed(index),
    index,
  }));

/** In place of a compute thread: it computes nothing, and says when a round may start. */
class BenchCompute {
  fingerprint = 'bench';
  progress = 0;
  /** @type {import('@paceline/hosting').SeatComputeEvents | undefined} */
  events;
  /**
   * The round that may start: its parameters are here, and the round before is committed.
   * @type {{ round: number, replicas: readonly number[] } | undefined}
   */
  #due;
  /** @type {() => void} */
  #whenDue = nothing;
  item = () => unexpected('a run in mode sync has no work items');
  evaluate = () => unexpected('there is nothing to evaluate');
  committed = nothing;
  stop = done;

  /** @param {import('@paceline/hosting').SeatComputeEvents} heard */
  listen(heard) {
    this.events = heard;
  }

  /**
   * @param {number} round
   * @param {readonly number[]} replicas
   */
  step(round, replicas) {
    this.#due = { round, replicas };
    this.#whenDue();
  }

  /** @returns {Promise<void>} */
  untilDue() {
    return this.#due ? Promise.resolve() : new Promise((resolve) => (this.#whenDue = resolve));
  }

  async take() {
    await this.untilDue();
    if (!this.#due) throw new Error('no round is due');
    const due = this.#due;
    this.#due = undefined;
    this.progress++;
    return due;
  }
}

/** @type {import('./wire-process.mjs').Work} */
export async function workRounds({ addresses, id, seat, options, ...sizes }) {
  const { job, layout } = runOf(sizes);
  const gradient = new Uint8Array(sharedBuffer(sizes.totalBytes), 0, sizes.totalBytes);
  new Float32Array(gradient.buffer, 0, sizes.totalBytes / 4).fill(0.5);
  const compute = new BenchCompute();
  let isClosing = false;
  const session = new SeatSession({
    job: {
      ...job,
      kind: /** @type {const} */ ('step-task'),
      stepTaskId: id,
      seat,
      incarnation: 0,
      sliceMs: 1e9,
      heldSeats: 0,
      servers: addressed(addresses),
    },
    workerId: id,
    host: 'localhost',
    compute,
    parameters: sharedBuffer(parameterBytes(job.spec, layout)),
    layout,
    clock: processClock,
    connect: (server) => connect(server, { deadlineMs: DEADLINE_MS, transport: server.unixPath ? 'unix' : 'tcp', ...options }),
    log,
  });
  void session.ended.then((end) => isClosing || unexpected(`worker ${id} has lost its seat: ${JSON.stringify(end)}`));
  session.begin();
  return {
    round: async () => {
      const { round, replicas } = await compute.take();
      for (const replica of replicas) {
        compute.events?.contribution(round, replica, 1, [0, 0, 1]);
        compute.events?.node({ round, lo: replica, hi: replica + 1, chunk: chunksOf(gradient), release: nothing });
      }
      await compute.untilDue();
    },
    close: () => void (isClosing = true),
  };
}
