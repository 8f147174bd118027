/** What strategies over servers, and servers, refuse before anything starts. */
import { ClusterSpec, GivenResolver } from '@paceline/collectives';
import { expect, it } from 'vitest';
import { ClusterCoordinator } from './coordinator/cluster-coordinator.js';
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
  [{ workersPerGroup: 0 }, 'workersPerGroup must be a whole number from 1 to'],
  [{ workersPerGroup: 2 }, 'workersPerGroup is 2, and the cluster has 1 worker'],
  [{ onMemberLoss: 'continue' }, 'onMemberLoss cannot be "continue": the rows of a step are with the workers'],
  [{ onMemberLoss: 'stop' }, 'HybridStrategy has no option "onMemberLoss"'],
])('HybridStrategy refuses %j', (options, message) => {
  const chief = { resolve: () => ({ cluster: new ClusterSpec({ worker: ['127.0.0.1:1'], ps: ['127.0.0.1:2'] }) }) };
  expect(() => new HybridStrategy(chief, { secret: 'a secret of these tests', ...options } as never)).toThrow(message);
  expect(() => new HybridStrategy(chief, { secret: 'a secret of these tests', ...options } as never)).toThrow(ArgumentError);
});

it('groups that would send several sums, and functions of a coordinator in groups, are refused', async () => {
  const workers = Array.from({ length: 6 }, (_, i) => `127.0.0.1:${i + 1}`);
  const six = { resolve: () => ({ cluster: new ClusterSpec({ worker: workers, ps: ['127.0.0.1:9'] }) }) };
  const options = { secret: 'a secret of these tests', replicasPerWorker: 1 };
  expect(() => new HybridStrategy(six, { ...options, workersPerGroup: 3 })).toThrow(/would send 2 sums: make workersPerGroup/);
  const strategy = new HybridStrategy(six, { ...options, workersPerGroup: 2 });
  expect(() => new ClusterCoordinator(strategy)).toThrow(/ClusterCoordinator with groups of several workers/);
  await strategy.dispose();
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
