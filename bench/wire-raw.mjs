/**
 * The wire without Paceline: the same processes, streams, bytes and dependencies, but bare sockets of node:net. No frames, no
 * checksums, no sums; both ends read into fixed buffers. What the framed path reaches of this is what the bench shows.
 *
 * The server sends chunk i to every worker when chunk i has come from all of them, as a parameter server must.
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

/** @type {import('./wire-process.mjs').Serve} */
export async function serveRaw({ listenAt, workers, totalBytes, chunkBytes, bufferBytes }) {
  /** @type {{ received: number, socket: net.Socket }[]} */
  const links = [];
  const payload = sharedBytes(chunkBytes);
  const chunks = Math.ceil(totalBytes / chunkBytes);
  let chunksSent = 0;
  const advance = () => {
    const slowest = Math.min(...links.map((link) => link.received));
    for (;;) {
      const end = Math.min(((chunksSent % chunks) + 1) * chunkBytes, totalBytes) + Math.floor(chunksSent / chunks) * totalBytes;
      if (links.length < workers || end > slowest) return;
      const bytes = Math.min(chunkBytes, totalBytes - (chunksSent % chunks) * chunkBytes);
      for (const link of links) link.socket.write(payload.subarray(0, bytes));
      chunksSent++;
    }
  };
  const server = net.createServer({ pauseOnConnect: true, noDelay: true }, (accepted) => {
    const socket = countingSocket(
      sharedBytes(bufferBytes),
      (count) => {
        link.received += count;
        advance();
      },
      accepted,
    );
    const link = { received: 0, socket };
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
export async function workRaw({ addresses: [address], totalBytes, chunkBytes, bufferBytes }) {
  const gradient = sharedBytes(totalBytes);
  let received = 0;
  let wanted = 0;
  /** @type {() => void} */
  let whole = () => {};
  const socket = countingSocket(sharedBytes(bufferBytes), (count) => {
    received += count;
    if (received >= wanted) whole();
  });
  socket.setNoDelay(true);
  const { host, port, unixPath } = address;
  socket.connect(unixPath === null ? { host, port } : { path: unixPath });
  await once(socket, 'connect');
  return {
    round: () =>
      new Promise((resolve) => {
        whole = resolve;
        wanted = received + totalBytes;
        for (let from = 0; from < totalBytes; from += chunkBytes)
          socket.write(gradient.subarray(from, Math.min(from + chunkBytes, totalBytes)));
      }),
    close: () => socket.destroy(),
  };
}
