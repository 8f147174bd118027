/**
 * The run spec: what a person describes when they ask for a run. This schema is the only place where its fields are
 * written down: TypeScript types, the GraphQL input, the OpenAPI document, the CLI flags and docs/reference/run-spec.md
 * are derived from it (see `surface.ts`), so a new field appears on every surface or on none.
 *
 * Rules for a field: `.describe()` says what it is, in one sentence with its unit; a default where most people want the
 * same thing; bounds always.
 */
import { z } from 'zod';
import { allowedLocalUpdates } from './auto-local-updates.js';
import { codecConflicts, codecSchema } from './codec-spec.js';
import { datasetReferenceSchema, featuresSchema } from './datasets/features.js';
import { embeddingConflicts, embeddingsSchema } from './embeddings.js';
import { learningRateSchema } from './learning-rate.js';
import { LIMITS } from './limits.js';
import { appliedByServers } from './local-update.js';
import { inputWithOwnNames, LOSSES, lossOptionsSchema, outputLossSchema } from './losses.js';
import { MEASURED_NAMES, metricOptionsSchema } from './metric-names.js';
import { givenTopologyFault, modelTopologySchema } from './model-topology.js';
import { isLayerwise, optimizerSchema, positiveRate } from './optimizer-spec.js';
import { plainIssues, type SpecIssue } from './plain-issues.js';
import { backupReplicasOf, strategySchema } from './strategy.js';
import { strategyConflicts } from './strategy-conflicts.js';
import { earlyStoppingSchema, plateauSchema, validationConflicts, validationSchema } from './validation-schemas.js';
import { unusedOptions } from './unused-options.js';
import { variablePatternsSchema } from './variable-patterns.js';

export const MODEL_ZOO = [
  ...(['mlp', 'mlp-dropout', 'cnn', 'linear'] as const),
  ...(['lenet', 'resnet', 'mobilenet', 'lstm', 'gru', 'transformer'] as const),
] as const;
/** Datasets of the release; teams add their own. */
export const BUILT_IN_DATASETS = ['mnist', 'iris', 'made-up-regression', 'made-up-sequence'] as const;
/** Engines by name. */
export const BACKENDS = ['wasm', 'wasm-relaxed', 'cpu', 'tensorflow', 'webgpu'] as const;
export type BackendName = (typeof BACKENDS)[number];
export const ENGINES = [...BACKENDS, 'auto', 'mixed'] as const;
export const NON_FINITE_POLICIES = ['fail', 'skip', 'rollback'] as const;

export const modelSchema = z.union([
  z.enum(MODEL_ZOO).describe('A model of the built-in zoo.'),
  z.strictObject({
    topology: modelTopologySchema.describe('tf.js Layers topology (the modelTopology of model.json). Nothing in it is executed.'),
  }),
]);

export const gradientSchema = z.strictObject({
  clipNorm: positiveRate('Scale the gradient of each variable down to at most this L2 norm.').optional(),
  clipGlobalNorm: positiveRate('Scale the whole gradient down to at most this L2 norm (Pascanu et al. 2013).').optional(),
  clipValue: positiveRate('Cut each element of the mean gradient to at most this, either way.').optional(),
  nonFinite: z
    .enum(NON_FINITE_POLICIES)
    .describe('A gradient with NaN or infinity: fail ends the run, skip leaves the round out, rollback goes back to the last checkpoint.')
    .default('fail'),
});

export const augmentationSchema = z
  .strictObject({
    shiftPixels: z.int().min(0).max(16).describe('Move by up to so many whole pixels each way.').default(0),
    rotateDegrees: z.number().min(0).max(45).describe('Turn by up to so many degrees each way.').default(0),
    zoom: z.number().min(0).max(0.5).describe('Make larger or smaller by up to this share.').default(0),
    mirror: z.boolean().describe('Mirror left and right, half of the time.').default(false),
  })
  .refine(({ shiftPixels, rotateDegrees, zoom, mirror }) => shiftPixels > 0 || rotateDegrees > 0 || zoom > 0 || mirror, {
    message: 'asks for no change: set shiftPixels, rotateDegrees, zoom or mirror, or leave it out',
  });

