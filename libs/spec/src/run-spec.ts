/**
 * The run spec: what a person describes when they ask for a run. This schema is the only place where its fields are
 * written down: TypeScript types, the GraphQL input, the OpenAPI document, the CLI flags and docs/reference/run-spec.md
 * are derived from it (see `surface.ts`), so a new field appears on every surface or on none.
 *
 * Rules for a field: `.describe()` says what it is, in one sentence with its unit; a default where most people want the
 * same thing; bounds always.
 */
import { z } from 'zod';
import { LIMITS } from './limits.js';
import { modelTopologySchema } from './model-topology.js';
import { plainIssues } from './plain-issues.js';

export const MODEL_ZOO = ['mlp', 'mlp-dropout', 'cnn'] as const;
export const DATASETS = ['mnist'] as const;
export const LOSSES = ['sparseCategoricalCrossentropy', 'categoricalCrossentropy', 'meanSquaredError'] as const;
export const METRICS = ['accuracy'] as const;
/** What Keras calls them for short. */
export const METRIC_SHORT_NAMES: ReadonlyMap<unknown, (typeof METRICS)[number]> = new Map([['acc', 'accuracy']]);
/** What computes on a worker. */
export const BACKENDS = ['wasm', 'wasm-relaxed', 'cpu', 'tensorflow', 'webgpu'] as const;
export type BackendName = (typeof BACKENDS)[number];
export const ENGINES = [...BACKENDS, 'auto', 'mixed'] as const;
export const MODES = ['sync', 'async', 'ssp'] as const;
export const NON_FINITE_POLICIES = ['fail', 'skip', 'rollback'] as const;

const positiveRate = (what: string) => z.number().positive().max(1e3).describe(what);
const decay = (what: string) => z.number().min(0).lt(1).describe(what);

export const optimizerSchema = z.discriminatedUnion('name', [
  z.strictObject({
    name: z.literal('sgd'),
    learningRate: positiveRate('Step size.').default(0.1),
  }),
  z.strictObject({
    name: z.literal('momentum'),
    learningRate: positiveRate('Step size.').default(0.05),
    momentum: decay('Velocity kept per round.').default(0.9),
    nesterov: z.boolean().describe('Look ahead along the velocity (Sutskever et al. 2013).').default(false),
  }),
  z.strictObject({
    name: z.literal('adam'),
    learningRate: positiveRate('Step size.').default(0.001),
    beta1: decay('Decay of the first moment.').default(0.9),
    beta2: decay('Decay of the second moment.').default(0.999),
    epsilon: z.number().positive().max(1).describe('Added to the root of the second moment (Kingma & Ba 2015).').default(1e-7),
  }),
]);

export const modelSchema = z.union([
  z.enum(MODEL_ZOO).describe('A model of the built-in zoo.'),
  z.strictObject({
    topology: modelTopologySchema.describe('tf.js Layers topology (the modelTopology of model.json). Nothing in it is executed.'),
  }),
]);

export const strategySchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('parameter-server'),
    mode: z
      .enum(MODES)
      .describe(
        'When gradients are applied: sync applies all replicas at once; async applies each as it comes; ssp is async within a bound on staleness.',
      )
      .default('sync'),
    servers: z.int().min(1).max(LIMITS.servers).describe('Parameter-server processes that share the parameters.').default(1),
    accumulate: z
      .int()
      .min(1)
      .max(LIMITS.accumulateMicroBatches)
      .describe('Micro-batches per replica and round; their gradients add up before anything is sent.')
      .default(1),
    stalenessBound: z
      .int()
      .min(0)
      .max(LIMITS.stalenessBound)
      .describe('With mode ssp: rounds that the fastest replica may be ahead of the slowest (Ho et al. 2013).')
      .default(4),
    stalenessScaledRate: z
      .boolean()
      .describe('With mode async or ssp: divide the step size of an update by 1 + its staleness (Zhang et al. 2016).')
      .default(false),
    delayCompensation: z
      .number()
      .min(0)
      .max(10)
      .describe('With mode async or ssp: lambda of DC-ASGD (Zheng et al. 2017); 0 is off.')
      .default(0),
    backupReplicas: z
      .int()
      .min(0)
      .max(LIMITS.replicas - 1)
      .describe('With mode sync: replicas that a round does not wait for (Chen et al. 2016); above 0 no equal bits are promised.')
      .default(0),
    standby: z
      .int()
      .min(0)
      .max(1)
      .describe('Standby servers per shard: 1 lets a lost server be replaced without redoing a round.')
      .default(0),
  }),
]);

