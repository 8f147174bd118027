/** The transport alone: the same bytes as framed data of @paceline/exchange, received into regions, with no sums. */
import { connect, listen } from '@paceline/exchange';
import { sharedBuffer } from '@paceline/kernels';
import { FrameType } from '@paceline/protocol';

const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };
const FIELDS = { ...NUMBERS, codec: 0, nodeLo: 0, nodeHi: 1 };
/** @param {number} bytes */
const sharedBytes = (bytes) => new Uint8Array(sharedBuffer(bytes), 0, bytes);

/**
 * @param {string} id
 * @param {number} [stream]
 * @returns {import('@paceline/protocol').MessageOf<'hello'>}
 */
export const hello = (id, stream = 0) => ({
  type: 'hello',
  token: 'bench',
  run: '00000000-0000-4000-8000-000000000000',
  role: 'worker',
  id,
  host: 'localhost',
  seat: stream,
  incarnation: 1,
  fingerprint: '',
  layout: '',
});

/** @type {import('./wire-process.mjs').Serve} */
export async function serveFrames({ listenAt, workers, totalBytes, chunkBytes, streams, options }) {
  const chunks = Math.ceil(totalBytes / chunkBytes);
  const arrived = new Uint32Array(chunks);
  /** @type {import('@paceline/exchange').Connection[][]} */
  const connections = Array.from({ length: streams }, () => []);
  const parameters = sharedBytes(chunkBytes);
  const listener = await listen(
    listenAt,
    (connection) => {
      const regions = Array.from({ length: 4 }, () => sharedBytes(chunkBytes));
      connection.setReceiver({
        payloadFor: (header) => /** @type {Uint8Array} */ (regions[header.chunk % regions.length]).subarray(0, header.length),
        data: (header) => {
          const count = (arrived[header.chunk] ?? 0) + 1;
          arrived[header.chunk] = count % workers;
          if (count < workers) return;
          for (const each of connections[header.chunk % streams] ?? [])
            each.sendData({ ...FIELDS, type: FrameType.parameters, chunk: header.chunk }, parameters.subarray(0, header.length));
        },
        message: (message) => {
          if (message.type === 'hello') connections[message.seat]?.push(connection);
        },
        closed: () => {},
      });
    },
    options,
  );
  return {
    address: { host: listener.host ?? '127.0.0.1', port: listener.port ?? 0, unixPath: listener.unixPath },
    close: () => listener.close(),
  };
}

/** @type {import('./wire-process.mjs').Work} */
export async function workFrames({ addresses: [address], id, totalBytes, chunkBytes, streams, options }) {
  const gradient = sharedBytes(totalBytes);
  const parameters = sharedBytes(totalBytes);
  let left = 0;
  /** @type {() => void} */
  let whole = () => {};
  /** @param {number} stream */
  const dial = async (stream) => {
    const connection = await connect(address, { deadlineMs: 5000, transport: address.unixPath ? 'unix' : 'tcp', ...options });
    connection.setReceiver({
      payloadFor: (header) => parameters.subarray(header.chunk * chunkBytes, header.chunk * chunkBytes + header.length),
      data: () => {
        if (--left === 0) whole();
      },
      message: () => {},
      closed: () => {},
    });
    connection.sendMessage(hello(id, stream), NUMBERS);
    return connection;
  };
  const connections = await Promise.all(Array.from({ length: streams }, (_, stream) => dial(stream)));
  return {
    round: () =>
      new Promise((resolve) => {
        whole = resolve;
        left = Math.ceil(totalBytes / chunkBytes);
        for (let chunk = 0; chunk * chunkBytes < totalBytes; chunk++) {
          const payload = gradient.subarray(chunk * chunkBytes, Math.min((chunk + 1) * chunkBytes, totalBytes));
          connections[chunk % streams]?.sendData({ ...FIELDS, type: FrameType.gradient, chunk }, payload);
        }
      }),
    close: () => {
      for (const connection of connections) connection.close();
    },
  };
}
