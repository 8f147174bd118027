/** One process of the wire bench: the server or a worker, told what to do over the channel to its parent. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { TlsIdentity } from '@paceline/exchange';
import { serveFrames, workFrames } from './wire-frames.mjs';
import { serveRaw, workRaw } from './wire-raw.mjs';
import { serveRounds, workRounds } from './wire-rounds.mjs';

/**
 * What server and workers have to agree on.
 * @typedef {object} Sizes
 * @property {number} workers
 * @property {number} servers
 * @property {number} totalBytes of the parameters, and of a gradient
 * @property {number} chunkBytes
 * @property {number} streams sockets between a worker and the server, on the paths `raw` and `frames`
 * @property {number} bufferBytes into which the path `raw` reads
 * @property {{ checksum?: boolean, tls?: import('@paceline/exchange').TlsSettings }} options of the transport
 * @property {string | undefined} tlsFolder where the certificates lie, for TLS
 */
/** @typedef {Sizes & { listenAt: { unixPath?: string, port?: number }, index: number }} Place of a server */
/** @typedef {import('@paceline/exchange').ServerAddress} Address */
/** @typedef {Sizes & { addresses: readonly [Address, ...Address[]], id: string, seat: number }} Seat of a worker */
/** @typedef {{ address: Address, begin?(addresses: readonly Address[]): void, close(): void | Promise<void> }} Served */
/** @typedef {{ round(): Promise<void>, close(): void }} Working a round is over when all new parameters are here */
/** @typedef {(place: Place) => Promise<Served>} Serve */
/** @typedef {(seat: Seat) => Promise<Working>} Work */
/** @typedef {'raw' | 'frames' | 'rounds'} Path */
/**
 * @typedef {{ verb: 'serve', path: Path, options: Place } | { verb: 'work', path: Path, options: Seat }
 *   | { verb: 'begin', addresses: readonly Address[] } | { verb: 'rounds', rounds: number } | { verb: 'cpu' } | { verb: 'close' }} Request
 */
/** @typedef {{ address?: Address, cpu?: NodeJS.CpuUsage }} Answer */

/** @type {Record<Path, { serve: Serve, work: Work }>} */
const PATHS = {
  raw: { serve: serveRaw, work: workRaw },
  frames: { serve: serveFrames, work: workFrames },
  rounds: { serve: serveRounds, work: workRounds },
};

/**
 * @param {string} folder
 * @param {import('@paceline/exchange').TlsRole} role of this process
 * @returns {import('@paceline/exchange').TlsSettings}
 */
function tlsOf(folder, role) {
  const [ca, cert, key] = ['ca.crt', 'tls.crt', 'tls.key'].map((file) => readFileSync(join(folder, role, file), 'utf8'));
  if (ca === undefined || cert === undefined || key === undefined) throw new Error('three files were read');
  return { identity: new TlsIdentity({ ca, cert, key }), peers: role === 'server' ? ['worker', 'server'] : ['server'] };
}

/** @type {Served | undefined} */
let serving;
/** @type {Working | undefined} */
let working;

/**
 * @param {Request} request
 * @returns {Promise<Answer>}
 */
async function answer(request) {
  if ((request.verb === 'serve' || request.verb === 'work') && request.options.tlsFolder !== undefined)
    request.options.options.tls = tlsOf(request.options.tlsFolder, request.verb === 'serve' ? 'server' : 'worker');
  switch (request.verb) {
    case 'serve':
      serving = await PATHS[request.path].serve(request.options);
      return { address: serving.address };
    case 'begin':
      serving?.begin?.(request.addresses);
      return {};
    case 'work':
      working = await PATHS[request.path].work(request.options);
      return {};
    case 'rounds': {
      const before = process.cpuUsage();
      for (let round = 0; round < request.rounds; round++) await working?.round();
      return { cpu: process.cpuUsage(before) };
    }
    case 'cpu':
      return { cpu: process.cpuUsage() };
    case 'close':
      working?.close();
      await serving?.close();
      [working, serving] = [undefined, undefined];
      return {};
  }
}

process.on('message', async (/** @type {Request} */ request) => process.send?.(await answer(request)));
process.on('disconnect', () => process.exit());
