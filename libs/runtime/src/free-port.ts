/**
 * Ports for servers that cannot listen on port 0 themselves. Between finding a port and binding it another process may take it, so
 * whoever uses one tries again with the next when the server says that the address is in use.
 */
import { createServer } from 'node:net';

export const BIND_ATTEMPTS = 5;

/** A TCP port on 127.0.0.1 that was free a moment ago. */
export function findFreePort(host = '127.0.0.1'): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.unref();
    server.once('error', reject);
    server.listen({ host, port: 0, exclusive: true }, () => {
      const address = server.address();
      const port = typeof address === 'object' && address ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}

/** Why no server could listen there now, EADDRINUSE or EACCES for example; undefined when one could. */
export function whyNotListening(port: number, host = '127.0.0.1'): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.unref();
    server.once('error', resolve);
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

export const isPortFree = async (port: number, host?: string): Promise<boolean> => (await whyNotListening(port, host)) === undefined;
