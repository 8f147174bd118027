/**
 * A run that begins with another run's checkpoint: what it takes over from that run's spec, and what may not differ.
 *
 * A checkpoint is parameters, state and the slots of the optimizer. Whatever decides which numbers these are, by name and shape, must stay:
 * the variables of the model, and the slots of the optimizer. Everything else (rates, batch, clipping, length, dataset, seed, mode, engine)
 * says how training goes on from there, and may be another. docs/checkpoints.md has the table.
 */
import { keepsEstimate } from './codec-spec.js';
import { appliedByServers } from './local-update.js';
import { inputWithOwnNames } from './losses.js';
import type { VariableSpec } from './model-description.js';
import { optimizerSlots } from './optimizer-slots.js';
import type { SpecIssue } from './plain-issues.js';
import type { RoundGrid } from './round-grid.js';
import type { RunSpec } from './run-spec.js';
import { unusedOptions } from './unused-options.js';

/** Groups whose fields are taken over one by one; any other field is replaced as a whole. */
const MERGED_GROUPS = [
  'optimizer',
  'learningRate',
  'strategy',
  'gradient',
  'checkpoint',
  'augmentation',
] as const satisfies readonly (keyof RunSpec)[];

/** Fields of the learning rate that take the place of others. */
const RATE_PAIRS = [
  ['warmupRounds', 'warmupEpochs'],
  ['decayRounds', 'decayEpochs'],
] as const;
/** Fields that belong to one schedule only. */
const OF_SCHEDULE: readonly string[] = [
  'decayRounds',
  'decayEpochs',
  'factor',
  'endFactor',
  'power',
  'periodGrowth',
  'restartFactor',
  'riseShare',
  'startDivisor',
  'endDivisor',
];

/** Fields of the source's learning rate that what is given does away with. */
function replacedRateFields(source: RunSpec['learningRate'], given: Readonly<Record<string, unknown>>): string[] {
  const pairs = RATE_PAIRS.flatMap(([a, b]) => [...(a in given ? [b] : []), ...(b in given ? [a] : [])]);
  const ofSchedule = 'schedule' in given && given['schedule'] !== source?.schedule ? OF_SCHEDULE : [];
  return [...pairs, ...ofSchedule, ...(given['scaling'] === 'none' ? ['baseBatch'] : [])];
}

/** Fields of the strategy that take the place of others: stages of where they end, servers of workers that hold the shards. */
const STRATEGY_PAIRS = [
  ['stages', ['cutAfter']],
  ['cutAfter', ['stages']],
  ['servers', ['workers']],
  ['workers', ['servers', 'startWorkers']],
] as const;
/** Fields that belong to the outer optimizer of before. */
const OF_OUTER_OPTIMIZER = ['outerLearningRate', 'outerMomentum', 'movingRate'];

/** Fields of the source's strategy that what is given does away with. */
function replacedStrategyFields(source: RunSpec['strategy'], given: Readonly<Record<string, unknown>>): string[] {
  const pairs = STRATEGY_PAIRS.flatMap(([field, others]) => (field in given ? others : []));
  const isOther = given['outerOptimizer'] !== undefined && 'outerOptimizer' in source && given['outerOptimizer'] !== source.outerOptimizer;
  return [...pairs, ...(isOther ? OF_OUTER_OPTIMIZER : [])];
}

/** Without the fields that are null: they are as by default. */
const withoutNulls = (given: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));

const isObject = (value: unknown): value is Record<string, unknown> => value !== null && typeof value === 'object' && !Array.isArray(value);

/**
 * The spec of the source with what the request says laid over it; what the request says is null is not taken over. Nothing is checked: the result goes through the schema like any other.
 * @param given a run spec as people write it, not trusted
 */
export function inheritSpec(source: RunSpec, given: unknown): unknown {
  if (!isObject(given)) return given;
  // The fields of one optimizer mean nothing to another; that it is another is refused later, in words. Nor do those of one kind of strategy.
  const differs = (said: unknown, field: string, own: string): boolean =>
    isObject(said) && said[field] !== undefined && said[field] !== own;
  const isOther = (group: string): boolean =>
    (group === 'optimizer' && differs(given['optimizer'], 'name', source.optimizer.name)) ||
    (group === 'strategy' && differs(given['strategy'], 'kind', source.strategy.kind));
  const merged = MERGED_GROUPS.filter((group) => isObject(source[group]) && isObject(given[group]) && !isOther(group)).map((group) => {
    const [own, said] = [source[group] as object, given[group] as Record<string, unknown>];
    const replaced =
      group === 'learningRate'
        ? replacedRateFields(source.learningRate, said)
        : group === 'strategy'
          ? replacedStrategyFields(source.strategy, said)
          : [];
    const kept = Object.fromEntries(Object.entries(own).filter(([field]) => !replaced.includes(field)));
    return [group, withoutNulls(Object.assign(kept, said))];
  });
  // The checkpoint has the weights: where those of the source came from is over.
  const { weights: _over, ...kept } = source;
  const inherited = withoutNulls({ ...kept, ...given, ...Object.fromEntries(merged) });
  // The layers of another model have other names.
  const { strategy } = inherited;
  const namesCuts = isObject(given['strategy']) && 'cutAfter' in given['strategy'];
  if ('model' in given && !namesCuts && isObject(strategy) && 'cutAfter' in strategy)
    inherited['strategy'] = Object.fromEntries(Object.entries(strategy).filter(([field]) => field !== 'cutAfter'));
  return withoutUnused(inherited, given);
}

