/**
 * The wire without Paceline: the same processes, streams, bytes and dependencies, but bare sockets of node:net. No frames, no
 * checksums, no sums; both ends read into fixed buffers. What the framed path reaches of this is what the bench shows.
 *
 * The server sends chunk i to every worker when chunk i has come from all of them, as a parameter server must. With several streams chunk i of
 * a round goes over stream i modulo their number, both ways; the first byte on a socket says which stream it is.
 */
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import net from 'node:net';

/**
 * A socket that reads into `buffer` and tells how many bytes came; for accepted sockets with the handle of `accepted`.
 * @param {Uint8Array} buffer
 * @param {(count: number) => void} onBytes
 * @param {net.Socket} [accepted]
 */
function countingSocket(buffer, onBytes, accepted) {
  const onread = {
    buffer,
    /** @param {number} count */
    callback: (count) => {
      onBytes(count);
      return true;
    },
  };
  if (!accepted) return new net.Socket(/** @type {net.SocketConstructorOpts} */ ({ onread })); // the types lack it
  // Node has no public way to give an accepted socket a buffer to read into.
  const inside = /** @type {{ _handle: unknown }} */ (/** @type {unknown} */ (accepted));
  const handle = inside._handle;
  inside._handle = null;
  accepted.destroy();
  return new net.Socket(/** @type {net.SocketConstructorOpts} */ ({ handle, onread, readable: true, writable: true }));
}

/** @param {number} bytes */
const sharedBytes = (bytes) => new Uint8Array(new SharedArrayBuffer(bytes));

/**
 * What lies before each chunk of a round in its stream, and how much a stream carries in a round.
 * @param {Pick<import('./wire-process.mjs').Sizes, 'totalBytes' | 'chunkBytes' | 'streams'>} sizes
 */
function placesOf({ totalBytes, chunkBytes, streams }) {
  const ofStream = new Array(streams).fill(0);
  const places = Array.from({ length: Math.ceil(totalBytes / chunkBytes) }, (_, i) => {
    const stream = i % streams;
    const from = i * chunkBytes;
    const to = Math.min(from + chunkBytes, totalBytes);
    ofStream[stream] += to - from;
    return { stream, from, to, end: ofStream[stream] };
  });
  return { places, ofStream };
}

/** @type {import('./wire-process.mjs').Serve} */
export async function serveRaw({ listenAt, workers, bufferBytes, ...sizes }) {
  /** @type {{ stream: number, received: number, socket: net.Socket }[]} */
  const links = [];
  const payload = sharedBytes(sizes.chunkBytes);
  const { places, ofStream } = placesOf(sizes);
  let chunksSent = 0;
  const advance = () => {
    for (;;) {
      const { stream, from, to, end } = /** @type {typeof places[number]} */ (places[chunksSent % places.length]);
      const wanted = end + Math.floor(chunksSent / places.length) * ofStream[stream];
      const ends = links.filter((link) => link.stream === stream);
      if (ends.length < workers || ends.some(({ received }) => received < wanted)) return;
      for (const { socket } of ends) socket.write(payload.subarray(0, to - from));
      chunksSent++;
    }
  };
  const server = net.createServer({ pauseOnConnect: true, noDelay: true }, (accepted) => {
    const buffer = sharedBytes(bufferBytes);
    const socket = countingSocket(
      buffer,
      (count) => {
        if (link.stream < 0) {
          link.stream = buffer[0] ?? 0;
          link.received = -1;
        }
        link.received += count;
        advance();
      },
      accepted,
    );
    const link = { stream: -1, received: 0, socket };
    socket.on('error', () => socket.destroy());
    links.push(link);
  });
  const { unixPath = null } = listenAt;
  await /** @type {Promise<void>} */ (
    new Promise((resolve) => server.listen(unixPath === null ? { host: '127.0.0.1', port: listenAt.port } : { path: unixPath }, resolve))
  );
  const bound = server.address();
  return {
    address: { host: '127.0.0.1', port: bound !== null && typeof bound === 'object' ? bound.port : 0, unixPath },
    close: () => {
      for (const link of links) link.socket.destroy();
      server.close();
      if (unixPath !== null) rmSync(unixPath, { force: true });
    },
  };
}

/** @type {import('./wire-process.mjs').Work} */
export async function workRaw({ addresses: [address], bufferBytes, ...sizes }) {
  const gradient = sharedBytes(sizes.totalBytes);
  const { places } = placesOf(sizes);
  let left = 0;
  /** @type {() => void} */
  let whole = () => {};
  const { host, port, unixPath } = address;
  /** @param {number} stream */
  const dial = async (stream) => {
    const socket = countingSocket(sharedBytes(bufferBytes), (count) => {
      left -= count;
      if (left === 0) whole();
    });
    socket.setNoDelay(true);
    socket.connect(unixPath === null ? { host, port } : { path: unixPath });
    await once(socket, 'connect');
    socket.write(Uint8Array.of(stream));
    return socket;
  };
  const sockets = await Promise.all(Array.from({ length: sizes.streams }, (_, stream) => dial(stream)));
  return {
    round: () =>
      new Promise((resolve) => {
        whole = resolve;
        left = sizes.totalBytes;
        for (const { stream, from, to } of places) sockets[stream]?.write(gradient.subarray(from, to));
      }),
    close: () => {
      for (const socket of sockets) socket.destroy();
    },
  };
}
