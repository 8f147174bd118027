/**
 * Whether those who are connected have the memory for a model. What the run needs of a worker and of a server is held against the largest of each;
 * a refusal says all of these numbers, and which change would do. Nobody connected, or one that does not say: nothing is known, and the run waits for
 * whoever comes.
 */
import { Injectable } from '@nestjs/common';
import { createOptimizer } from '@paceline/learning';
import {
  appliedByServers,
  LIMITS,
  serverBytes,
  shardCount,
  shardHosts,
  type RunSpec,
  type SpecIssue,
  threadsOf,
  workerBytes,
} from '@paceline/spec';
import { Fleet, type FleetRole } from '../fleet/fleet.js';

const megabytes = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`;

interface Member {
  readonly id: string;
  readonly host: string;
  readonly memoryBytes: number;
}

/** Parameters and state of a model. */
export interface Elements {
  readonly all: number;
  /** What of them lies in a worker: of tables that are exchanged by rows, the rows of one round. */
  readonly worker: number;
}

@Injectable()
export class FleetMemory {
  constructor(private readonly fleet: Fleet) {}

  async issueOf(spec: RunSpec, elements: Elements): Promise<SpecIssue | undefined> {
    const slots = slotsOf(spec);
    const { replicas, strategy } = spec;
    const ofServer = serverBytes(spec, slots, elements.all);
    const holdsShard = shardHosts(strategy) === 'workers';
    const [worker, server] = [await this.largest('worker'), holdsShard ? undefined : await this.largest('server')];
    const ofShards = holdsShard ? ofServer * (1 + strategy.standby) : 0; // its own, and the standby of another
    const ofWorker = workerBytes(spec, elements.worker) + ofShards;
    const advice = [
      ...(isShort(worker, ofWorker) ? adviceForWorkers(spec, elements.worker, worker.memoryBytes - ofShards) : []),
      ...(isShort(server, ofServer) ? adviceForServers(spec, slots, elements.all, server.memoryBytes) : []),
    ];
    if (advice.length === 0) return undefined;
    const needsOfServers = holdsShard ? '' : `; ${serversNeed(spec, ofServer, server)}`;
    const byRows = elements.worker < elements.all ? `, of which a worker holds ${elements.worker}, with the rows of one round` : '';
    const message =
      `has ${elements.all} parameters (state included)${byRows}: a worker with ${replicas === 1 ? 'its replica' : `all ${replicas} replicas`}` +
      `${holdsShard ? ' and a shard' : ''} needs ${megabytes(ofWorker)}${largestOf(worker)}${needsOfServers}: ` +
      [...advice, 'use a smaller model'].join(', or ');
    return { path: 'model', message };
  }

  /** What a run that goes on with another number of servers needs of each of them. @param elements parameters and state */
  async issueOfServers(spec: RunSpec, elements: number): Promise<SpecIssue | undefined> {
    if (shardHosts(spec.strategy) === 'workers') return undefined;
    const slots = slotsOf(spec);
    const [bytes, server] = [serverBytes(spec, slots, elements), await this.largest('server')];
    if (!isShort(server, bytes)) return undefined;
    const advice = adviceForServers(spec, slots, elements, server.memoryBytes, 'servers');
    return {
      path: 'servers',
      message: `the model has ${elements} parameters (state included): ${serversNeed(spec, bytes, server)}: ${advice.join(', or ')}`,
    };
  }

  /** What a run that goes on with another number of workers that hold its shards needs of each of them. */
  async issueOfShardWorkers(spec: RunSpec, elements: Elements): Promise<SpecIssue | undefined> {
    const worker = await this.largest('worker');
    const needs = (workers: number): number => {
      const other: RunSpec = { ...spec, strategy: { ...spec.strategy, workers } as RunSpec['strategy'] };
      return workerBytes(other, elements.worker) + serverBytes(other, slotsOf(other), elements.all) * (1 + spec.strategy.standby);
    };
    const workers = shardCount(spec.strategy);
    if (!isShort(worker, needs(workers))) return undefined;
    const most = Math.min(spec.replicas, LIMITS.servers);
    const enough = Array.from({ length: most }, (_, i) => i + 1).find((count) => count > workers && needs(count) <= worker.memoryBytes);
    const advice = enough === undefined ? 'no number of workers of this run would do' : `${enough} workers would do`;
    return {
      path: 'workers',
      message:
        `the model has ${elements.all} parameters (state included): with ${workers === 1 ? 'one worker' : `${workers} workers`} each needs ` +
        `${megabytes(needs(workers))} for its replicas and its shard${largestOf(worker)}: ${advice}`,
    };
  }

  private async largest(role: FleetRole): Promise<Member | undefined> {
    const members = (await this.fleet.list(role)).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row));
    const known = members.flatMap(({ id, host, memoryBytes }) => (memoryBytes === undefined ? [] : [{ id, host, memoryBytes }]));
    if (known.length < members.length) return undefined;
    return known.sort((a, b) => b.memoryBytes - a.memoryBytes)[0];
  }
}

const slotsOf = (spec: RunSpec): number => createOptimizer(appliedByServers(spec).optimizer).slots.length;

function serversNeed({ strategy }: RunSpec, bytes: number, server: Member | undefined): string {
  const shards = shardCount(strategy);
  return `${shards === 1 ? 'the server' : `each of the ${shards} servers`} needs ${megabytes(bytes)}${largestOf(server)}`;
}

const isShort = (member: Member | undefined, bytes: number): member is Member => member !== undefined && member.memoryBytes < bytes;

const largestOf = (member: Member | undefined): string =>
  member ? `, the largest that is connected (${member.id} on ${member.host}) may use ${megabytes(member.memoryBytes)}` : '';

/** Fewer compute threads change no weight, so they come first. */
function adviceForWorkers(spec: RunSpec, elements: number, memoryBytes: number): string[] {
  const advice = ['connect a worker with more memory'];
  for (let threads = threadsOf(spec, LIMITS.threads) - 1; threads >= 1; threads--) {
    const strategy = Object.assign({}, spec.strategy, { threads });
    if (workerBytes(Object.assign({}, spec, { strategy }), elements) > memoryBytes) continue;
    return [`use at most ${threads} compute thread${threads === 1 ? '' : 's'} (\`strategy.threads\`)`, ...advice];
  }
  for (let replicas = spec.replicas - 1; replicas >= 1; replicas--) {
    if (workerBytes(Object.assign({}, spec, { replicas }), elements) > memoryBytes) continue;
    return [`use at most ${replicas} replica${replicas === 1 ? '' : 's'} (\`replicas\`)`, ...advice];
  }
  return advice;
}

/** @param field in which the number of servers is said */
function adviceForServers(spec: RunSpec, slots: number, elements: number, memoryBytes: number, field = 'strategy.servers'): string[] {
  const advice = ['connect a server with more memory'];
  for (let servers = shardCount(spec.strategy) + 1; servers <= LIMITS.servers; servers++) {
    if (serverBytes(Object.assign({}, spec, { strategy: Object.assign({}, spec.strategy, { servers }) }), slots, elements) > memoryBytes)
      continue;
    return [`use ${servers} servers (\`${field}\`)`, ...advice];
  }
  return advice;
}
