/** What a round sends, over a real socket behind a slow link: the time from the first byte of the gradient to the last one of the parameters. */
import { Link, connect, listen, processClock } from '@paceline/exchange';
import { FrameType, HEADER_BYTES } from '@paceline/protocol';
import { VARIABLES, readEnvironment } from '@paceline/runtime';
import { median } from './median.mjs';
import { hello } from './wire-frames.mjs';

const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };
const FIELDS = { ...NUMBERS, codec: 0, nodeLo: 0, nodeHi: 1 };
const MOST_CHUNK_BYTES = 1 << 20;

/**
 * @param {string} text such as 20mbit,30ms
 * @throws EnvironmentError when it is none
 */
export const linkOf = (text) => readEnvironment({ PACELINE_LINK: VARIABLES.PACELINE_LINK }, { PACELINE_LINK: text }).PACELINE_LINK;

/**
 * @param {import('@paceline/exchange').Connection} connection
 * @param {number} bytes with headers
 * @param {import('@paceline/protocol').FrameType} type
 */
function sendBytes(connection, bytes, type) {
  const frames = Math.max(1, Math.ceil(bytes / MOST_CHUNK_BYTES));
  const each = Math.max(0, Math.round(bytes / frames) - HEADER_BYTES);
  for (let chunk = 0; chunk < frames; chunk++) connection.sendData({ ...FIELDS, type, chunk }, new Uint8Array(each));
  return frames;
}

/**
 * The median of some rounds: the server answers when all of the gradient is there.
 * @param {import('@paceline/exchange').LinkSpeed} speed
 * @param {number} upBytes
 * @param {number} downBytes
 * @param {number} rounds
 */
export async function roundMsOver(speed, upBytes, downBytes, rounds) {
  const scratch = new Uint8Array(MOST_CHUNK_BYTES);
  const payloadFor = (/** @type {{ length: number }} */ { length }) => scratch.subarray(0, length);
  const receiver = (/** @type {() => void} */ data) => ({ payloadFor, data, message: () => {}, closed: () => {} });
  const frames = Math.max(1, Math.ceil(upBytes / MOST_CHUNK_BYTES));
  let come = 0;
  const listener = await listen({ host: '127.0.0.1', port: 0 }, (connection) =>
    connection.setReceiver(
      receiver(() => {
        if (++come % frames === 0) sendBytes(connection, downBytes, FrameType.parameters);
      }),
    ),
  );
  const address = { host: '127.0.0.1', port: listener.port ?? 0, unixPath: null };
  const connection = await connect(address, { deadlineMs: 5000, link: new Link(speed, processClock) });
  const wanted = Math.max(1, Math.ceil(downBytes / MOST_CHUNK_BYTES));
  let left = 0;
  /** @type {(value?: unknown) => void} */
  let whole = () => {};
  connection.setReceiver(receiver(() => void (--left === 0 && whole())));
  connection.sendMessage(hello('bench'), NUMBERS);
  const times = [];
  for (let round = 0; round < rounds; round++) {
    const begun = performance.now();
    left = wanted;
    await new Promise((resolve) => {
      whole = resolve;
      sendBytes(connection, upBytes, FrameType.gradient);
    });
    times.push(performance.now() - begun);
  }
  connection.close();
  await listener.close();
  return median(times);
}
