/**
 * The wire without Paceline: the same processes, streams, bytes and dependencies, but bare sockets of node:net. No frames, no
 * checksums, no sums; both ends read into fixed buffers. What the framed path reaches of this is what the bench shows.
 *
 * The server sends chunk i to every worker when chunk i has come from all of them, as a parameter server must.
 */
import { rmSync } from 'node:fs';
import net from 'node:net';

/** A socket that reads into `buffer` and tells how many bytes came; for accepted sockets with the handle of `accepted`. */
function countingSocket(buffer, onBytes, accepted) {
  const onread = {
    buffer,
    callback: (count) => {
      onBytes(count);
      return true;
    },
  };
  if (!accepted) return new net.Socket({ onread });
  const handle = accepted._handle;
  accepted._handle = null;
  accepted.destroy();
  return new net.Socket({ handle, onread, readable: true, writable: true });
}

const sharedBytes = (bytes) => new Uint8Array(new SharedArrayBuffer(bytes));

/** @returns {Promise<{address: object, close: () => void}>} */
export async function serveRaw({ listenAt, workers, totalBytes, chunkBytes, bufferBytes }) {
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
    const link = { received: 0 };
    link.socket = countingSocket(
      sharedBytes(bufferBytes),
      (count) => {
        link.received += count;
        advance();
      },
      accepted,
    );
    link.socket.on('error', () => link.socket.destroy());
    links.push(link);
  });
  await new Promise((resolve) => server.listen(listenAt, resolve));
  return {
    address: listenAt.path ? { path: listenAt.path } : { host: '127.0.0.1', port: server.address().port },
    close: () => {
      for (const link of links) link.socket.destroy();
      server.close();
      if (listenAt.path) rmSync(listenAt.path, { force: true });
    },
  };
}

/** @returns {Promise<{round: () => Promise<void>, close: () => void}>} */
export async function workRaw({ address, totalBytes, chunkBytes, bufferBytes }) {
  const gradient = sharedBytes(totalBytes);
  let received = 0;
  let wanted = 0;
  let whole = () => {};
  const socket = countingSocket(sharedBytes(bufferBytes), (count) => {
    received += count;
    if (received >= wanted) whole();
  });
  socket.setNoDelay(true);
  socket.connect(address);
  await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
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
