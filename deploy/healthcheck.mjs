/**
 * Health of a container: `node healthcheck.mjs http://127.0.0.1:4100/readyz` asks an HTTP endpoint, any other address
 * (`tcp://ps:4200`, `redis://:secret@redis:6379`) is healthy when its port takes a connection. Exit status 0 or 1, with one line that says why; secrets in the
 * address are not printed.
 */
import { connect } from 'node:net';

const DEADLINE_MS = 3000;
const address = new URL(process.argv[2]);

async function check() {
  if (address.protocol === 'http:' || address.protocol === 'https:') {
    const response = await fetch(address, { signal: AbortSignal.timeout(DEADLINE_MS) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return;
  }
  await new Promise((resolve, reject) => {
    const socket = connect({ host: address.hostname, port: Number(address.port) });
    socket.setTimeout(DEADLINE_MS, () => socket.destroy(new Error(`no connection within ${DEADLINE_MS} ms`)));
    socket.once('connect', () => socket.end(resolve));
    socket.once('error', reject);
  });
}

try {
  await check();
} catch (error) {
  console.log(`${address.protocol}//${address.host}: ${error.cause?.message ?? error.message}`);
  process.exitCode = 1;
}