export const lengthSchema = z.union([
  z.strictObject({ epochs: z.int().min(1).max(LIMITS.epochs).describe('Passes over the training split.') }),
  z.strictObject({ rounds: z.int().min(1).max(LIMITS.rounds).describe('Synchronous rounds (optimizer updates).') }),
]);

export const checkpointSchema = z.strictObject({
  final: z.boolean().describe('Write the trained weights as safetensors when the run succeeds.').default(true),
  everyRounds: z.int().min(1).max(LIMITS.rounds).describe('Write a checkpoint each time this many rounds are committed.').optional(),
  everySeconds: z
    .number()
    .min(0)
    .max(86_400)
    .describe('Write a checkpoint when this many seconds have passed since the last one; 0 is never.')
    .default(30),
  keepLast: z.int().min(1).max(1000).describe('Newest checkpoints that are kept.').default(3),
  keepBest: z.boolean().describe('Keep the checkpoint with the lowest training loss too.').default(true),
});

export const weightsSchema = z.strictObject({
  run: z.uuid().describe('The run whose weights are taken, variable by variable by name; the optimizer begins anew.').optional(),
  upload: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be the SHA-256 of uploaded weights, 64 lower-case hexadecimal digits')
    .describe('Weights of another program that were uploaded, by their SHA-256, in place of a run.')
    .optional(),
  round: z
    .int()
    .min(0)
    .max(LIMITS.rounds)
    .describe('Committed rounds of one of its checkpoints. Left out: its result, or its newest checkpoint.')
    .optional(),
  reinitialize: variablePatternsSchema
    .describe('Variables that begin as in a new run: those that are not in that run or have another shape must be among them.')
    .optional(),
});

/** Bits a second and milliseconds. */
const LINK = /^(\d{1,6}(?:\.\d{1,3})?)(kbit|mbit|gbit)(?:,\d{1,5}ms)?$/;
const KILOBITS = { kbit: 1, mbit: 1e3, gbit: 1e6 };
const LEAST_KILOBITS = 8;

function isLink(text: string): boolean {
  const [, rate, unit] = LINK.exec(text) ?? [];
  return Number(rate) * KILOBITS[unit as keyof typeof KILOBITS] >= LEAST_KILOBITS;
}

