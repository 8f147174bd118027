/** Shard and coordinator of modes async and ssp, wired as createShard and createCoordinator of apps/ps do. */
import { TokenCoordinator, TokenShard, type CoordinatorOptions, type Region } from '@paceline/exchange';
import { shardChunks } from '@paceline/learning';
import type { Message } from '@paceline/protocol';
import type { Cluster } from './cluster.js';
import type { HostedAttempt } from './hosted-attempt.js';
import type { TokenShape } from './token-run.js';

export function createTokenShard(
  part: HostedAttempt,
  cluster: Cluster,
  tokens: TokenShape,
  hooks: { onCut(generation: number, regions: readonly Region[]): void; tellCoordinator(message: Message): void },
): TokenShard {
  const { run } = cluster;
  const { memory, attempt, restore, index } = part;
  const shard = new TokenShard({
    ...{ index, attempt, chunks: memory.chunks, initial: memory.initial, firstRound: restore?.round ?? 0 },
    plan: {
      ...{ replicas: run.shape.replicas, totalRounds: run.schedule.totalRounds },
      replicaExamples: (round, replica) => run.replicaExamples(round, replica),
    },
    keepsFetched: tokens.delayCompensation > 0,
    update: (chunk, update, paramIn, paramOut, gradient) => {
      cluster.tokens!.applying(part, chunk.index, update, gradient);
      memory.updateToken(chunk, update, paramIn, paramOut, gradient, tokens);
      cluster.tokens!.applied(part, chunk.index, paramOut);
    },
    onCut: (generation, regions) => {
      cluster.tokens!.cut(part, generation, regions);
      hooks.onCut(generation, regions);
    },
    tellCoordinator: (message) => hooks.tellCoordinator(message),
    onDropped: (reason) => cluster.world.note(`dropped: ${reason}`),
  });
  cluster.plant?.tokenShard?.(shard, cluster);
  return shard;
}

export function createTokenCoordinator(common: CoordinatorOptions, cluster: Cluster, tokens: TokenShape): TokenCoordinator {
  const { layout, shape } = cluster.run;
  const { mode, stalenessBound, nonFinite } = tokens;
  const servers = Array.from({ length: shape.servers }, (_, index) => index);
  const shards = servers.filter((index) => shardChunks(layout, shape.servers, index).length > 0);
  const coordinator = new TokenCoordinator({ ...common, mode, stalenessBound, nonFinite, shards });
  cluster.plant?.tokenCoordinator?.(coordinator, cluster);
  return coordinator;
}
