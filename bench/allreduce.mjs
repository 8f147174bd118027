/**
 * bench allreduce: all-reduce of one vector among processes of this machine, in GB/s of bus bandwidth
 *
 * Each member is a process with a vector of float32 in an arena; one all-reduce by libs/collectives adds the vectors up, and every member has the sum
 * afterwards, checked once. A repetition is one all-reduce over TCP and one over Unix sockets, in turn, each by members that stand ready; its time is that of the slowest member.
 * Bus bandwidth is 2(n - 1)/n times the bytes of the vector by the median of the times: what each member sends and receives per second. Sums have the order of the
 * reduction tree, but for `--topology ring` (`direct` is the default; `tree` and `hierarchical` are the others, the latter with half of the members on each of two pretended hosts). With `--peer-python PYTHON --peer-folder FOLDER` the all-reduce of PyTorch's gloo (torch_ddp.py) runs on 100 MB over TCP in each repetition; its figure is the mean
 * of its own 15. gloo sends no checksums, and neither do Unix sockets here; `tcp, no checksum` leaves them out over TCP.
 *
 * `shared memory` is how the threads of one process do it (libs/strategies): all vectors lie in one memory, each thread adds up one range of all of them in the order of the
 * reduction tree, and the sum is read in place. It is counted by the same formula, though nothing is sent.
 *
 * With `--check` it exits with 1 when TCP or Unix sockets have less than twice the bandwidth of gloo, if that was measured, or shared memory less than 8 GB/s.
 */
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { parseArgs } from 'node:util';
import { Worker, workerData } from 'node:worker_threads';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    members: { type: 'string', default: '2' },
    megabytes: { type: 'string', default: '100' },
    repetitions: { type: 'string', default: '5' },
    'peer-python': { type: 'string' },
    'peer-folder': { type: 'string' },
    topology: { type: 'string', default: 'direct' },
    check: { type: 'boolean', default: false },
    child: { type: 'string' },
  },
});
/** @type {Readonly<Record<string, { kind: 'tcp' | 'unix', checksum: boolean }>>} */
const PATHS = {
  tcp: { kind: 'tcp', checksum: true },
  'tcp, no checksum': { kind: 'tcp', checksum: false },
  unix: { kind: 'unix', checksum: false },
};
const DEADLINE_MS = 120_000;
const BARS = { timesGloo: 2, sharedGigabytes: 8 };
const GLOO = 'gloo, tcp';
const SHARED = 'shared memory';

/** @typedef {{ self: number, ports: number[], path: string, length: number, topology: 'direct' | 'ring' | 'tree' | 'hierarchical' }} Member */

/** @param {Member} member */
async function serve({ self, ports, path, length, topology }) {
  const [{ AllReducePlan, ClusterSpec, Group, groupId, joinGroup, memberName, processClock, socketTransport }, { Arena }] =
    await Promise.all([import('@paceline/collectives'), import('@paceline/kernels')]);
  const { members } = new ClusterSpec({ worker: ports.map((port) => `127.0.0.1:${port}`) });
  const names = members.map(memberName);
  const group = groupId(members);
  const { kind, checksum } = PATHS[path] ?? PATHS['tcp'] ?? { kind: 'tcp', checksum: true };
  const transport = socketTransport({ members, self, group, kind, checksum });
  const secret = 'the secret of a bench';
  const { links } = await joinGroup({ self, names, group, secret, transport, clock: processClock, deadlineMs: DEADLINE_MS });
  const all = new Group({ self, names, links, clock: processClock, deadlineMs: DEADLINE_MS });
  const hosts = members.map((_, i) => (topology === 'hierarchical' && i >= Math.ceil(members.length / 2) ? 'second' : 'first'));
  const options = { members: members.length, self, replicas: members.length, length, topology, hosts };
  const bytes = (length + AllReducePlan.scratchLength(options)) * 4 + (1 << 20);
  const arena = Arena.create({ initialBytes: bytes, maximumBytes: bytes });
  /** @param {number} elements */
  const allocate = (elements) => arena.f32(arena.alloc(Math.max(4, elements * 4)), elements);
  const plan = new AllReducePlan({
    ...options,
    allocate,
    add: (into, from) => arena.kernels.add(into.byteOffset, from.byteOffset, into.length),
  });
  const vector = allocate(length);
  const reduce = async () => {
    vector.fill(self + 1);
    const startMs = performance.now();
    await all.run({ what: 'a repetition', operations: [plan.reduce([vector], vector)] });
    return performance.now() - startMs;
  };
  await reduce();
  const sum = (members.length * (members.length + 1)) / 2;
  if (!vector.every((value) => value === sum)) throw new Error('the sum is wrong');
  process.on('message', async (message) => {
    if (message === 'reduce') return process.send?.(await reduce());
    all.leave('the bench is over');
    return process.disconnect();
  });
  process.once('disconnect', () => setTimeout(() => process.exit(), 100)); // also where the bench has failed
  process.send?.('ready');
}

