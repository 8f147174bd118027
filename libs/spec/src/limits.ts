/**
 * Every bound that a person can meet, in one place. Units are in the names.
 * The numbers are chosen so that one request can never claim more memory than a server has: see docs/limits in ARCHITECTURE.
 */
export const LIMITS = {
  replicas: 1024,
  servers: 64,
  /** Of one process. */
  threads: 256,
  globalBatchExamples: 65_536,
  accumulateMicroBatches: 1024,
  epochs: 100_000,
  rounds: 100_000_000,
  /** Workers remember which they are. */
  heldOutExamples: 10_000_000,
  stalenessBound: 1000,
  localSteps: 10_000,
  stepsPerExecution: 10_000,
  fragments: 1_000,
  codecRank: 32,
  modelLayers: 512,
  /** In one stack of recurrent cells. */
  modelCells: 64,
  modelDepth: 24,
  /** Parameters and state: 1 GiB of float32. What the fleet has the memory for may be less, see worker-memory.ts. */
  modelParameters: 2 ** 28,
  /** Norms and scales by variable travel in control messages. */
  modelVariables: 8192,
  modelTopologyBytes: 1 << 20,
  /** What Keras and tf.js write has some 15 bytes for each value, and 45 for each object or list: more than these fit no topology of so many bytes. */
  modelTopologyValues: 70_000,
  modelTopologyObjects: 25_000,
  /** Size of a spec as JSON, with every default and vocabulary in it: each job of a run carries it. */
  storedSpecBytes: 2 << 20,
  /** Part of these bytes for the vocabularies that are made for a spec. */
  vocabularyBytes: 3 << 19,
  nameCharacters: 100,
  seedMax: 2 ** 32 - 1,
} as const;
