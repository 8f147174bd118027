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
 * @returns {import('@paceline/protocol').MessageOf<'hello'>}
 */
export const hello = (id) => ({
  type: 'hello',
  token: 'bench',
  run: '00000000-0000-4000-8000-000000000000',
  role: 'worker',
  id,
  host: 'localhost',
  seat: 0,
  incarnation: 1,
  fingerprint: '',
  layout: '',
});

/** @type {import('./wire-process.mjs').Serve} */
export async function serveFrames({ listenAt, workers, totalBytes, chunkBytes, options }) {
  const chunks = Math.ceil(totalBytes / chunkBytes);
  const arrived = new Uint32Array(chunks);
  /** @type {import('@paceline/exchange').Connection[]} */
  const connections = [];
  const parameters = sharedBytes(chunkBytes);
  const listener = await listen(
    listenAt,
    (connection) => {
      connections.push(connection);
      const regions = Array.from({ length: 4 }, () => sharedBytes(chunkBytes));
      connection.setReceiver({
        payloadFor: (header) => /** @type {Uint8Array} */ (regions[header.chunk % regions.length]).subarray(0, header.length),
        data: (header) => {
          const count = (arrived[header.chunk] ?? 0) + 1;
          arrived[header.chunk] = count % workers;
          if (count < workers) return;
          for (const each of connections)
            each.sendData({ ...FIELDS, type: FrameType.parameters, chunk: header.chunk }, parameters.subarray(0, header.length));
        },
        message: () => {},
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
export async function workFrames({ addresses: [address], id, totalBytes, chunkBytes, options }) {
  const gradient = sharedBytes(totalBytes);
  const parameters = sharedBytes(totalBytes);
  let left = 0;
  /** @type {() => void} */
  let whole = () => {};
  const connection = await connect(address, { deadlineMs: 5000, transport: address.unixPath ? 'unix' : 'tcp', ...options });
  connection.setReceiver({
    payloadFor: (header) => parameters.subarray(header.chunk * chunkBytes, header.chunk * chunkBytes + header.length),
    data: () => {
      if (--left === 0) whole();
    },
    message: () => {},
    closed: () => {},
  });
  connection.sendMessage(hello(id), NUMBERS);
  return {
    round: () =>
      new Promise((resolve) => {
        whole = resolve;
        left = Math.ceil(totalBytes / chunkBytes);
        for (let chunk = 0; chunk * chunkBytes < totalBytes; chunk++) {
          const payload = gradient.subarray(chunk * chunkBytes, Math.min((chunk + 1) * chunkBytes, totalBytes));
          connection.sendData({ ...FIELDS, type: FrameType.gradient, chunk }, payload);
        }
      }),
    close: () => connection.close(),
  };
}
