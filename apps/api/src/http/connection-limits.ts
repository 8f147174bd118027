/**
 * Connections are counted per address and in all, so that who holds many open takes the places of nobody else. The proxies that are trusted
 * hold those of everybody.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { sourceOf, type TrustedProxies } from './client-address.js';

export const MAX_CONNECTIONS = 5_000;
export const MAX_CONNECTIONS_PER_ADDRESS = 1_000;

export function limitConnections(server: Server, proxies: TrustedProxies, maxPerAddress = MAX_CONNECTIONS_PER_ADDRESS): void {
  server.maxConnections = MAX_CONNECTIONS;
  const open = new Map<string, number>();
  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? '';
    if (proxies.has(address)) return;
    const source = sourceOf(address);
    const count = open.get(source) ?? 0;
    if (count >= maxPerAddress) return void socket.destroy();
    open.set(source, count + 1);
    socket.once('close', () => {
      const left = open.get(source)! - 1;
      if (left > 0) open.set(source, left);
      else open.delete(source);
    });
  });
}