export const runSpecSchema = z
  .strictObject({
    name: z
      .string()
      .trim()
      .min(1)
      .max(LIMITS.nameCharacters)
      .regex(/^[^\p{Cc}\p{Cf}\p{Cs}]*$/u, 'must not contain control characters or halves of characters')
      .describe('A name for people.')
      .default('run'),
    model: modelSchema
      .describe('What is trained: a zoo name or a tf.js Layers topology. Left out: cnn for images of more than 1024 numbers, else mlp.')
      .optional(),
    dataset: datasetReferenceSchema
      .describe('A built-in dataset or one of the team, by name; NAME@VERSION for one version of it.')
      .default('mnist'),
    features: featuresSchema.describe('Which columns of the dataset are inputs, targets and weights, and how.').optional(),
    augmentation: augmentationSchema
      .describe('Random changes of the training images, anew in every epoch, by the seed, the epoch and the example alone.')
      .optional(),
    weights: weightsSchema.describe('Begin with the weights of another run, or with uploaded ones, instead of random ones.').optional(),
    freeze: variablePatternsSchema
      .describe('Variables that keep the values that they begin with: layers or layer/weight, with * for any characters.')
      .optional(),
    loss: z
      .enum(LOSSES)
      .describe(
        'Loss of each output, as Keras defines it, summed over examples by the replicas and averaged by the servers. Left out: meanSquaredError for values, binaryCrossentropy for two classes at one output, sparseCategoricalCrossentropy for classes.',
      )
      .optional(),
    lossOptions: lossOptionsSchema.describe('Options of `loss`.').optional(),
    losses: z
      .record(z.string().min(1).max(100), outputLossSchema)
      .describe(
        'A loss per output, by its name, for models with several: a name, or an object with name and options. The others take `loss`.',
      )
      .optional(),
    lossWeights: z
      .record(z.string().min(1).max(100), z.number().min(0).max(1e6))
      .describe('Factors of the losses of the outputs, by their names; 1 where left out.')
      .optional(),
    lossFromLogits: z
      .boolean()
      .describe(
        'Whether crossentropies take logits or probabilities. Left out: probabilities where the model ends in softmax or sigmoid, else logits.',
      )
      .optional(),
    metrics: z
      .array(z.enum(MEASURED_NAMES))
      .max(MEASURED_NAMES.length)
      .describe('Measured per round and in the final evaluation. Left out: accuracy for classes, meanAbsoluteError for values.')
      .optional(),
    metricOptions: metricOptionsSchema.describe('Options of the metrics.').optional(),
    optimizer: optimizerSchema
      .describe(
        'The update that the servers apply; with the strategy local-update, that of each replica in its local steps; with tpu, that of the worker.',
      )
      .default({ name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false }),
    learningRate: learningRateSchema
      .describe('How the rate of the optimizer scales with the batch, warms up and falls; by the round alone.')
      .optional(),
    validation: validationSchema
      .describe(
        'Measure the evaluation split, or held-out examples, while training. Left out: at the end alone, or each epoch where earlyStopping or reduceLROnPlateau is given.',
      )
      .optional(),
    earlyStopping: earlyStoppingSchema.describe('End the run when a validation has not improved for long, as Keras does.').optional(),
    reduceLROnPlateau: plateauSchema
      .describe('Lower the learning rate when a validation has not improved for long, as Keras does.')
      .optional(),
    globalBatch: z
      .int()
      .min(1)
      .max(LIMITS.globalBatchExamples)
      .describe('Examples over all replicas in a round; with local-update in a local step, with tpu in a step.')
      .default(256),
    replicas: z
      .int()
      .min(1)
      .max(LIMITS.replicas)
      .describe('Logical data-parallel copies; fixed for the run, however many workers compute them.')
      .default(4),
    shuffle: z
      .boolean()
      .describe('false: examples come in the order of the dataset, the same in every epoch. Left out: in another order in each epoch.')
      .optional(),
    dropRemainder: z.boolean().describe('Drop the ragged last round of an epoch instead of training on it.').default(false),
    strategy: strategySchema.describe('How the run is distributed.').prefault({ kind: 'parameter-server' }),
    gradient: gradientSchema.describe('What is done to the gradient before the update.').prefault({}),
    codec: codecSchema.describe('How gradients travel from workers to servers. Left out: as float32.').optional(),
    embeddings: embeddingsSchema.describe('How the tables of Embedding layers travel. Left out: whole, as all other variables.').optional(),
    length: lengthSchema.describe('How long to train: epochs or rounds.').default({ epochs: 5 }),
    seed: z
      .int()
      .min(0)
      .max(LIMITS.seedMax)
      .describe('Seeds the initial weights, the order of examples, their augmentation and every random layer.')
      .default(42),
    engine: z
      .enum(ENGINES)
      .describe(
        'What computes on the workers: wasm everywhere, wasm-relaxed where the processor multiplies and adds in one step, tensorflow where it is installed, webgpu where a GPU and the npm package webgpu are, cpu for comparison. auto: the fastest of the first worker, ' +
          'for all of the run. mixed: the fastest of each worker, replicas by speed, without equal bits.',
      )
      .default('wasm'),
    stepDeadlineMs: z
      .int()
      .min(1_000)
      .max(3_600_000)
      .describe('A worker without progress for this long is declared lost, in milliseconds.')
      .default(60_000),
    link: z
      .string()
      .refine(isLink, 'must be like 20mbit,30ms: at least 8kbit a second, and milliseconds each way')
      .describe(
        'Slows the connections between workers and servers of this run down, to try out what a network would do: 20mbit,30ms is so much a second and so long a delay, each way, for each worker. Left out: not at all.',
      )
      .optional(),
    checkpoint: checkpointSchema.describe('What is kept of the weights, and how often.').prefault({}),
    restarts: z
      .int()
      .min(0)
      .max(100)
      .describe('How many attempts in a row may start again after failures of any cause; progress refills this budget.')
      .default(5),
  })
  .superRefine((spec, ctx) => {
    if (spec.globalBatch < spec.replicas) {
      ctx.addIssue({
        code: 'custom',
        path: ['globalBatch'],
        message: `globalBatch (${spec.globalBatch}) must be at least replicas (${spec.replicas}), so that every replica gets an example`,
      });
    }
    const perReplica = Math.floor(spec.globalBatch / spec.replicas);
    if (perReplica >= 1 && spec.strategy.accumulate > perReplica) {
      ctx.addIssue({
        code: 'custom',
        path: ['strategy', 'accumulate'],
        message: `accumulate (${spec.strategy.accumulate}) must not exceed the ${perReplica} examples that a replica gets per round`,
      });
    }
    const conflicts = conflictsOf(spec);
    for (const [field, message] of [...conflicts, ...allowedConflicts(spec, conflicts)])
      ctx.addIssue({ code: 'custom', path: field.split('.'), message });
  });

