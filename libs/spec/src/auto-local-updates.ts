/**
 * `strategy: auto` with `allowedLocalSteps`: the local updates that auto may pick besides the strategies with equal bits, because the person who asks for the run
 * allows it, since they change what is trained.
 */
import type { CodecSpec } from './codec-spec.js';
import type { StrategySpec } from './strategy.js';

type LocalUpdates = Extract<StrategySpec, { kind: 'local-update' }>;

interface Distributed {
  readonly strategy: StrategySpec;
  readonly codec?: CodecSpec | undefined;
}

interface Counted {
  readonly length: object;
  readonly learningRate?: object | undefined;
  readonly validation?: object | undefined;
  readonly earlyStopping?: object | undefined;
  readonly checkpoint: object;
}

export interface AllowedLocalUpdates {
  readonly strategy: LocalUpdates;
  readonly codec?: CodecSpec | undefined;
}

/** What `codec: auto` becomes with local updates: SparseLoCo (Sarfi et al. 2025), as it is measured in docs/codecs.md. */
const SPARSE: CodecSpec = { kind: 'top-k', density: 0.02, values: 'int2', errorFeedback: true, parameters: 'int8' };
/** The rate of the outer optimizer with that codec, from the same paper: error feedback keeps what is not sent, as a momentum would. */
const SPARSE_RATE = 1.5;

/**
 * The local updates that auto may pick for the run, and their codec; undefined where none are allowed. A replica keeps the slots of its optimizer, as a codec with
 * error feedback keeps its residual: both end the promise of equal bits where a replica moves.
 */
export function allowedLocalUpdates({ strategy, codec }: Distributed): AllowedLocalUpdates | undefined {
  if (strategy.kind !== 'auto' || strategy.allowedLocalSteps === undefined) return undefined;
  const { mode, servers, accumulate, standby, startWorkers, allowedLocalSteps: localSteps } = strategy;
  const isSparse = codec?.kind === 'auto';
  const chosen = isSparse ? SPARSE : codec;
  return {
    strategy: {
      kind: 'local-update',
      mode,
      servers,
      accumulate,
      localSteps,
      outerOptimizer: 'sgd',
      ...(isSparse ? { outerLearningRate: SPARSE_RATE } : {}),
      innerState: 'keep',
      backupReplicas: 0,
      standby,
      ...(startWorkers === undefined ? {} : { startWorkers }),
    },
    ...(chosen ? { codec: chosen } : {}),
  };
}

/**
 * The spec with the local updates: what it counts in rounds, which have one step with the strategies it was written for, becomes as many steps in rounds of
 * `localSteps`.
 */
export function withLocalRounds<Spec extends Distributed & Counted>(spec: Spec, allowed: AllowedLocalUpdates): Spec {
  const { localSteps } = allowed.strategy;
  const counted = <Part extends object>(part: Part, ...fields: readonly string[]): Part =>
    Object.assign(
      {},
      part,
      Object.fromEntries(
        Object.entries(part)
          .filter(([field, value]) => fields.includes(field) && typeof value === 'number')
          .map(([field, value]) => [field, Math.ceil((value as number) / localSteps)]),
      ),
    );
  const { length, checkpoint, learningRate, validation, earlyStopping } = spec;
  const { codec = spec.codec } = allowed;
  return Object.assign(
    {},
    spec,
    { strategy: allowed.strategy, length: counted(length, 'rounds'), checkpoint: counted(checkpoint, 'everyRounds') },
    learningRate && { learningRate: counted(learningRate, 'warmupRounds', 'decayRounds') },
    validation && { validation: counted(validation, 'everyRounds') },
    earlyStopping && { earlyStopping: counted(earlyStopping, 'startFromRound') },
    codec && { codec: counted(codec, 'warmupRounds') },
  );
}
