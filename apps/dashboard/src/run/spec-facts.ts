/**
 * A run spec for people: what was set for the run, what is as it is by default, and the shortest file that asks for the same run. Fields that mean
 * nothing in the run's mode are left out. The spec comes from the server as JSON; nothing about its shape is taken for granted.
 */
import { plainText } from '../text/plain-text.js';
import {
  AUGMENTATION_DEFAULTS,
  LEARNING_RATE_DEFAULTS,
  MODES_OF_FIELD,
  OPTIMIZER_DEFAULTS,
  SPEC_DEFAULTS,
  STRATEGY_DEFAULTS,
} from './spec-defaults.js';

type Json = Readonly<Record<string, unknown>>;
const isObject = (value: unknown): value is Json => value !== null && typeof value === 'object' && !Array.isArray(value);
const object = (value: unknown): Json => (isObject(value) ? value : {});

/** A zoo name, or how many layers a topology has. */
export function modelName(spec: unknown): string {
  const { model } = object(spec);
  if (typeof model === 'string') return plainText(model, 40);
  const topology = object(object(model)['topology']);
  const layers = object(topology['config'])['layers'];
  return Array.isArray(layers) ? `${layers.length} layers` : 'topology';
}

/** The optimizer with its learning rate: "adam 0.001" */
export function optimizerName(spec: unknown): string {
  const { name, learningRate } = object(object(spec)['optimizer']);
  return [plainText(name, 40), typeof learningRate === 'number' ? String(learningRate) : ''].filter(Boolean).join(' ');
}

/** Whether all epochs have the same number of rounds. */
export const hasEvenEpochs = (spec: unknown): boolean => object(object(spec)['strategy'])['syncSteps'] === undefined;

/** How long a round is, where it is several steps: ", 20 local steps each" */
export function stepsText(spec: unknown): string {
  const { localSteps, stepsPerExecution } = object(object(spec)['strategy']);
  if (typeof stepsPerExecution === 'number' && stepsPerExecution > 1) return `, ${stepsPerExecution} steps each`;
  return typeof localSteps === 'number' && localSteps > 1 ? `, ${localSteps} local steps each` : '';
}

export const WEIGHTS_LABEL = 'Begins with weights of';

const LABELS: Readonly<Record<string, string>> = {
  globalBatch: 'Global batch',
  dropRemainder: 'Drop remainder',
  stepDeadlineMs: 'Step deadline (ms)',
  nonFinite: 'Non-finite gradient',
  clipNorm: 'Clip norm, each variable',
  clipGlobalNorm: 'Clip norm, all',
  standby: 'Standby servers',
  servers: 'Parameter servers',
  workers: 'Workers with a shard each',
  minWorkers: 'Fewest workers',
  maxWorkers: 'Most workers',
  threads: 'Compute threads of a worker',
  stages: 'Stages of the model',
  cutAfter: 'Stages end after',
  everyRounds: 'Checkpoint every (rounds)',
  everySeconds: 'Checkpoint every (s)',
  keepLast: 'Checkpoints kept',
  keepBest: 'Keep the best checkpoint',
  final: 'Final checkpoint',
  accumulate: 'Micro-batches per step',
  localSteps: 'Local steps per round',
  allowedLocalSteps: 'Local steps that auto may pick',
  stepsPerExecution: 'Steps per round',
  syncSteps: 'Rounds of one step at first',
  fragments: 'Fragments, one exchanged per round',
  beta1: 'Beta 1',
  beta2: 'Beta 2',
  freeze: 'Frozen variables',
  weights: WEIGHTS_LABEL,
};

/** These are objects whose fields stand for themselves; of the others the name says the most. */
const OPENED = new Set(['strategy', 'gradient', 'checkpoint', 'optimizer', 'augmentation', 'length']);

export interface SpecFact {
  readonly label: string;
  readonly value: string;
  /** It differs from what it is when nobody sets it. */
  readonly isSet: boolean;
}

