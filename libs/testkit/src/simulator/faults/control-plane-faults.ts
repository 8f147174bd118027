/** What happens to PostgreSQL, Redis and apis. None of it may end an attempt, lose a run, or give it twice what it asks for. */
import { later, type Fault } from './fault.js';
import type { DeathPoint } from '../actors/api.js';

const DEATHS: readonly (DeathPoint | 'now')[] = ['now', 'before it enqueues', 'after it has enqueued'];

export const CONTROL_PLANE_FAULTS = {
  'Redis away': {
    inject(cluster) {
      if (cluster.redis.isAway) return false;
      cluster.redis.goAway();
      later(cluster, 100, 30_000, 'Redis back', () => cluster.redis.comeBack());
      return true;
    },
  },
  'restart Redis': {
    inject(cluster) {
      if (cluster.redis.isAway) return false;
      if (cluster.redis.crash() > 0) cluster.network.count('Redis has lost its last second');
      later(cluster, 100, 3_000, 'Redis back', () => cluster.redis.comeBack());
      return true;
    },
  },
  'flush Redis': {
    inject(cluster) {
      if (cluster.redis.isAway) return false;
      cluster.redis.flushAll();
      return true;
    },
  },
  'PostgreSQL away': {
    inject(cluster) {
      if (cluster.postgres.isAway) return false;
      cluster.postgres.goAway();
      later(cluster, 100, 30_000, 'PostgreSQL back', () => cluster.postgres.comeBack());
      return true;
    },
  },
  'kill an api': {
    inject(cluster) {
      const apis = cluster.liveApis();
      if (apis.length === 0) return false;
      const api = cluster.world.random.pick(apis);
      const at = cluster.world.random.pick(DEATHS);
      if (at === 'now') api.process.kill();
      else api.diesAt = at;
      if (at === 'now') cluster.restartApi();
      else api.process.onKill(() => cluster.restartApi());
      return true;
    },
  },
  'stop an api': {
    inject(cluster) {
      const apis = cluster.liveApis().filter(({ process }) => !process.isFrozen);
      if (apis.length === 0) return false;
      const { process } = cluster.world.random.pick(apis);
      process.freeze();
      later(cluster, 50, cluster.world.random.pick([500, 5_000, 30_000]), 'api goes on', () => process.thaw());
      return true;
    },
  },
} as const satisfies Record<string, Fault>;
