/**
 * The address that a request counts for when there are proxies: the right-most address of X-Forwarded-For that is no proxy of ours. Only a proxy named in
 * PACELINE_TRUSTED_PROXIES is believed; without it the header counts for nothing, since anybody may send it.
 */
import { BlockList, isIP, isIPv6 } from 'node:net';
import type { IncomingMessage } from 'node:http';

export class TrustedProxies {
  private readonly list = new BlockList();

  /** @param ranges addresses and CIDR ranges, checked by the environment */
  constructor(readonly ranges: readonly string[]) {
    for (const range of ranges) {
      const [address = '', bits] = range.split('/');
      const family = isIPv6(address) ? 'ipv6' : 'ipv4';
      if (bits === undefined) this.list.addAddress(address, family);
      else this.list.addSubnet(address, Number(bits), family);
    }
  }

  has(remoteAddress: string): boolean {
    const address = plain(remoteAddress);
    return isIP(address) !== 0 && this.list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
  }

  addressOf(request: Pick<IncomingMessage, 'headers' | 'socket'>): string {
    let address = request.socket.remoteAddress ?? '';
    const forwarded = String(request.headers['x-forwarded-for'] ?? '').split(',');
    while (this.has(address)) {
      const before = forwarded.pop()?.trim();
      if (!before || isIP(before) === 0) break;
      address = before;
    }
    return plain(address);
  }
}

/** An IPv4 address that a socket of both families shows as IPv6. */
const plain = (address: string): string => /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1] ?? address;

/** Requests that count together come from one source: an IPv4 address, or the /64 of an IPv6 address, since a host has all of it. */
export function sourceOf(remoteAddress: string): string {
  const address = plain(remoteAddress);
  if (!isIPv6(address)) return address;
  const [front = '', back] = address.split('%')[0]!.toLowerCase().split('::');
  const [before, after] = [front, back ?? ''].map((part) => part.split(':').filter((group) => group !== ''));
  const zeros = back === undefined ? 0 : Math.max(0, 8 - before!.length - after!.length);
  return [...before!, ...Array<string>(zeros).fill('0'), ...after!].slice(0, 4).join(':');
}

const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1)$/;
export const isLoopback = (remoteAddress: string): boolean => LOOPBACK.test(plain(remoteAddress));
