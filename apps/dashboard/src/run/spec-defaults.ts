/**
 * The run spec that says nothing: what each field is when nobody sets it. Written out, because the schema of libs/spec would bring its whole validator
 * into the page; a test compares it with the schema.
 */
type Json = Readonly<Record<string, unknown>>;

export const SPEC_DEFAULTS: Json = {
  name: 'run',
  model: 'mlp',
  dataset: 'mnist',
  loss: 'sparseCategoricalCrossentropy',
  metrics: ['accuracy'],
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

/** Of each optimizer, when only its name is given. */
export const OPTIMIZER_DEFAULTS: Readonly<Record<string, Json>> = {
  sgd: { name: 'sgd', learningRate: 0.1 },
  momentum: { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false },
  adam: { name: 'adam', learningRate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
};

/** When an augmentation is asked for. */
export const AUGMENTATION_DEFAULTS: Json = { shiftPixels: 0, rotateDegrees: 0, zoom: 0, mirror: false };

/** Fields of `strategy` that mean something in some modes only. */
export const MODES_OF_FIELD: Readonly<Record<string, readonly string[]>> = {
  stalenessBound: ['ssp'],
  stalenessScaledRate: ['async', 'ssp'],
  delayCompensation: ['async', 'ssp'],
  backupReplicas: ['sync'],
};
