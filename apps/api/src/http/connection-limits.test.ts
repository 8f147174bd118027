import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { TrustedProxies } from './client-address.js';
import { limitConnections } from './connection-limits.js';

it.each([
  ['an address has so many connections, and a closed one makes room', [], 2],
  ['a trusted proxy has the connections of everybody', ['127.0.0.0/8'], 4],
])('%s', async (_, trusted, allowed) => {
  const server = createServer();
  limitConnections(server, new TrustedProxies(trusted), 2);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const open = async (): Promise<{ socket: ReturnType<typeof connect>; isOpen: boolean }> => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined);
    socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
    const isOpen = await Promise.race([
      once(socket, 'close').then(() => false),
      once(server, 'request').then(([, response]: unknown[]) => {
        (response as { end(): void }).end();
        return true;
      }),
    ]);
    return { socket, isOpen };
  };
  const sockets = [];
  for (let i = 0; i < 4; i++) sockets.push(await open());
  expect(sockets.filter(({ isOpen }) => isOpen)).toHaveLength(allowed);
  const left = once(sockets[0]!.socket, 'close');
  sockets[0]!.socket.destroy();
  await left;
  for (;;) {
    const again = await open();
    sockets.push(again);
    if (again.isOpen) break;
  }
  for (const { socket } of sockets) socket.destroy();
  server.close();
});
