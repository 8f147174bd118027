/**
 * The run spec that says nothing: what each field is when nobody sets it. Written out, because the schema of libs/spec would bring its whole validator
 * into the page; a test compares it with the schema.
 */
type Json = Readonly<Record<string, unknown>>;

export const SPEC_DEFAULTS: Json = {
  name: 'run',
  dataset: 'mnist',
  optimizer: { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false },
  globalBatch: 256,
  replicas: 4,
  dropRemainder: false,
  strategy: {
    kind: 'parameter-server',
    mode: 'sync',
    servers: 1,
    accumulate: 1,
    stalenessBound: 4,
    stalenessScaledRate: false,
    delayCompensation: 0,
    backupReplicas: 0,
    standby: 0,
  },
  gradient: { nonFinite: 'fail' },
  length: { epochs: 5 },
  seed: 42,
  engine: 'wasm',
  stepDeadlineMs: 60_000,
  checkpoint: { final: true, everySeconds: 30, keepLast: 3, keepBest: true },
  restarts: 5,
};

/** Options of a strategy of another kind when only its kind is given. */
export const STRATEGY_DEFAULTS: Readonly<Record<string, Json>> = {
  'local-update': {
    kind: 'local-update',
    mode: 'sync',
    servers: 1,
    accumulate: 1,
    localSteps: 20,
    outerOptimizer: 'sgd',
    innerState: 'reset',
    backupReplicas: 0,
    standby: 0,
  },
  auto: { kind: 'auto', mode: 'sync', servers: 1, accumulate: 1, standby: 0 },
  hybrid: { kind: 'hybrid', mode: 'sync', servers: 1, accumulate: 1, standby: 0 },
  mirrored: { kind: 'mirrored', mode: 'sync', accumulate: 1, standby: 0 },
  'one-device': { kind: 'one-device', mode: 'sync', accumulate: 1, standby: 0 },
  tpu: { kind: 'tpu', mode: 'sync', stepsPerExecution: 20, accumulate: 1, standby: 0 },
  'model-parallel': { kind: 'model-parallel', mode: 'sync', workers: 1, accumulate: 1, standby: 0 },
};

/** Options of each optimizer when only its name is given. */
export const OPTIMIZER_DEFAULTS: Readonly<Record<string, Json>> = {
  sgd: { name: 'sgd', learningRate: 0.1 },
  momentum: { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false },
  adam: { name: 'adam', learningRate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  rmsprop: { name: 'rmsprop', learningRate: 0.001, rho: 0.9, momentum: 0, epsilon: 1e-7, centered: false },
  adamw: { name: 'adamw', learningRate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-7, weightDecay: 0.004 },
  amsgrad: { name: 'amsgrad', learningRate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  adamax: { name: 'adamax', learningRate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  nadam: { name: 'nadam', learningRate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  adagrad: { name: 'adagrad', learningRate: 0.001, initialAccumulator: 0.1, epsilon: 1e-7 },
  adadelta: { name: 'adadelta', learningRate: 0.001, rho: 0.95, epsilon: 1e-7 },
  ftrl: { name: 'ftrl', learningRate: 0.001, initialAccumulator: 0.1, l1: 0, l2: 0, l2Shrinkage: 0, beta: 0 },
  lion: { name: 'lion', learningRate: 0.001, beta1: 0.9, beta2: 0.99 },
  lamb: { name: 'lamb', learningRate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  lars: { name: 'lars', learningRate: 0.1, momentum: 0.9, trustCoefficient: 0.001, epsilon: 1e-7, weightDecay: 0.0001 },
};

/** When an augmentation is asked for. */
export const AUGMENTATION_DEFAULTS: Json = { shiftPixels: 0, rotateDegrees: 0, zoom: 0, mirror: false };

/** When `learningRate` is given. */
export const LEARNING_RATE_DEFAULTS: Json = {
  scaling: 'none',
  baseBatch: 256,
  schedule: 'constant',
  factor: 0.1,
  endFactor: 0,
  power: 1,
  periodGrowth: 2,
  restartFactor: 1,
  riseShare: 0.3,
  startDivisor: 25,
  endDivisor: 10_000,
};

/** Fields of `strategy` that mean something in some modes only. */
export const MODES_OF_FIELD: Readonly<Record<string, readonly string[]>> = {
  stalenessBound: ['ssp'],
  stalenessScaledRate: ['async', 'ssp'],
  delayCompensation: ['async', 'ssp'],
  backupReplicas: ['sync'],
};
