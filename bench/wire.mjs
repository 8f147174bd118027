/**
 * bench wire: push–pull of 100 MB between parameter servers and two workers, in GB/s
 *
 * Three processes on one host, a server and two workers; 25 million float32 parameters. In a round every worker pushes a gradient of 100 MB in chunks of
 * 1 MiB; the server adds them up and applies SGD chunk by chunk, and sends the 100 MB of new parameters back to every
 * worker while later gradients still arrive.
 *
 * GB/s is counted as in the usual test of TensorFlow's ParameterServerStrategy (each step reads the 100 MB variable
 * and pushes 100 MB into it; k steps over all workers make k × 200 MB): workers × (pushed + pulled bytes) × rounds ÷ wall time,
 * 1 GB = 10^9 bytes; a byte that one process writes and another reads counts once. Time runs from telling all workers to
 * start until the last one says that its last round is over. A figure is the median of the repetitions.
 *
 * Three paths, taken in turn within each repetition so that they meet the same machine:
 *   raw     sockets of node:net with the same streams, bytes and dependencies, nothing else (wire-raw.mjs)
 *   frames  the transport of @paceline/exchange, without sums (wire-frames.mjs)
 *   rounds  HostedRun and SeatSession: what a run does, apart from computing gradients (wire-rounds.mjs)
 * `--servers 1,2,4` runs rounds with so many servers too, each a process. `cpuMsPerGigabyte` is the processor time of all servers and workers for a GB that
 * is counted: what a further server costs on a machine whose processors are all busy.
 *
 * `--streams 1,2,4` gives each worker so many sockets on the paths raw and frames, and chunks go over them in turn. The processes stay the same.
 *
 * With `--peer-python PYTHON --peer-folder FOLDER` the peer scripts (tf_ps.py, torch_ddp.py) move their 100 MB in turn with ours in each repetition: TensorFlow
 * reads and pushes a variable of a parameter server, counted as above; PyTorch's gloo reduces among the workers, counted as the bandwidth of its bus.
 *
 * Over TCP the last two carry payload checksums, as a run does by default; --no-checksum leaves them out. Over TLS (TCP with TLS 1.3, certificates
 * on both sides) they carry none; it has no path raw.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { keepCertificates } from '@paceline/runtime/certificates';
import { median } from './median.mjs';
import { peerFigure } from './peers.mjs';

/** @typedef {import('./wire-process.mjs').Path} Path */

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    'no-checksum': { type: 'boolean', default: false },
    megabytes: { type: 'string', default: '100' },
    workers: { type: 'string', default: '2' },
    servers: { type: 'string', default: '1' },
    streams: { type: 'string', default: '1' },
    rounds: { type: 'string', default: '10' },
    repetitions: { type: 'string', default: '5' },
    paths: { type: 'string', default: 'raw,frames,rounds' },
    transports: { type: 'string', default: 'unix,tcp,tls' },
    'chunk-kib': { type: 'string', default: '1024' },
    'peer-python': { type: 'string' },
    'peer-folder': { type: 'string' },
    peers: { type: 'string', default: 'tf_ps,torch_ddp' },
  },
});
const workers = Number(flags.workers);
const serverCounts = flags.servers.split(',').map(Number);
if (!serverCounts.every((count) => Number.isInteger(count) && count > 0)) throw new Error(`--servers takes counts, not "${flags.servers}"`);
const streamCounts = flags.streams.split(',').map(Number);
if (!streamCounts.every((count) => Number.isInteger(count) && count > 0 && count <= 255))
  throw new Error(`--streams takes counts up to 255, not "${flags.streams}"`);
const rounds = Number(flags.rounds);
const totalBytes = Number(flags.megabytes) * 1e6;
const chunkBytes = Number(flags['chunk-kib']) * 1024;
/** @type {readonly Path[]} */
const PATHS = ['raw', 'frames', 'rounds'];

/** @param {string} name */
function pathNamed(name) {
  const path = PATHS.find((each) => each === name);
  if (!path) throw new Error(`--paths takes ${PATHS.join(', ')}, not "${name}"`);
  return path;
}

