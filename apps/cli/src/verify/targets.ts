/**
 * What a recorded training is replayed under: the strategies of the library, in processes of this machine, and those of the service, as runs. Names are those
 * of the run spec and of the library's classes.
 */
import { UserError } from '@paceline/runtime/user-error';
import {
  GROUP_WORKERS,
  HYBRID_REPLICAS,
  RECORDED_STAGES,
  RECORDED_TOPOLOGIES,
  unserved,
  unservedByLocalSteps,
  type LibraryStrategy,
  type RecordedProgram,
} from '@paceline/strategies/recorded';
import type { PlannedTraining, StrategyInput } from './training.js';

interface Named {
  readonly name: string;
}
export interface LibraryTarget extends Named {
  readonly as: 'library';
  readonly kind: LibraryStrategy['kind'];
  readonly communication?: LibraryStrategy['communication'];
  readonly workersPerGroup?: number;
}
export interface ServiceTarget extends Named {
  readonly as: 'service';
}
export type Target = LibraryTarget | ServiceTarget;

const service = (name: string): ServiceTarget => ({ as: 'service', name });
export const DEFAULT_TARGET = service('parameter-server');

export const TARGETS: readonly Target[] = [
  { as: 'library', name: 'one-device', kind: 'one-device' },
  { as: 'library', name: 'mirrored', kind: 'mirrored' },
  { as: 'library', name: 'central-storage', kind: 'central-storage' },
  ...RECORDED_TOPOLOGIES.map((communication): LibraryTarget => ({
    as: 'library',
    name: `multi-worker-mirrored:${communication}`,
    kind: 'multi-worker-mirrored',
    communication,
  })),
  { as: 'library', name: 'model-parallel', kind: 'model-parallel' },
  { as: 'library', name: 'local-update', kind: 'local-update' },
  { as: 'library', name: 'parameter-server', kind: 'parameter-server' },
  { as: 'library', name: 'hybrid', kind: 'hybrid' },
  { as: 'library', name: 'hybrid:groups', kind: 'hybrid', workersPerGroup: GROUP_WORKERS },
  DEFAULT_TARGET,
  service('parameter-server:async'),
  service('parameter-server:ssp'),
  service('multi-worker-mirrored'),
  service('hybrid'),
  service('mirrored'),
  service('one-device'),
  service('model-parallel'),
  service('tpu'),
  service('local-update'),
];

/** Compute threads of a worker: enough for their gradients to be added up in it. */
const THREADS = 2;
/** Replicas of the library's strategies over processes where nothing is said: enough for a topology to be one. */
const PROCESSES = 4;
const KIND = /^[^:]+/;

/**
 * Those that are named: a name with a topology or mode is that one, a name without is all that the library and the service have of it, except for modes.
 * @throws UserError FLAG_INVALID
 */
export function targetsNamed(names: readonly string[], as: Target['as'] | undefined): readonly Target[] {
  const isWanted = (target: Target): boolean => as === undefined || target.as === as;
  const found = names.flatMap((name) => {
    const named = TARGETS.filter(
      (target) => isWanted(target) && (target.name === name || (target.as === 'library' && KIND.exec(target.name)![0] === name)),
    );
    if (named.length > 0) return named;
    const known = [...new Set(TARGETS.filter(isWanted).flatMap((target) => [KIND.exec(target.name)![0], target.name]))];
    throw new UserError(
      'FLAG_INVALID',
      `--strategy ${JSON.stringify(name.slice(0, 60))} is no strategy${as === undefined ? '' : ` of the ${as}`}: there are ${known.join(', ')}.`,
      { exit: 'usage' },
    );
  });
  return [...new Set(found)];
}