/** @param {number} count */
async function freePorts(count) {
  const servers = Array.from({ length: count }, () => createServer());
  await Promise.all(servers.map((server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)))));
  const ports = servers.map((server) => /** @type {import('node:net').AddressInfo} */ (server.address()).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** @param {string} path */
async function start(path) {
  const length = Math.round(Number(flags.megabytes) * 250_000);
  const ports = await freePorts(Number(flags.members));
  const children = ports.map((_, self) =>
    fork(new URL(import.meta.url), ['--child', JSON.stringify({ self, ports, path, length, topology: flags.topology })]),
  );
  /** @param {import('node:child_process').ChildProcess} child */
  const answer = async (child) => {
    const gone = new AbortController();
    child.once('exit', () => gone.abort(new Error('a member ended; what it said is above')));
    return (await once(child, 'message', { signal: AbortSignal.any([gone.signal, AbortSignal.timeout(2 * DEADLINE_MS)]) }))[0];
  };
  await Promise.all(children.map(answer));
  return {
    /** Milliseconds of the slowest member. */
    measure: async () => {
      const answers = children.map(answer);
      for (const child of children) child.send('reduce');
      return Math.max(...(await Promise.all(answers)));
    },
    stop: () => children.map((child) => child.send('stop')),
  };
}

/** The main thread sleeps while the threads work, and hears no event of theirs: what a thread fails with, it writes itself. FAILED has the length of that. */
const [GO, DONE, FAILED] = [0, 1, 2];
const FAILURE_BYTES = 2000;
/** Makes DONE so large that nobody waits for more. */
const ENOUGH = 2 ** 24;

/** @param {unknown} error */
function fail(error) {
  const { cells, failure } = workerData;
  const text = new TextEncoder().encode(String(error)).subarray(0, FAILURE_BYTES);
  if (Atomics.compareExchange(cells, FAILED, 0, text.length) !== 0) return; // another thread has written
  failure.set(text);
  Atomics.add(cells, DONE, ENOUGH);
  Atomics.notify(cells, DONE);
}

/** A thread: adds up its range of all vectors whenever it is told to. */
async function addUp() {
  const [{ Arena }, { split }] = await Promise.all([import('@paceline/kernels'), import('@paceline/learning')]);
  const { memory, pointers, length, self, cells } = workerData;
  const { kernels } = Arena.attach(memory);
  const [from, to] = [0, 1].map((i) => 4 * Math.floor(((self + i) * length) / 4 / pointers.length));
  const [first, end] = [from ?? 0, self === pointers.length - 1 ? length : (to ?? 0)];
  /** @param {number} lo @param {number} hi @returns {number} */
  const sum = (lo, hi) => {
    const pointer = pointers[lo] + first * 4;
    if (hi - lo === 1) return pointer;
    const middle = split(lo, hi);
    sum(lo, middle);
    kernels.add(pointer, sum(middle, hi), end - first);
    return pointer;
  };
  for (let round = 1; ; round++) {
    Atomics.wait(cells, GO, round - 1);
    if (Atomics.load(cells, GO) < 0) return;
    sum(0, pointers.length);
    if (Atomics.add(cells, DONE, 1) + 1 === round * pointers.length) Atomics.notify(cells, DONE);
  }
}

/** As `start`, by threads of this process. */
async function startShared() {
  const { Arena } = await import('@paceline/kernels');
  const [members, length] = [Number(flags.members), Math.round(Number(flags.megabytes) * 250_000)];
  const bytes = members * (length * 4 + 64) + (1 << 20);
  const arena = Arena.create({ initialBytes: bytes, maximumBytes: bytes });
  const pointers = Array.from({ length: members }, () => arena.alloc(length * 4));
  const cells = new Int32Array(new SharedArrayBuffer(12));
  const failure = new Uint8Array(new SharedArrayBuffer(FAILURE_BYTES));
  for (const self of pointers.keys())
    new Worker(new URL(import.meta.url), { workerData: { memory: arena.memory, pointers, length, self, cells, failure } }).unref();
  let round = 0;
  const measure = () => {
    for (const [i, pointer] of pointers.entries()) arena.kernels.fill(pointer, length, i + 1);
    const startMs = performance.now();
    Atomics.store(cells, GO, ++round);
    Atomics.notify(cells, GO);
    for (let value = Atomics.load(cells, DONE); value < round * members; value = Atomics.load(cells, DONE))
      if (Atomics.wait(cells, DONE, value, DEADLINE_MS) === 'timed-out') throw new Error('the threads do not answer');
    const failed = Atomics.load(cells, FAILED);
    if (failed > 0) throw new Error(`a thread failed: ${new TextDecoder().decode(Uint8Array.from(failure.subarray(0, failed)))}`);
    return Promise.resolve(performance.now() - startMs);
  };
  await measure(); // it waits until the threads have started
  const total = (members * (members + 1)) / 2;
  if (!arena.f32(pointers[0] ?? 0, length).every((value) => value === total)) throw new Error('the sum is wrong');
  return {
    measure,
    stop: () => {
      Atomics.store(cells, GO, -1);
      Atomics.notify(cells, GO);
    },
  };
}

/** @param {string} python */
async function gloo(python) {
  const child = spawn(python, ['torch_ddp.py', '.', 'wire', flags.members], {
    cwd: flags['peer-folder'],
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: 5 * DEADLINE_MS,
  });
  let text = '';
  child.stdout.on('data', (piece) => (text += piece));
  await once(child, 'close');
  const [, bus] = /bus ([\d.]+) GB\/s/u.exec(text) ?? [];
  if (bus === undefined) throw new Error(`torch_ddp.py gave no figure: ${text}`);
  return Number(bus);
}

if (workerData) await addUp().catch(fail);
else if (flags.child === undefined) {
  const members = Number(flags.members);
  const busBytes = ((2 * (members - 1)) / members) * Number(flags.megabytes) * 1e6;
  const started = [];
  for (const path of Object.keys(PATHS)) started.push({ path, ...(await start(path)) });
  started.push({ path: SHARED, ...(await startShared()) });
  /** @type {Map<string, number[]>} GB/s */
  const figures = new Map();
  /** @param {string} path @param {number} figure */
  const note = (path, figure) => figures.set(path, [...(figures.get(path) ?? []), figure]);
  const python = flags['peer-python'];
  for (let i = 0; i < Number(flags.repetitions); i++) {
    for (const { path, measure } of started) note(path, busBytes / (await measure()) / 1e6);
    if (python !== undefined) note(GLOO, await gloo(python));
  }
  for (const { stop } of started) stop();
  const round = (/** @type {number} */ value) => Number(value.toFixed(3));
  const gloos = figures.get(GLOO);
  /** @param {string} path @param {number} figure @returns {boolean | undefined} undefined where there is no bar */
  const holds = (path, figure) => {
    if (path === SHARED) return figure >= BARS.sharedGigabytes;
    return (path === 'tcp' || path === 'unix') && gloos ? figure >= BARS.timesGloo * median(gloos) : undefined;
  };
  const rows = [...figures].map(([path, values]) => ({
    path,
    members,
    megabytes: path === GLOO ? 100 : Number(flags.megabytes),
    repetitions: values.length,
    busGigabytesPerSecond: round(median(values)),
    lowest: round(Math.min(...values)),
    highest: round(Math.max(...values)),
    holds: holds(path, median(values)),
  }));
  if (flags.json) console.log(JSON.stringify({ bench: 'allreduce', rows }));
  else console.table(rows);
  process.exitCode = flags.check && rows.some((row) => row.holds === false) ? 1 : 0;
} else await serve(JSON.parse(flags.child));
