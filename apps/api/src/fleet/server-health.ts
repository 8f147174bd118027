/**
 * The fleet as the dispatcher judges it. A heartbeat comes every second; a server that misses one is looked at more closely: when
 * nobody listens at its port any more, its process is gone, and no run has to wait for five seconds of silence.
 */
import { createConnection } from 'node:net';
import { Injectable } from '@nestjs/common';
import {
  ShardWorkerWatch,
  LOST_AFTER_MS,
  REFUSED_SILENCE_MS,
  type FleetCounts,
  type ObservedFleet,
  type ServerAddress,
  type ServerHealth,
} from '@paceline/control-plane';
import { Fleet } from './fleet.js';
import { databaseNow, steadyNow } from '../database/database-clock.js';

const PROBE_DEADLINE_MS = 300;
/** Looked at before the silence counts, so that the answer is there when it does. */
const PROBE_AFTER_MS = REFUSED_SILENCE_MS - 200;
const MAX_PROBES_PER_LOOK = 16;
const MAX_SUSPECTED = 1_000;

@Injectable()
export class ServerHealthReader {
  /** Servers that a worker could not reach, and when it said so. */
  private readonly suspected = new Map<string, number>();
  private readonly shardWorkers = new ShardWorkerWatch();

  constructor(private readonly fleet: Fleet) {}

  suspect(serverId: string): void {
    if (this.suspected.size > MAX_SUSPECTED) this.suspected.clear();
    this.suspected.set(serverId, steadyNow());
  }

  /** @param placed servers that hold a part of a run @throws when PostgreSQL is away */
  async observe(placed: readonly ServerAddress[]): Promise<ObservedFleet> {
    // A shard may be held by a worker.
    const [ofServers, ofWorkers, counts] = await Promise.all([this.fleet.members('server'), this.fleet.members('worker'), this.counts()]);
    const rows = [...ofServers, ...ofWorkers];
    const [now, here] = [databaseNow(), steadyNow()];
    const silent = placed.filter(({ serverId }) => {
      const row = rows.find(({ id }) => id === serverId);
      return row && !row.hasLeft && now - row.lastSeenMs > PROBE_AFTER_MS;
    });
    const refused = new Set<string>();
    const unique = [...new Map(silent.map((address) => [address.serverId, address])).values()].slice(0, MAX_PROBES_PER_LOOK);
    await Promise.all(unique.map(async (address) => void ((await isRefused(address)) && refused.add(address.serverId))));
    const servers = new Map<string, ServerHealth>(
      rows.map(({ id, lastSeenMs, hasLeft }) => [
        id,
        {
          silentMs: now - lastSeenMs,
          hasLeft,
          isSuspected: here - (this.suspected.get(id) ?? -Infinity) < 2 * LOST_AFTER_MS,
          isRefused: refused.has(id),
        },
      ]),
    );
    return { servers, isReliable: this.fleet.isReliable(here), reliableForMs: this.fleet.reliableForMs(here), counts };
  }

  private async counts(): Promise<FleetCounts> {
    const [workers, servers] = await Promise.all([this.fleet.list('worker'), this.fleet.list('server')]);
    const alive = { worker: workers.filter((row) => this.fleet.isAlive(row)), server: servers.filter((row) => this.fleet.isAlive(row)) };
    const right = alive.worker.filter((row) => this.fleet.isCompatible(row));
    const hosts = right.filter((row) => this.fleet.holdsShards(row)).map(({ id, runId }) => ({ id, isIdle: runId === null }));
    return {
      liveWorkers: right.length,
      ...this.shardWorkers.look(hosts, steadyNow()),
      idleWorkers: right.filter(({ runId }) => runId === null).length,
      liveServers: alive.server.filter((row) => this.fleet.isCompatible(row)).length,
      incompatible: (['worker', 'server'] as const).flatMap((role) =>
        alive[role].filter((row) => !this.fleet.isCompatible(row)).map(({ id, protocolVersion }) => ({ role, id, protocolVersion })),
      ),
    };
  }
}

/** Whether the connection is refused: a slow process still accepts, a host that is away answers nothing. */
function isRefused({ host, port }: ServerAddress): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host, port });
    const end = (answer: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer);
    };
    const timer = setTimeout(() => end(false), PROBE_DEADLINE_MS);
    socket.once('connect', () => end(false));
    socket.once('error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED'));
  });
}
