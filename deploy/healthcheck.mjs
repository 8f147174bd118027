/**
 * Health of a container: `node healthcheck.mjs http://127.0.0.1:4100/readyz` asks an HTTP endpoint, any other address
 * (`redis://:secret@redis:6379`) is healthy when its port takes a connection, and `tcp://own:4200` when that port does on any address of
 * this machine. Exit status 0 or 1, with one line that says why; secrets in the
 * address are not printed.
 */
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';

const DEADLINE_MS = 3000;
const address = new URL(process.argv[2]);

async function check() {
  if (address.protocol === 'http:' || address.protocol === 'https:') {
    const response = await fetch(address, { signal: AbortSignal.timeout(DEADLINE_MS) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return;
  }
  const own = Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));
  await Promise.any((address.hostname === 'own' ? own : [address.hostname]).map(connected));
}

/** @param {string} host */
function connected(host) {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: Number(address.port) });
    socket.setTimeout(DEADLINE_MS, () => socket.destroy(new Error(`no connection within ${DEADLINE_MS} ms`)));
    socket.once('connect', () => socket.end(resolve));
    socket.once('error', reject);
  });
}

try {
  await check();
} catch (error) {
  console.log(`${address.protocol}//${address.host}: ${(error.errors?.[0] ?? error.cause ?? error).message}`);
  process.exitCode = 1;
}
