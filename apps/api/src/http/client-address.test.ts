import { expect, it } from 'vitest';
import { isLoopback, sourceOf, TrustedProxies } from './client-address.js';

const from = (remoteAddress: string, forwarded?: string) =>
  ({ socket: { remoteAddress }, headers: forwarded === undefined ? {} : { 'x-forwarded-for': forwarded } }) as never;

it('believes X-Forwarded-For of named proxies only, and only as far as they go', () => {
  const proxies = new TrustedProxies(['10.0.0.0/8', '192.0.2.1', '2001:db8::/32']);
  expect(proxies.addressOf(from('203.0.113.9', '198.51.100.1'))).toBe('203.0.113.9');
  expect(proxies.addressOf(from('::ffff:10.1.2.3', '198.51.100.1'))).toBe('198.51.100.1');
  expect(proxies.addressOf(from('10.1.2.3', '6.6.6.6, 198.51.100.1, 192.0.2.1'))).toBe('198.51.100.1');
  expect(proxies.addressOf(from('2001:db8::5', '2001:4860::1'))).toBe('2001:4860::1');
  expect(proxies.addressOf(from('10.1.2.3', 'nonsense'))).toBe('10.1.2.3');
  expect(proxies.addressOf(from('10.1.2.3'))).toBe('10.1.2.3');
  expect(new TrustedProxies([]).addressOf(from('127.0.0.1', '198.51.100.1'))).toBe('127.0.0.1');
});

it('counts the addresses of one host together', () => {
  expect(sourceOf('::ffff:192.0.2.7')).toBe('192.0.2.7');
  expect(sourceOf('2001:db8:1:2:3:4:5:6')).toBe(sourceOf('2001:db8:1:2::9'));
  expect(sourceOf('2001:db8:1:3::9')).not.toBe(sourceOf('2001:db8:1:2::9'));
  expect(['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1', '128.0.0.1', 'localhost'].map(isLoopback)).toEqual([
    true,
    true,
    true,
    true,
    false,
    false,
  ]);
});