/** One line per field that means something for this run; the name of the run is the title of the page already. */
export function specFacts(spec: unknown): readonly SpecFact[] {
  const given = object(spec);
  const mode = object(given['strategy'])['mode'];
  return Object.entries(given)
    .filter(([name]) => name !== 'name')
    .flatMap(([name, value]): SpecFact[] => {
      const usual = defaultOf(name, value);
      if (name === 'model') return [{ label: 'Model', value: modelName(spec), isSet: !isSame(value, usual) }];
      if (name === 'learningRate' && isObject(value)) return [{ label: 'Rate schedule', value: scheduleText(value), isSet: true }];
      if (name === 'dataset') return [{ label: 'Dataset', value: datasetText(value), isSet: !isSame(value, usual) }];
      if (name === 'weights' && isObject(value)) return [{ label: labelOf(name), value: weightsText(value), isSet: true }];
      if (!OPENED.has(name) || !isObject(value)) return [{ label: labelOf(name), value: written(value), isSet: !isSame(value, usual) }];
      return Object.entries(value)
        .filter(([field]) => isMeant(name, field, mode))
        .map(([field, inner]) => ({
          label: field === 'name' || field === 'kind' ? labelOf(name) : labelOf(field),
          value: written(inner),
          isSet: !isSame(inner, object(field === 'name' || field === 'kind' ? SPEC_DEFAULTS[name] : usual)[field]),
        }));
    });
}

/** What differs from a constant rate: "cosine, warmup rounds 30". */
function scheduleText(given: Json): string {
  const told = Object.entries(given).filter(([field, value]) => field !== 'schedule' && !isSame(value, LEARNING_RATE_DEFAULTS[field]));
  return [written(given['schedule']), ...told.map(([field, value]) => `${spaced(field)} ${written(value)}`)].filter(Boolean).join(', ');
}

/** A version in as many digits as tell it apart. */
const datasetText = (given: unknown): string => written(given).replace(/@([0-9a-f]{12})[0-9a-f]+$/, '@$1');

/** "run 0198…, round 500; anew: dense_2/*" */
function weightsText({ run, upload, round, reinitialize }: Json): string {
  const place = round === undefined ? '' : `, round ${written(round)}`;
  const anew = Array.isArray(reinitialize) && reinitialize.length > 0 ? `; begin anew: ${written(reinitialize)}` : '';
  if (upload !== undefined) return `an uploaded file, ${written(upload).slice(0, 12)}${anew}`;
  return `run ${written(run)}${place}${anew}`;
}

/** The spec without what is so anyway: as a file it asks for the same run. */
export function setFields(spec: unknown): Json {
  const given = object(spec);
  return Object.fromEntries(
    Object.entries(given).flatMap(([name, value]): [string, unknown][] => {
      const usual = defaultOf(name, value);
      if (isSame(value, usual))
        return isSame(value, SPEC_DEFAULTS[name]) || !TAGS[name] ? [] : [[name, { [TAGS[name]]: object(value)[TAGS[name]] }]];
      if (!OPENED.has(name) || name === 'length' || !isObject(value)) return [[name, value]];
      const named = ['kind', 'name'].filter((field) => field in value);
      const fields = Object.entries(value).filter(([field, inner]) => named.includes(field) || !isSame(inner, object(usual)[field]));
      return [[name, Object.fromEntries(fields)]];
    }),
  );
}

/** The field that tells the members of a group apart. */
const TAGS: Readonly<Record<string, string>> = { optimizer: 'name', strategy: 'kind' };

function defaultOf(name: string, value: unknown): unknown {
  if (name === 'strategy') return STRATEGY_DEFAULTS[String(object(value)['kind'])] ?? SPEC_DEFAULTS[name];
  if (name === 'optimizer') return OPTIMIZER_DEFAULTS[String(object(value)['name'])];
  return name === 'augmentation' ? AUGMENTATION_DEFAULTS : SPEC_DEFAULTS[name];
}

const isMeant = (name: string, field: string, mode: unknown): boolean =>
  name !== 'strategy' || typeof mode !== 'string' || (MODES_OF_FIELD[field]?.includes(mode) ?? true);

/** Whether two JSON values are equal; the order of fields does not matter. */
function isSame(a: unknown, b: unknown): boolean {
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((item, i) => isSame(item, b[i]));
  if (!isObject(a)) return a === b;
  const names = new Set([...Object.keys(a), ...Object.keys(object(b))]);
  return isObject(b) && [...names].every((name) => isSame(a[name], b[name]));
}

function written(value: unknown): string {
  if (typeof value === 'string') return plainText(value, 200);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number') return String(value);
  if (Array.isArray(value)) return value.map(written).join(', ') || 'none';
  return Object.entries(object(value))
    .map(([field, inner]) => `${spaced(field)} ${written(inner)}`)
    .join(', ');
}

function labelOf(name: string): string {
  const text = LABELS[name] ?? spaced(name);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** learningRate as "learning rate" */
const spaced = (field: string): string => plainText(field.replace(/([A-Z])/g, ' $1').toLowerCase(), 60);