/** Without options of the source that nothing uses any more, such as those of a metric that the request leaves out. What the request says itself is refused later. */
function withoutUnused(inherited: Record<string, unknown>, given: Record<string, unknown>): Record<string, unknown> {
  const kept = Object.assign({}, inherited);
  for (const field of unusedFields(inherited)) {
    const [outer, inner] = field.split('.') as [string, string | undefined];
    const said = given[outer];
    if (inner === undefined ? said !== undefined : isObject(said) && said[inner] !== undefined) continue;
    if (inner === undefined) delete kept[outer];
    else kept[outer] = Object.fromEntries(Object.entries(kept[outer] as object).filter(([name]) => name !== inner));
  }
  return kept;
}

function unusedFields(inherited: Record<string, unknown>): string[] {
  try {
    return unusedOptions(inputWithOwnNames(inherited) as RunSpec).map(([field]) => field);
  } catch {
    return []; // what is no spec is refused by the schema, in words
  }
}

/**
 * How long the new run is when the request does not say: to the end of the source, or, when the checkpoint is that end already, as
 * long again.
 * @param round committed rounds of the checkpoint
 * @param grid of the new run
 */
export function inheritedLength(source: RunSpec, round: number, grid: Pick<RoundGrid, 'roundsIn' | 'epochsIn'>): RunSpec['length'] {
  const { length } = source;
  const rounds = 'rounds' in length ? length.rounds : grid.roundsIn(length.epochs);
  if (round < rounds) return length;
  return 'rounds' in length ? { rounds: round + length.rounds } : { epochs: Math.ceil(grid.epochsIn(round)) + length.epochs };
}

/** Refuses an optimizer whose slots differ from those of the source. */
export function optimizerIssues(source: RunSpec, spec: RunSpec, runId: string): SpecIssue[] {
  const [from, to] = [source.strategy.kind, spec.strategy.kind];
  const isLocal = to === 'local-update';
  if ((to === 'tpu') !== (from === 'tpu') && !isLocal && from !== 'local-update')
    return [
      {
        path: 'strategy.kind',
        message: `is ${from} in run ${runId} and cannot become ${to} from its checkpoint: a round has another number of steps with tpu; begin with its weights instead (weights.run)`,
      },
    ];
  if (
    source.strategy.kind === 'tpu' &&
    spec.strategy.kind === 'tpu' &&
    source.strategy.stepsPerExecution !== spec.strategy.stepsPerExecution
  )
    return [
      {
        path: 'strategy.stepsPerExecution',
        message: `is ${source.strategy.stepsPerExecution} in run ${runId} and cannot become ${spec.strategy.stepsPerExecution} from its checkpoint, whose rounds have so many steps: leave it as it is there, or begin with its weights (weights.run)`,
      },
    ];
  if (isLocal !== (from === 'local-update'))
    return [
      {
        path: 'strategy.kind',
        message: `is ${from} in run ${runId} and cannot become ${to} from its checkpoint, which has the slots of another optimizer: begin with its weights instead (weights.run)`,
      },
    ];
  if (keepsEstimate(source) || keepsEstimate(spec))
    return [
      {
        path: 'codec.feedbackRule',
        message: `is ef21 in ${keepsEstimate(source) ? `run ${runId}` : 'this run'}, whose estimates belong to one run: begin with the weights instead (weights.run)`,
      },
    ];
  const [was, is] = [appliedByServers(source).optimizer, appliedByServers(spec).optimizer];
  const [wasSlots, isSlots] = [optimizerSlots(was), optimizerSlots(is)];
  if (wasSlots.join() === isSlots.join()) return [];
  if (was.name !== is.name)
    return [
      {
        path: isLocal ? 'strategy.outerOptimizer' : 'optimizer.name',
        message: `is ${was.name} in run ${runId} and cannot become ${is.name}: its slots would not fit`,
      },
    ];
  const shown = (slots: readonly string[]): string => slots.join(', ') || 'none';
  const differs = (Object.keys(is) as (keyof RunSpec['optimizer'])[]).find(
    (field) => field !== 'learningRate' && changesSlots(was, is, field),
  );
  return [
    {
      path: `optimizer.${differs ?? 'name'}`,
      message: `changes the slots of ${is.name}: run ${runId} has ${shown(wasSlots)}, this would need ${shown(isSlots)}; leave it as it is there`,
    },
  ];
}

/** Whether the field alone, taken over from the one to the other, makes other slots. */
function changesSlots(was: RunSpec['optimizer'], is: RunSpec['optimizer'], field: keyof RunSpec['optimizer']): boolean {
  return optimizerSlots(Object.assign({}, was, { [field]: is[field] })).join() !== optimizerSlots(was).join();
}

/** The model may be written in another way, or with other dropout, as long as its variables are the same. */
export function variableIssues(was: readonly VariableSpec[], is: readonly VariableSpec[], spec: RunSpec, runId: string): SpecIssue[] {
  const shown = ({ path, shape, section }: VariableSpec): string => `${path} [${shape.join(', ')}]${section === 'state' ? ' (state)' : ''}`;
  const longer = was.length > is.length ? was : is;
  const at = longer.findIndex((_, i) => !was[i] || !is[i] || shown(was[i]) !== shown(is[i]));
  const table = was.find(({ rows }, i) => at < 0 && (rows === undefined) !== (is[i]!.rows === undefined));
  if (table)
    return [
      {
        path: 'embeddings.kind',
        message: `is ${table.rows ? 'sparse' : 'dense'} in run ${runId}, whose checkpoints are cut by it (${table.path}): leave it as it is there, or begin with its weights instead (weights.run)`,
      },
    ];
  if (at < 0) return [];
  const [there, here] = [was[at], is[at]].map((variable) => (variable ? shown(variable) : 'no more variables'));
  const path = typeof spec.model === 'object' ? 'model.topology' : 'model';
  return [{ path, message: `has other variables than run ${runId} (${here} where that has ${there}): its weights would not fit` }];
}
