/** The coordinator of a run, with the plan of work of its mode. */
import { Coordinator, Rounds, WorkItems, type CoordinatorOptions } from '@paceline/exchange';
import type { PlacementJob } from '@paceline/control-plane';
import { judgeRound, judgeTrust, shardChunks, type Layout } from '@paceline/learning';
import {
  appliedByServers,
  backupReplicasOf,
  isLayerwise,
  roundPlan,
  keepsEstimate,
  sendsDeltas,
  shardHosts,
  startWorkersOf,
  type RunSpec,
} from '@paceline/spec';
import { residualNamesOf, storedResidualsOf } from '../residuals.js';

/** @param common what the coordinators of all modes are given */
export function createCoordinator(
  { spec, servers }: PlacementJob,
  layout: Layout,
  common: Omit<CoordinatorOptions, 'nonFinite' | 'twoPhase'>,
): Coordinator {
  const { strategy } = spec;
  const { nonFinite } = spec.gradient;
  const shards = Array.from({ length: servers }, (_, index) => index).filter((index) => shardChunks(layout, servers, index).length > 0);
  if (strategy.mode === 'sync') {
    const nonFiniteRound = nonFinite === 'rollback' ? 'rollback' : 'fail';
    const residuals = storedResidualsOf(spec, layout, servers);
    const options = {
      ...common,
      sendsDeltas: sendsDeltas(spec),
      keepsEstimates: keepsEstimate(spec),
      ...(residuals ? { residualNames: (server: number) => residualNamesOf(residuals, layout, servers, server) } : {}),
      startWorkers: startWorkersOf(strategy),
      membersHoldShards: shardHosts(strategy) === 'workers',
      ...twoPhaseOf(spec, common.schedule, shards.length),
      nonFinite: nonFiniteRound,
    } as const;
    return new Coordinator(options, Rounds);
  }
  const { mode, stalenessBound } = strategy;
  return new Coordinator({ ...common, mode, stalenessBound, nonFinite, shards }, WorkItems);
}

/** What the coordinator needs of plan two-phase, when the run has it. */
function twoPhaseOf(
  spec: RunSpec,
  { replicaExamples }: CoordinatorOptions['schedule'],
  shards: number,
): Pick<CoordinatorOptions, 'twoPhase'> {
  if (roundPlan(spec) === 'streaming') return {};
  const { optimizer, gradient } = appliedByServers(spec);
  const { clipNorm, clipGlobalNorm, nonFinite } = gradient;
  return {
    twoPhase: {
      backupReplicas: backupReplicasOf(spec.strategy),
      shards,
      decide: (round, replicas, chunks) => {
        const examples = replicas.reduce((sum, replica) => sum + replicaExamples(round, replica), 0);
        const { isFinite, scale, variables } = isLayerwise(optimizer)
          ? judgeTrust(chunks, examples, optimizer)
          : judgeRound(chunks, examples, { clipNorm, clipGlobalNorm });
        if (!isFinite && nonFinite !== 'skip') return 'non-finite';
        return { skip: !isFinite, examples, scale, variables: variables.map(([variable, factor]) => [variable, factor]) };
      },
    },
  };
}