export const gradientSchema = z.strictObject({
  clipNorm: positiveRate('Scale the gradient of each variable down to at most this L2 norm.').optional(),
  clipGlobalNorm: positiveRate('Scale the whole gradient down to at most this L2 norm (Pascanu et al. 2013).').optional(),
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
    model: modelSchema.describe('What is trained: a zoo name or a tf.js Layers topology.').default('mlp'),
    dataset: z.enum(DATASETS).describe('A registered dataset.').default('mnist'),
    augmentation: augmentationSchema
      .describe('Random changes of the training images, anew in every epoch, by the seed, the epoch and the example alone.')
      .optional(),
    loss: z
      .enum(LOSSES)
      .describe('Loss, summed over examples by the replicas and averaged by the servers; the model ends in logits.')
      .default('sparseCategoricalCrossentropy'),
    metrics: z.array(z.enum(METRICS)).max(METRICS.length).describe('Measured per round and in the final evaluation.').default(['accuracy']),
    optimizer: optimizerSchema
      .describe('The update the servers apply.')
      .default({ name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false }),
    globalBatch: z.int().min(1).max(LIMITS.globalBatchExamples).describe('Examples per round over all replicas.').default(256),
    replicas: z
      .int()
      .min(1)
      .max(LIMITS.replicas)
      .describe('Logical data-parallel copies; fixed for the run, however many workers compute them.')
      .default(4),
    dropRemainder: z.boolean().describe('Drop the ragged last round of an epoch instead of training on it.').default(false),
    strategy: strategySchema.describe('How the run is distributed.').prefault({ kind: 'parameter-server' }),
    gradient: gradientSchema.describe('What is done to the gradient before the update.').prefault({}),
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
    checkpoint: checkpointSchema.describe('What is kept of the weights, and how often.').prefault({}),
    restarts: z
      .int()
      .min(0)
      .max(100)
      .describe('Attempts that may be started anew after failures, over all causes; progress gives them back.')
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
    for (const [field, message] of modeConflicts(spec)) ctx.addIssue({ code: 'custom', path: field.split('.'), message });
  });

/** Options that say nothing, or promise what cannot be kept, with the mode of the run. */
function modeConflicts({
  strategy,
  gradient,
  replicas,
}: {
  strategy: z.output<typeof strategySchema>;
  gradient: z.output<typeof gradientSchema>;
  replicas: number;
}): [field: string, message: string][] {
  const { mode, stalenessScaledRate, delayCompensation, backupReplicas, standby } = strategy;
  const conflicts: [string, string][] = [];
  const needsSync = (field: string, isAsked: boolean): void => {
    if (isAsked && mode !== 'sync') conflicts.push([field, `needs mode sync; the mode is ${mode}`]);
  };
  if (mode === 'sync' && stalenessScaledRate)
    conflicts.push(['strategy.stalenessScaledRate', 'needs mode async or ssp: a synchronous update is never stale']);
  if (mode === 'sync' && delayCompensation > 0)
    conflicts.push(['strategy.delayCompensation', 'needs mode async or ssp: a synchronous update has no delay']);
  needsSync('strategy.backupReplicas', backupReplicas > 0);
  if (standby > 0 && backupReplicas > 0)
    conflicts.push([
      'strategy.standby',
      'does not go with backupReplicas: what a lost coordinator had decided to leave out of a round is not known to its standby; set one of both to 0',
    ]);
  needsSync('gradient.clipNorm', gradient.clipNorm !== undefined);
  needsSync('gradient.clipGlobalNorm', gradient.clipGlobalNorm !== undefined);
  if (backupReplicas >= replicas)
    conflicts.push(['strategy.backupReplicas', `must be below replicas (${replicas}), so that a round waits for somebody`]);
  return conflicts;
}

/**
 * What the round does with a complete chunk (ROUNDS §4): `streaming` applies it at once; `two-phase` first hears of all
 * chunks, because what is done to one depends on the others.
 */
export function roundPlan({ strategy, gradient }: Pick<RunSpec, 'strategy' | 'gradient'>): 'streaming' | 'two-phase' {
  const dependsOnAll = gradient.clipNorm !== undefined || gradient.clipGlobalNorm !== undefined || gradient.nonFinite === 'skip';
  return strategy.mode === 'sync' && (dependsOnAll || strategy.backupReplicas > 0) ? 'two-phase' : 'streaming';
}

/** A validated run spec: every default filled in. */
export type RunSpec = z.output<typeof runSpecSchema>;
/** What a person may write: defaults may be left out. */
export type RunSpecInput = z.input<typeof runSpecSchema>;
export type OptimizerSpec = z.output<typeof optimizerSchema>;
export type ModelSpec = z.output<typeof modelSchema>;

/** One thing that is wrong with a spec: `path` names the field in the words of the spec (`strategy.servers`). */
export interface SpecIssue {
  readonly path: string;
  readonly message: string;
}

export type SpecResult = { readonly ok: true; readonly spec: RunSpec } | { readonly ok: false; readonly issues: readonly SpecIssue[] };

/** Validates untrusted input. Never throws; at most 20 issues are returned, each naming its field. */
export function parseRunSpec(input: unknown): SpecResult {
  const result = runSpecSchema.safeParse(withMetricsInFull(input));
  if (result.success) return { ok: true, spec: result.data };
  return { ok: false, issues: plainIssues(runSpecSchema, input, result.error.issues) };
}

function withMetricsInFull(input: unknown): unknown {
  const metrics: unknown = (input as { readonly metrics?: unknown } | null | undefined)?.metrics;
  if (!Array.isArray(metrics)) return input;
  return { ...(input as object), metrics: metrics.map((name: unknown) => METRIC_SHORT_NAMES.get(name) ?? name) };
}
