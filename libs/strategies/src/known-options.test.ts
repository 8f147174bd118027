/** What strategies over servers, and servers, refuse before anything starts. */
import { GivenResolver } from '@paceline/collectives';
import { expect, it } from 'vitest';
import { ArgumentError } from './errors.js';
import { HybridStrategy, ParameterServerStrategy } from './parameter-server.js';
import { Server } from './servers/server.js';

const resolver = new GivenResolver({ worker: ['127.0.0.1:1'], ps: ['127.0.0.1:2'] }, { type: 'ps', index: 0 });

it.each([
  [null, 'takes an object with seed, secret'],
  [[], 'takes an object with seed, secret'],
  [{ deadline: 5 }, 'has no option "deadline": it takes seed'],
  [{ seed: -1 }, 'seed must be a whole number from 0 to 4294967295, not -1'],
  [{ seed: 2 ** 40 }, 'seed must be a whole number from 0 to 4294967295'],
  [{ transport: 'udp' }, 'transport must be auto, tcp or unix, not udp'],
])('strategies over servers refuse %j', (options, message) => {
  for (const Strategy of [ParameterServerStrategy, HybridStrategy]) {
    expect(() => new Strategy(resolver, options as never)).toThrow(`${Strategy.name}`);
    expect(() => new Strategy(resolver, options as never)).toThrow(message);
    expect(() => new Strategy(resolver, options as never)).toThrow(ArgumentError);
  }
});

it.each([
  [null, 'Server takes an object with secret, transport, listenHost'],
  [{ port: 1 }, 'Server has no option "port": it takes secret'],
  [{ transport: 'udp' }, 'transport must be auto, tcp or unix, not udp'],
  [{ listenHost: '' }, 'listenHost must be an address or a name of this machine'],
])('a server refuses %j', async (options, message) => {
  const started = Server.start(resolver, options as never);
  await expect(started).rejects.toThrow(ArgumentError);
  await expect(started).rejects.toThrow(message);
});
