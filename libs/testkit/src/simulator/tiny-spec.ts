/** The run spec and the addresses that the control plane hands out for a simulated run: real in form, tiny in content. */
import type { JobRun, ServerAddress } from '@paceline/jobs';
import { parseRunSpec, type RunSpec } from '@paceline/spec';
import type { Cluster } from './cluster.js';
import type { RunRow } from './sim-postgres.js';
import type { RunShape } from './tiny-run.js';

/** Restarts without progress; progress gives them back. */
const RESTARTS = 10;

const DEFAULTS: RunSpec = (() => {
  const parsed = parseRunSpec({});
  if (!parsed.ok) throw new Error('the default spec is valid');
  return parsed.spec;
})();

export function tinySpec({ servers, replicas, globalBatch, rounds, cutEveryRounds, tokens, gradient, optimizer }: RunShape): RunSpec {
  const { mode = 'sync', stalenessBound = DEFAULTS.strategy.stalenessBound } = tokens ?? {};
  return {
    ...DEFAULTS,
    ...{ replicas, optimizer, length: { rounds }, restarts: RESTARTS },
    // Rounds of fewer examples than replicas are simulated, but nobody can ask for them.
    globalBatch: Math.max(globalBatch, replicas),
    strategy: { ...DEFAULTS.strategy, mode, servers, stalenessBound, backupReplicas: tokens ? 0 : gradient.backupReplicas },
    checkpoint: {
      ...DEFAULTS.checkpoint,
      ...(cutEveryRounds > 0 ? { everyRounds: cutEveryRounds } : {}),
      everySeconds: 0,
      keepLast: 1_000,
    },
  };
}

const MODEL = {
  variables: [{ path: 'tiny', shape: [1], section: 'trainable', initializer: { className: 'Zeros', config: {} } }],
  ...{ inputShape: [1], outputShape: [1], parameterCount: 1, stateCount: 0 },
} as const;

export const jobRunOf = ({ run: { shape } }: Cluster, { id, spec }: RunRow): JobRun => ({
  ...{ id, spec, model: MODEL, trainExamples: shape.examples, evalExamples: shape.evalExamples },
});

/** As the simulated network knows it. */
export const addressOf = ({ host, port }: Pick<ServerAddress, 'host' | 'port'>): string => `${host}/${port}`;
