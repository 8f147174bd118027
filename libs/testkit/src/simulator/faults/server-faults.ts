/** What happens to processes that hold shards. */
import { CRASHES } from '../../faulty-disk.js';
import { later, type Fault } from './fault.js';

export const SERVER_FAULTS = {
  'kill a server': {
    inject(cluster) {
      const server = cluster.world.random.pick(cluster.servers);
      if (!server.process.isAlive) return false;
      server.process.kill();
      cluster.restartServer(server.slot);
      return true;
    },
  },
  'lose a server host': {
    inject(cluster) {
      const { network, servers, world } = cluster;
      const { process, slot } = world.random.pick(servers);
      if (!process.isAlive) return false;
      // What is on its way goes lost too. Another process has its address afterwards.
      const ways = [
        [process.host, '*'],
        ['*', process.host],
      ] as const;
      for (const [from, to] of ways) network.block(from, to);
      process.kill();
      later(cluster, 100, 3_000, 'the host of a server is back', () => {
        for (const [from, to] of ways) network.unblock(from, to);
      });
      cluster.restartServer(slot);
      return true;
    },
  },
  'stop a server': {
    inject(cluster) {
      const server = cluster.world.random.pick(cluster.servers);
      if (!server.process.isAlive || server.process.isFrozen) return false;
      server.process.freeze();
      later(cluster, 50, cluster.world.random.pick([500, 5_000, 30_000]), 'server goes on', () => server.process.thaw());
      return true;
    },
  },
  'shut a server down': {
    inject(cluster) {
      const server = cluster.world.random.pick(cluster.servers);
      if (!server.process.isAlive || server.process.isFrozen || !server.hosted || server.hosted.over || server.isEnding) return false;
      server.process.run(() => server.shutdown());
      server.process.onKill(() => cluster.restartServer(server.slot));
      return true;
    },
  },
  'lose power': {
    inject(cluster) {
      if (cluster.servers.some(({ process }) => !process.isAlive)) return false;
      const crash = cluster.world.random.pick(CRASHES);
      for (const { process, slot } of cluster.servers) {
        process.kill();
        cluster.restartServer(slot);
      }
      cluster.disk.losePower(crash);
      return true;
    },
  },
} as const satisfies Record<string, Fault>;
