/**
 * What a simulated run does with gradients before they are applied (ROUNDS §4, §5): its plan, clipping, what follows from NaN and
 * infinity, backup replicas. Given to the machines as libs/hosting/src/coordinator-machine.ts, shard-machine.ts and parameter-store.ts do.
 */
import type { CoordinatorOptions, OwnedChunk, Region, ShardOptions } from '@paceline/exchange';
import type { Kernels } from '@paceline/kernels';
import { LeafReduction, ReductionTree, type RoundVerdict, judgeRound, shardChunks, validNode } from '@paceline/learning';
import type { Random } from './random.js';
import type { TinyRun } from './tiny-run.js';

export interface GradientShape {
  readonly clipNorm?: number;
  readonly clipGlobalNorm?: number;
  readonly nonFinite: 'fail' | 'skip' | 'rollback';
  readonly backupReplicas: number;
}

/** Plan streaming. */
export const STREAMING: GradientShape = { nonFinite: 'fail', backupReplicas: 0 };

export function randomGradient(random: Random, replicas: number): GradientShape {
  const nonFinite = random.pick(['fail', 'skip', 'rollback'] as const);
  if (random.chance(0.6)) return { nonFinite: nonFinite === 'skip' ? 'fail' : nonFinite, backupReplicas: 0 };
  const norms = (): number => random.pick([0.05, 0.5, 2, 50]);
  return {
    ...(random.chance(0.4) ? { clipNorm: norms() } : {}),
    ...(random.chance(0.4) ? { clipGlobalNorm: norms() } : {}),
    nonFinite,
    backupReplicas: replicas > 1 && random.chance(0.4) ? random.int(1, Math.min(2, replicas - 1)) : 0,
  };
}

export const isTwoPhase = ({ clipNorm, clipGlobalNorm, nonFinite, backupReplicas }: GradientShape): boolean =>
  clipNorm !== undefined || clipGlobalNorm !== undefined || nonFinite === 'skip' || backupReplicas > 0;

/** Pairs of chunks make a variable: some lie on two servers. */
export const variableOf = (chunk: number): number => chunk >> 1;

export function coordinatorPlan(run: TinyRun): Pick<CoordinatorOptions, 'twoPhase' | 'nonFinite'> {
  const { gradient, servers } = run.shape;
  const { nonFinite, backupReplicas } = gradient;
  if (!isTwoPhase(gradient)) return { nonFinite: nonFinite === 'rollback' ? 'rollback' : 'fail' };
  return {
    nonFinite: nonFinite === 'rollback' ? 'rollback' : 'fail',
    twoPhase: {
      backupReplicas,
      shards: Array.from({ length: servers }, (_, server) => shardChunks(run.layout, servers, server)).filter(({ length }) => length > 0)
        .length,
      decide: (round, replicas, chunks) => {
        const examples = replicas.reduce((sum, replica) => sum + run.replicaExamples(round, replica), 0);
        const { isFinite, scale, variables } = judgeRound(chunks, examples, gradient);
        if (!isFinite && nonFinite !== 'skip') return 'non-finite';
        return { skip: !isFinite, examples, scale, variables: variables.map(([variable, factor]) => [variable, factor]) };
      },
    },
  };
}

export function shardPlan(run: TinyRun): Pick<ShardOptions, 'twoPhase' | 'createReduction' | 'isValidNode'> {
  const { replicas, gradient } = run.shape;
  const hasBackups = gradient.backupReplicas > 0;
  return {
    createReduction: (ops) => (hasBackups ? new LeafReduction(replicas, ops) : new ReductionTree(replicas, ops)),
    isValidNode: (lo, hi) => (hasBackups ? hi === lo + 1 && hi <= replicas : validNode(replicas, lo, hi)),
    ...(isTwoPhase(gradient)
      ? {
          twoPhase: {
            hasBackups,
            measure: (chunk: OwnedChunk, sum: Region) => measure(run, chunk.arena.kernels, chunk.index, sum.pointer),
          },
        }
      : {}),
  };
}

export function measure(run: TinyRun, kernels: Kernels, chunk: number, pointer: number) {
  const { length, section } = run.layout.chunks[chunk]!;
  const isFinite = kernels.allFinite(pointer, length);
  const squares: [number, number][] =
    isFinite && section === 'trainable' ? [[variableOf(chunk), kernels.sumOfSquares(pointer, length)]] : [];
  return { isFinite, squares };
}

/** Scales the gradient of a chunk as was decided for its variable; returns what the optimizer scales it with. */
export function scaled(
  run: TinyRun,
  kernels: Kernels,
  chunk: number,
  pointer: number,
  { examples, scale, variables }: Pick<RoundVerdict, 'scale' | 'variables'> & { readonly examples: number },
): number {
  const mean = Math.fround(1 / examples);
  const { length, section } = run.layout.chunks[chunk]!;
  if (section === 'state') return mean;
  const factor = variables.find(([variable]) => variable === variableOf(chunk))?.[1];
  if (factor !== undefined) kernels.scaleInto(pointer, pointer, length, Math.fround(factor));
  return Math.fround(mean * Math.fround(scale));
}