type Conflict = [field: string, message: string];
type Conflicting = Parameters<typeof strategyConflicts>[0] &
  Parameters<typeof codecConflicts>[0] &
  Parameters<typeof embeddingConflicts>[0] &
  Parameters<typeof optimizerConflicts>[0] &
  Parameters<typeof weightConflicts>[0] &
  Parameters<typeof validationConflicts>[0];

const conflictsOf = (spec: Conflicting): Conflict[] => [
  ...strategyConflicts(spec),
  ...codecConflicts(spec),
  ...embeddingConflicts(spec),
  ...optimizerConflicts(spec),
  ...weightConflicts(spec),
  ...validationConflicts(spec),
];

/** What does not go with the local updates that `strategy: auto` may pick. @param own of the spec as it is, which are told anyway */
function allowedConflicts(spec: Conflicting, own: readonly Conflict[]): Conflict[] {
  const allowed = allowedLocalUpdates(spec);
  if (!allowed) return [];
  const told = new Set(own.map(([field]) => field));
  const others = conflictsOf(Object.assign({}, spec, allowed)).filter(([field]) => !told.has(field));
  return others.map(([field, message]) => ['strategy.allowedLocalSteps', `lets auto pick local-update, and ${field} ${message}`]);
}

function weightConflicts({ weights }: { weights?: z.output<typeof weightsSchema> | undefined }): [field: string, message: string][] {
  if (!weights) return [];
  const { run, upload, round } = weights;
  if ((run === undefined) === (upload === undefined))
    return [['weights', 'needs either run, the run whose weights are taken, or upload, the hash of uploaded weights']];
  return upload !== undefined && round !== undefined ? [['weights.round', 'belongs to a run: uploaded weights have no rounds']] : [];
}

