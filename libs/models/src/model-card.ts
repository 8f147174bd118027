/** The card of an exported model: what it was trained on, how, how well it does, and which bytes it is. Once for programs, once for people. */
import { z } from 'zod';
import { measureParts, METRIC_FORMS, SPLITS, type RunSpec } from '@paceline/spec';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

const measuredRound = z.strictObject({ round: z.int(), values: z.record(z.string(), z.number().nullable()) });

export const modelCardSchema = z.strictObject({
  format: z.literal('paceline.model-card'),
  version: z.literal(1),
  name: z.string(),
  run: z.strictObject({ id: z.string(), status: z.string(), createdAt: z.string(), finishedAt: z.string().nullable() }),
  /** Committed rounds that the weights have. */
  round: z.int(),
  totalRounds: z.int(),
  trainedExamples: z.int().nullable(),
  dataset: z.strictObject({
    name: z.string(),
    version: sha256.nullable(),
    license: z.string().nullable(),
    source: z.string().nullable(),
  }),
  /** Means over the evaluation split; null for a checkpoint, which was not evaluated. */
  evaluation: z
    .strictObject({
      examples: z.int().nullable(),
      loss: z.number().nullable(),
      accuracy: z.number().nullable(),
      /** The split that it was measured on; cards of earlier releases do not say. */
      split: z.enum(SPLITS).optional(),
      /** All of them by name. */
      values: z.record(z.string(), z.number().nullable()).optional(),
    })
    .nullable(),
  /** Runs that validate while they train: the best validation by a metric, and the newest. */
  validations: z
    .strictObject({ metric: z.string(), better: z.enum(['higher', 'lower']), best: measuredRound, last: measuredRound })
    .optional(),
  /** Mean training loss since the checkpoint before, for a checkpoint. */
  trainingLoss: z.number().nullable(),
  parameterCount: z.int(),
  stateCount: z.int(),
  /** Over all variables in the order of the layout, little-endian float32. */
  weightsSha256: sha256,
  engine: z.string().nullable(),
  paceline: z.string(),
  spec: z.custom<RunSpec>((value) => value !== null && typeof value === 'object'),
});
export type ModelCard = z.output<typeof modelCardSchema>;
/** Without what is known only when the weights have passed. */
export type CardFacts = Omit<ModelCard, 'format' | 'version' | 'weightsSha256'>;

export function cardOf(facts: CardFacts, weightsSha256: string): ModelCard {
  return Object.assign({ format: 'paceline.model-card' as const, version: 1 as const }, facts, { weightsSha256 });
}

const code = (text: string): string => `\`${text.replaceAll('`', "'")}\``;
/** Names come from people: nothing in them is markup. */
const plain = (text: string): string => text.replaceAll(/[\\`*_{}[\]<>()#+!|&]/g, (c) => `\\${c}`);

function measured({ evaluation, validations, round }: ModelCard): string {
  const isValidated = validations?.best.round === round || validations?.last.round === round;
  if (evaluation === null)
    return isValidated ? 'Weights of a checkpoint, validated while the run trained.' : 'Weights of a checkpoint. They were not evaluated.';
  const { split } = evaluation;
  if (split === undefined) return 'Weights of a run that succeeded, evaluated when it ended.';
  return split === 'train'
    ? 'Weights of a run that succeeded, evaluated on the rows that it was trained on: how well it does on others was not measured.'
    : `Weights of a run that succeeded, evaluated on the ${split} split, which it was not trained on.`;
}

/** The best and the last weights side by side. @param round of the weights that are exported */
function validationsMarkdown({ metric, better, best, last }: NonNullable<ModelCard['validations']>, round: number): string[] {
  const columns = best.round === last.round ? [best] : [best, last];
  const title = ({ round: of }: typeof best, name: string): string => `${name}, round ${of}${of === round ? ' (this model)' : ''}`;
  const heads = columns.length === 1 ? [title(best, 'Best and last')] : [title(best, 'Best'), title(last, 'Last')];
  const names = Object.keys(METRIC_FORMS).flatMap((each) => Object.keys(best.values).filter((name) => measureParts(name)?.metric === each));
  return [
    '## Validation',
    '',
    `Measured on the evaluation split while the run trained. The best is the one with the ${better === 'lower' ? 'lowest' : 'highest'} ${code(metric)}.`,
    '',
    `| | ${heads.join(' | ')} |`,
    `|---|${'---|'.repeat(heads.length)}`,
    ...names.map((name) => `| ${plain(name)} | ${columns.map(({ values }) => String(values[name] ?? 'not known')).join(' | ')} |`),
    '',
    ...(columns.some((each) => each.round === round) ? [] : [`This model has the weights of round ${round}.`, '']),
  ];
}

/** Which part of a round that is, where a round has several steps. */
function stepsText({ strategy }: ModelCard['spec']): string {
  if (strategy.kind === 'tpu') return ` in each of ${strategy.stepsPerExecution} steps of a round`;
  if (strategy.kind !== 'local-update') return '';
  return ` in each of ${strategy.localSteps} local steps of a round, outer optimizer ${strategy.outerOptimizer}`;
}

export function cardMarkdown(card: ModelCard): string {
  const { evaluation, dataset, spec } = card;
  const rows: (readonly [string, string])[] = [
    ['Run', code(card.run.id)],
    ['Rounds', `${card.round} of ${card.totalRounds}`],
    ['Dataset', `${plain(dataset.name)}${dataset.version === null ? '' : `, version ${code(dataset.version)}`}`],
    ['License of the data', plain(dataset.license ?? 'not stated')],
    ['Loss function', spec.loss === undefined ? 'of each output: see the run spec' : code(spec.loss)],
    ['Optimizer', code(JSON.stringify(spec.optimizer))],
    ['Batch', `${spec.globalBatch} examples over ${spec.replicas} replicas${stepsText(spec)}`],
    ['Seed', String(spec.seed)],
    ['Parameters', `${card.parameterCount}, and ${card.stateCount} numbers of state`],
    ['Engine', plain(card.engine ?? 'not stated')],
    ['Paceline', card.paceline],
    ['SHA-256 of the weights', code(card.weightsSha256)],
  ];
  if (dataset.source !== null) rows.splice(3, 0, ['Source of the data', plain(dataset.source)]);
  const split = `${evaluation?.split ?? 'evaluation'} split`;
  if (evaluation?.loss != null) rows.push([`Loss on the ${split}`, String(evaluation.loss)]);
  if (evaluation?.accuracy != null) rows.push([`Accuracy on the ${split}`, String(evaluation.accuracy)]);
  for (const [name, value] of Object.entries(evaluation?.values ?? {}))
    if (name !== 'loss' && name !== 'accuracy' && value !== null) rows.push([`${plain(name)} on the ${split}`, String(value)]);
  if (evaluation === null) rows.push(['Training loss', card.trainingLoss === null ? 'not measured' : String(card.trainingLoss)]);
  return [
    `# ${plain(card.name)}`,
    '',
    measured(card),
    '',
    '| | |',
    '|---|---|',
    ...rows.map(([what, value]) => `| ${what} | ${value} |`),
    '',
    ...(card.validations ? validationsMarkdown(card.validations, card.round) : []),
    'What is done to a row before it goes in, and what the numbers that come out mean, is in `preprocessing.json`.',
    'All of this for programs, with the whole run spec, is in `model-card.json`.',
    '',
  ].join('\n');
}