/** Why a strategy cannot follow the recording; undefined when it can. */
export function reasonAgainst(
  target: Target,
  { spec, recording, uncut }: PlannedTraining,
  program: RecordedProgram | undefined,
): string | undefined {
  if (target.name === 'model-parallel' && uncut !== undefined) return uncut;
  const { clipNorm, clipGlobalNorm, clipValue } = spec.gradient;
  const clips = clipNorm !== undefined || clipGlobalNorm !== undefined || clipValue !== undefined;
  if (target.as === 'library') return unserved(program!, target, clips);
  switch (target.name) {
    case 'parameter-server:async':
    case 'parameter-server:ssp':
      if (recording.replicas === 1) return 'one replica updates after each step in every mode: replay it as parameter-server';
      return `the gradients of the ${recording.replicas} replicas are applied one by one, in the order in which they come; the recording adds them up first`;
    case 'hybrid':
      if (recording.replicas === 1) return 'one replica has nothing to be added up with: replay it as parameter-server';
      return undefined;
    case 'one-device':
      if (recording.replicas > 1) return `it has one replica, and the recording ${recording.replicas}: replay it as mirrored`;
      return undefined;
    case 'tpu':
      if (spec.optimizer.name === 'lamb' || spec.optimizer.name === 'lars')
        return `its threads do not apply ${spec.optimizer.name}: replay it as mirrored`;
      if (spec.optimizer.emaMomentum !== undefined) return 'its threads keep no average of the weights: replay it as mirrored';
      return undefined;
    case 'local-update':
      if (clips) return 'each replica would clip its own gradient; the recording clips their mean';
      return unservedByLocalSteps({ optimizer: spec.optimizer, globalBatch: recording.globalBatch, replicas: recording.replicas });
    default:
      return undefined;
  }
}

/** Whether a strategy of the library has parameter servers. */
export const hasServers = ({ kind }: LibraryTarget): boolean => kind === 'parameter-server' || kind === 'hybrid';

/**
 * Processes that train. Replicas may be more than the recorded ones: gradients are sums over the examples, so a batch that is cut finer has the same sum. Batch
 * normalisation normalises by the rows of a replica, so there the recorded ones stay.
 */
export function processesOf(
  target: LibraryTarget,
  workers: number | undefined,
  { replicas, globalBatch, layers }: Pick<RecordedProgram, 'replicas' | 'globalBatch' | 'layers'>,
): number {
  const normalises = layers.includes('BatchNormalization');
  const { kind, workersPerGroup = 1 } = target;
  const each = kind === 'hybrid' && workersPerGroup === 1 ? HYBRID_REPLICAS : 1;
  // Every replica there is one of a worker, so that the workers are as many as were recorded.
  if (hasServers(target))
    return normalises ? replicas / each : Math.max(workersPerGroup, Math.min(workers ?? PROCESSES / each, Math.floor(globalBatch / each)));
  if (target.kind !== 'multi-worker-mirrored') return 1;
  return Math.min(workers ?? PROCESSES, normalises ? replicas : globalBatch);
}

/** The strategy of a run. */
export function strategyOfRun(target: ServiceTarget, { workers, servers }: Sizes, { spec, recording }: PlannedTraining): StrategyInput {
  const startWorkers = Math.min(workers, recording.replicas);
  switch (target.name) {
    case 'multi-worker-mirrored':
      return { kind: 'multi-worker-mirrored', workers: startWorkers };
    case 'hybrid':
      return { kind: 'hybrid', servers, startWorkers, threads: Math.min(THREADS, recording.replicas) };
    case 'mirrored':
      return { kind: 'mirrored', threads: Math.min(THREADS, recording.replicas) };
    case 'one-device':
      return { kind: 'one-device' };
    case 'tpu':
      // A round is a step of the recording, which has the loss of each.
      return { kind: 'tpu', threads: Math.min(THREADS, recording.replicas), stepsPerExecution: 1 };
    case 'model-parallel':
      return { kind: 'model-parallel', workers: startWorkers, stages: RECORDED_STAGES };
    case 'local-update':
      // With one step between averages, and slots that stay with their replica, a round is a step of the recording.
      return {
        kind: 'local-update',
        servers,
        startWorkers,
        localSteps: 1,
        outerOptimizer: 'sgd',
        innerState: spec.optimizer.name === 'sgd' ? 'reset' : 'keep',
      };
    default:
      return { kind: 'parameter-server', servers, startWorkers };
  }
}

/** Workers and servers that a run takes of those that are there. */
export const sizesOfRun = ({ name }: ServiceTarget, sizes: Sizes): Sizes =>
  name === 'mirrored' || name === 'one-device' || name === 'tpu' ? { workers: 1, servers: 0 } : sizes;

export interface Sizes {
  readonly workers: number;
  readonly servers: number;
}