/** Options that do not go with the optimizer, or that the optimizer does not go with. */
function optimizerConflicts({
  strategy,
  gradient,
  optimizer,
  freeze,
}: {
  strategy: z.output<typeof strategySchema>;
  gradient: z.output<typeof gradientSchema>;
  optimizer: z.output<typeof optimizerSchema>;
  freeze?: readonly string[] | undefined;
}): [field: string, message: string][] {
  const { mode } = strategy;
  const conflicts: [string, string][] = [];
  if (optimizer.name === 'ftrl' && (freeze?.length ?? 0) > 0 && mode !== 'sync')
    conflicts.push(['freeze', 'needs mode sync with the optimizer ftrl, which makes weights from its sums alone']);
  if (optimizer.name === 'ftrl' && optimizer.initialAccumulator + optimizer.l2 + optimizer.beta === 0)
    conflicts.push([
      'optimizer.initialAccumulator',
      'must be above 0 where l2 and beta are 0: a weight whose gradient is 0 would become NaN; set one of the three, for example initialAccumulator: 0.1',
    ]);
  if (optimizer.emaMomentum !== undefined && mode !== 'sync')
    conflicts.push(['optimizer.emaMomentum', `needs mode sync; the mode is ${mode}`]);
  if (optimizer.emaOverwriteRounds !== undefined && optimizer.emaMomentum === undefined)
    conflicts.push(['optimizer.emaOverwriteRounds', 'is not used without emaMomentum: set it, for example to 0.99']);
  if (isLayerwise(optimizer)) {
    const { name } = optimizer;
    if (mode !== 'sync')
      conflicts.push(['optimizer.name', `${name} needs mode sync, as its steps depend on norms over all servers; the mode is ${mode}`]);
    for (const rule of ['clipNorm', 'clipGlobalNorm', 'clipValue'] as const)
      if (gradient[rule] !== undefined)
        conflicts.push([`gradient.${rule}`, `does not go with ${name}, which scales each variable by norms itself: leave it out`]);
    if (backupReplicasOf(strategy) > 0) conflicts.push(['strategy.backupReplicas', `does not go with ${name}: set it to 0`]);
  }
  return conflicts;
}

/**
 * What the round does with a complete chunk (docs/protocol.md §9): `streaming` applies it at once; `two-phase` first hears of all
 * chunks, because what is done to one depends on the others.
 */
export function roundPlan(spec: Pick<RunSpec, 'strategy' | 'gradient' | 'optimizer' | 'replicas'>): 'streaming' | 'two-phase' {
  const { strategy } = spec;
  const { gradient, optimizer } = appliedByServers(spec);
  const dependsOnAll =
    isLayerwise(optimizer) || gradient.clipNorm !== undefined || gradient.clipGlobalNorm !== undefined || gradient.nonFinite === 'skip';
  return strategy.mode === 'sync' && (dependsOnAll || backupReplicasOf(strategy) > 0) ? 'two-phase' : 'streaming';
}

/** A validated run spec: every default filled in. */
export type RunSpec = z.output<typeof runSpecSchema>;
/** A run spec as a person writes it: defaults may be left out. */
export type RunSpecInput = z.input<typeof runSpecSchema>;
export type ModelSpec = z.output<typeof modelSchema>;

/** One thing that is wrong with a spec: `path` names the field in the words of the spec (`strategy.servers`). */
export type SpecResult = { readonly ok: true; readonly spec: RunSpec } | { readonly ok: false; readonly issues: readonly SpecIssue[] };

/** What a spec that somebody gives is refused for beside; what is stored was taken before, and goes on. */
const givenRunSpecSchema = runSpecSchema.superRefine((spec, ctx) => {
  const fault = typeof spec.model === 'object' ? givenTopologyFault(spec.model.topology) : undefined;
  if (fault) ctx.addIssue({ code: 'custom', path: ['model', 'topology', ...fault.path], message: fault.message });
  for (const [field, message] of unusedOptions(spec)) ctx.addIssue({ code: 'custom', path: field.split('.'), message });
});

/** Validates untrusted input. Never throws; at most 20 issues are returned, each naming its field. */
export function parseRunSpec(input: unknown): SpecResult {
  const own = inputWithOwnNames(input);
  const result = givenRunSpecSchema.safeParse(own);
  if (result.success) return { ok: true, spec: result.data };
  return { ok: false, issues: plainIssues(runSpecSchema, own, result.error.issues) };
}

/** The same of a spec that was taken before, and of which a part has become another. */
export function parseStoredSpec(input: unknown): SpecResult {
  const result = runSpecSchema.safeParse(input);
  if (result.success) return { ok: true, spec: result.data };
  return { ok: false, issues: plainIssues(runSpecSchema, input, result.error.issues) };
}
