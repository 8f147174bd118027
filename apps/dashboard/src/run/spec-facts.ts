/** A run spec as lines for people. The spec comes from the server as JSON; nothing about its shape is taken for granted. */
import { plainText } from '../text/plain-text.js';

type Json = Readonly<Record<string, unknown>>;
const object = (value: unknown): Json => (value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as Json) : {});

/** A zoo name, or how many layers a topology has. */
export function modelName(spec: unknown): string {
  const { model } = object(spec);
  if (typeof model === 'string') return plainText(model, 40);
  const topology = object(object(model)['topology']);
  const layers = object(topology['config'])['layers'];
  return Array.isArray(layers) ? `${layers.length} layers` : 'topology';
}

const LABELS: Readonly<Record<string, string>> = {
  model: 'Model',
  dataset: 'Dataset',
  augmentation: 'Augmentation',
  loss: 'Loss',
  metrics: 'Metrics',
  optimizer: 'Optimizer',
  globalBatch: 'Global batch',
  replicas: 'Replicas',
  dropRemainder: 'Drop remainder',
  strategy: 'Strategy',
  length: 'Length',
  seed: 'Seed',
  engine: 'Engine',
  stepDeadlineMs: 'Step deadline (ms)',
  checkpoint: 'Checkpoint',
  gradient: 'Gradient',
  restarts: 'Restarts',
};

/** Fields that count something are written as people say it: 5 epochs. */
const AMOUNTS = new Set(['epochs', 'rounds']);

/** One line per field of the spec, in its order; the name of the run is the title of the page already. */
export function specFacts(spec: unknown): readonly (readonly [string, string])[] {
  return Object.entries(object(spec))
    .filter(([name]) => name !== 'name')
    .map(([name, value]) => [LABELS[name] ?? plainText(name, 60), name === 'model' ? modelName(spec) : written(value)] as const);
}

function written(value: unknown): string {
  if (typeof value === 'string') return plainText(value, 200);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number') return String(value);
  if (Array.isArray(value)) return value.map(written).join(', ') || 'none';
  const { kind, name, ...rest } = object(value);
  const title = [kind, name].filter((part) => typeof part === 'string').map((part) => plainText(part, 60));
  const fields = Object.entries(rest).filter(([, field]) => field !== false);
  return [
    ...title,
    ...fields.map(([field, inner]) => (AMOUNTS.has(field) ? `${written(inner)} ${field}` : `${spaced(field)} ${written(inner)}`)),
  ].join(', ');
}

/** learningRate as "learning rate" */
const spaced = (field: string): string => plainText(field.replace(/([A-Z])/g, ' $1').toLowerCase(), 60);
