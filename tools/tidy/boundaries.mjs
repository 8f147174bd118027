/**
 * The imports that are allowed, and why: the one table that lint (lint-rules.mjs), tools/tidy and docs/ARCHITECTURE.md read.
 * `mayImport` names our own packages; `mayNotUse` names packages from the registry (regular expressions on the import path).
 * Every reason ends up in the lint message, so it is written for the person who has just been refused.
 */

const CONTROL_PLANE = ['^@prisma/', '^prisma$', '^pg$', '^@apollo/', '^@nestjs/'];
const QUEUES = ['^bullmq$', '^ioredis$'];
const ENGINES = ['^@tensorflow/'];

const PURE = 'it is pure: no socket, no database, no queue, no tf.js, so that the simulator and the tests run it as it is';

/** @type {Record<string, {mayImport: string[], mayNotUse: string[], reason: string}>} */
export const BOUNDARIES = {
  spec: {
    mayImport: [],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'the run spec is what every process, the CLI and the browser agree on; it must not pull any of them in',
  },
  protocol: {
    mayImport: [],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'frames and messages are the contract of the data plane; a second implementation must be able to read them alone',
  },
  kernels: {
    mayImport: [],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'kernels are loops over memory; they know neither models nor rounds',
  },
  learning: { mayImport: ['kernels', 'spec'], mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES], reason: PURE },
  codecs: {
    mayImport: ['spec', 'kernels'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'a codec is a pure function of a chunk and a key; who sends it, and when, is decided elsewhere',
  },
  exchange: {
    mayImport: ['protocol', 'kernels'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason:
      'rounds move and add vectors and do not know what is learned; apps/ps plugs the optimizer in as an update handler, and no round waits for a database or a queue',
  },
  engine: {
    mayImport: ['spec', 'kernels', 'learning'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES],
    reason: 'an engine turns (parameters, state, rows, key) into gradients and knows nothing of sockets, queues or databases',
  },
  collectives: {
    mayImport: ['protocol', 'learning', 'exchange'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason:
      'members of a group move and add vectors among themselves, and tasks of a cluster ask each other: no model and no control plane',
  },
  strategies: {
    mayImport: ['spec', 'kernels', 'learning', 'engine', 'codecs', 'collectives', 'tensorflow-addon'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES],
    reason:
      'it trains models of a tf.js program in its own processes, and asks tensorflow-addon where an installed engine lies: it knows no control plane, no queue and no database',
  },
  data: {
    mayImport: ['spec', 'storage'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'data sources give rows by index, whoever computes with them; prepared datasets are read from an object store',
  },
  storage: {
    mayImport: ['spec'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'files and their hashes are written the same way for any model and any process',
  },
  ingest: {
    mayImport: ['spec', 'storage'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'the import reads files of people on their machine or in a process of its own: it knows no database, no queue and no model',
  },
  models: {
    mayImport: ['spec', 'learning', 'engine', 'data', 'storage'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES],
    reason: 'what a trained model is as files, and what it says of rows, is the same in the api, in the CLI and in a program of a person',
  },
  'control-plane': {
    mayImport: ['spec', 'protocol'],
    mayNotUse: [...CONTROL_PLANE, ...ENGINES],
    reason: 'Redis carries small, schema-checked messages and no tensors; what computes or stores stays behind the processes',
  },
  hosting: {
    mayImport: ['spec', 'protocol', 'kernels', 'learning', 'codecs', 'exchange', 'storage', 'control-plane'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES, '^node:'],
    reason:
      'what a server or a worker holds of a run takes clock, network, disk, engine and queue as arguments, so that the simulator runs it as it is',
  },
  runtime: {
    mayImport: [],
    mayNotUse: ['^@prisma/', '^prisma$', '^@nestjs/', '^bullmq$', ...ENGINES],
    reason: 'it starts and watches processes of every kind, so it must not depend on what they do',
  },
  'tensorflow-addon': {
    mayImport: ['runtime'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'it downloads, patches and compiles the binding of TensorFlow and says where it lies; libs/engine loads it',
  },
  client: {
    mayImport: ['spec'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason: 'the SDK speaks to the API over the network only; it is installed where no server code is',
  },
  testkit: {
    mayImport: [
      ...[
        'spec',
        'protocol',
        'kernels',
        'learning',
        'codecs',
        'exchange',
        'engine',
        'data',
        'storage',
        'ingest',
        'models',
        'control-plane',
        'hosting',
        'runtime',
        'tensorflow-addon',
        'client',
      ],
    ],
    mayNotUse: ['^@prisma/'],
    reason: 'it starts the real processes and looks at them from outside; it must not look into the database behind the api',
  },
  api: {
    mayImport: ['spec', 'protocol', 'learning', 'engine', 'storage', 'models', 'control-plane', 'runtime', 'data', 'ingest'],
    mayNotUse: [],
    reason:
      'the control plane never touches the data plane: no tensor in GraphQL, JSON, Redis or PostgreSQL; ingest is for its import process alone',
  },
  worker: {
    mayImport: [
      'spec',
      'protocol',
      'kernels',
      'learning',
      'codecs',
      'exchange',
      'engine',
      'data',
      'storage',
      'control-plane',
      'hosting',
      'runtime',
      'tensorflow-addon',
    ],
    mayNotUse: CONTROL_PLANE,
    reason: 'only apps/api opens PostgreSQL; a worker takes step tasks and talks to servers',
  },
  ps: {
    mayImport: ['spec', 'protocol', 'kernels', 'learning', 'exchange', 'storage', 'control-plane', 'hosting', 'runtime'],
    mayNotUse: [...CONTROL_PLANE, ...ENGINES],
    reason: 'a server adds, updates and commits; it never runs a model and never opens PostgreSQL',
  },
  cli: {
    mayImport: ['spec', 'client', 'runtime', 'tensorflow-addon', 'ingest', 'models', 'hosting', 'strategies'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES],
    reason:
      'the CLI uses the API like everybody else and starts processes; it never reads a database or a queue; hosting and strategies are for the updates and trainings that `verify` replays, strategies for `server` too',
  },
  dashboard: {
    mayImport: ['spec', 'client'],
    mayNotUse: [...CONTROL_PLANE, ...QUEUES, ...ENGINES, '^node:'],
    reason: 'the dashboard runs in a browser and sees the API only',
  },
};

/** testkit is for tests: what is installed for users must not need it. */
export const TEST_ONLY = ['testkit'];

export const APPS = ['api', 'worker', 'ps', 'cli', 'dashboard'];