const python = flags['peer-python'] ?? '';
/** @type {{ script: string, runs: number[] }[]} */
const peers = python === '' ? [] : flags.peers.split(',').map((script) => ({ script, runs: [] }));
const paths = flags.paths.split(',').map(pathNamed);
const folder = mkdtempSync(join(tmpdir(), 'paceline-bench-'));
/** @type {import('node:child_process').ChildProcess[]} */
const children = [];
let ending = false;

function start() {
  const child = fork(new URL('./wire-process.mjs', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  child.once('exit', (code, signal) => {
    if (!ending) throw new Error(`a process of the bench ended: ${signal ?? code}`);
  });
  children.push(child);
  return child;
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {import('./wire-process.mjs').Request} request
 * @returns {Promise<import('./wire-process.mjs').Answer>}
 */
async function ask(child, request) {
  const answer = once(child, 'message', { signal: AbortSignal.timeout(120_000) });
  child.send(request);
  return (await answer)[0];
}

/** @param {import('./wire-process.mjs').Answer} answer */
const cpuMs = ({ cpu }) => (cpu === undefined ? Number.NaN : (cpu.user + cpu.system) / 1000);

/** Touches both generations' memory once and lets the code be compiled. */
const WARM_UP_ROUNDS = 3;

/**
 * One repetition: fresh connections, rounds to warm up, then the measured rounds.
 * @param {Path} path
 * @param {string} transport
 * @param {readonly import('node:child_process').ChildProcess[]} servers
 * @param {readonly import('node:child_process').ChildProcess[]} crew
 * @param {number} streams
 */
async function measure(path, transport, servers, crew, streams) {
  const options = flags['no-checksum'] ? { checksum: false } : {};
  const tlsFolder = transport === 'tls' ? folder : undefined;
  const shared = { totalBytes, chunkBytes, streams, bufferBytes: 1 << 20, workers, servers: servers.length, options, tlsFolder };
  const listening = servers.map((server, index) => {
    const listenAt = transport === 'unix' ? { unixPath: join(folder, `s${index}`) } : { port: 0 };
    return ask(server, { verb: 'serve', path, options: { ...shared, listenAt, index } });
  });
  const [first, ...others] = (await Promise.all(listening)).flatMap(({ address }) => address ?? []);
  if (!first) throw new Error('the server of the bench has no address');
  const addresses = /** @type {const} */ ([first, ...others]);
  for (const server of servers) await ask(server, { verb: 'begin', addresses });
  await Promise.all(
    crew.map((worker, i) => ask(worker, { verb: 'work', path, options: { ...shared, addresses, id: `worker-${i}`, seat: i } })),
  );
  await Promise.all(crew.map((worker) => ask(worker, { verb: 'rounds', rounds: WARM_UP_ROUNDS })));
  const serversMs = async () =>
    (await Promise.all(servers.map((server) => ask(server, { verb: 'cpu' })))).reduce((sum, each) => sum + cpuMs(each), 0);
  const beforeMs = await serversMs();
  const startMs = performance.now();
  const spent = await Promise.all(crew.map((worker) => ask(worker, { verb: 'rounds', rounds })));
  const seconds = (performance.now() - startMs) / 1000;
  const serverCpuMs = ((await serversMs()) - beforeMs) / rounds;
  const workerCpuMs = spent.reduce((sum, each) => sum + cpuMs(each), 0) / rounds / workers;
  await Promise.all(crew.map((worker) => ask(worker, { verb: 'close' })));
  await Promise.all(servers.map((server) => ask(server, { verb: 'close' })));
  const gigabytes = (workers * 2 * totalBytes) / 1e9;
  return {
    gigabytesPerSecond: (gigabytes * rounds) / seconds,
    serverCpuMs,
    workerCpuMs,
    cpuMsPerGigabyte: (serverCpuMs + workers * workerCpuMs) / gigabytes,
  };
}

try {
  if (flags.transports.split(',').includes('tls')) await keepCertificates({ folder, nowMs: Date.now() });
  const servers = Array.from({ length: Math.max(...serverCounts) }, start);
  const crew = Array.from({ length: workers }, start);
  const cases = flags.transports.split(',').flatMap((transport) =>
    paths
      .filter((path) => transport !== 'tls' || path !== 'raw')
      // The others have one server, since they are there to compare with; a run has one socket.
      .flatMap((path) => {
        const isRounds = path === 'rounds';
        return (isRounds ? serverCounts : streamCounts).map((n) => ({ path, count: isRounds ? n : 1, streams: isRounds ? 1 : n }));
      })
      .map((each) => ({ ...each, transport, runs: /** @type {Awaited<ReturnType<typeof measure>>[]} */ ([]) })),
  );
  for (let repetition = 0; repetition < Number(flags.repetitions); repetition++) {
    for (const each of cases) each.runs.push(await measure(each.path, each.transport, servers.slice(0, each.count), crew, each.streams));
    for (const each of peers)
      each.runs.push(await peerFigure({ python, folder: flags['peer-folder'] }, each.script, ['wire', workers], 'GB/s'));
  }
  const measured = cases.map(({ transport, path, count, streams, runs }) => ({
    transport,
    path,
    servers: count,
    streams,
    gigabytesPerSecond: median(runs.map((run) => run.gigabytesPerSecond)),
    runs: runs.map((run) => run.gigabytesPerSecond),
    serverCpuMs: median(runs.map((run) => run.serverCpuMs)),
    workerCpuMs: median(runs.map((run) => run.workerCpuMs)),
    cpuMsPerGigabyte: median(runs.map((run) => run.cpuMsPerGigabyte)),
  }));
  const rows = measured.map((row) => {
    // TLS goes over TCP.
    const socket = row.transport === 'tls' ? 'tcp' : row.transport;
    const raw = measured.find(({ transport, path, streams }) => transport === socket && path === 'raw' && streams === row.streams);
    const alone = measured.find(
      ({ transport, path, streams, servers: count }) =>
        transport === row.transport && path === row.path && streams === row.streams && count === 1,
    );
    return {
      ...row,
      ...(raw ? { ofRaw: row.gigabytesPerSecond / raw.gigabytesPerSecond } : {}),
      ...(alone ? { cpuOfOneServer: row.cpuMsPerGigabyte / alone.cpuMsPerGigabyte } : {}),
    };
  });
  const peerRows = peers.map(({ script, runs }) => ({ peer: script, gigabytesPerSecond: median(runs), runs }));
  if (flags.json) console.log(JSON.stringify({ bench: 'wire', workers, totalBytes, chunkBytes, rounds, rows, peers: peerRows }));
  else {
    console.log(`push-pull of ${totalBytes / 1e6} MB, ${workers} workers, ${rounds} rounds, median of ${flags.repetitions}`);
    for (const row of rows) {
      const spread = `${Math.min(...row.runs).toFixed(2)}–${Math.max(...row.runs).toFixed(2)}`;
      const ofOne = row.servers > 1 && row.cpuOfOneServer !== undefined ? `, ${row.cpuOfOneServer.toFixed(2)} of one server` : '';
      const perByte = `${row.cpuMsPerGigabyte.toFixed(0)} ms per GB${ofOne}`;
      const cpu = `CPU per round: servers ${row.serverCpuMs.toFixed(1)} ms, worker ${row.workerCpuMs.toFixed(1)} ms; ${perByte}`;
      const ofRaw = row.ofRaw !== undefined ? `, ${(row.ofRaw * 100).toFixed(0).padStart(3)} % of raw` : '';
      const ends = `${row.servers} server${row.servers > 1 ? 's' : ''}${row.streams > 1 ? `, ${row.streams} streams` : ''}`;
      const name = `${row.transport.padEnd(5)} ${row.path.padEnd(7)} ${ends.padEnd(19)}`;
      console.log(`${name} ${row.gigabytesPerSecond.toFixed(2)} GB/s (${spread})${ofRaw}; ${cpu}`);
    }
    for (const { peer, gigabytesPerSecond, runs } of peerRows)
      console.log(
        `${peer.padEnd(13)} ${gigabytesPerSecond.toFixed(2)} GB/s (${Math.min(...runs).toFixed(2)}–${Math.max(...runs).toFixed(2)})`,
      );
  }
} finally {
  ending = true;
  for (const child of children) child.kill();
  rmSync(folder, { recursive: true, force: true });
}
