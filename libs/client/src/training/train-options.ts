/** The options of `train`; those that the service would not hear of are refused. */
import type { RunSpecInput } from '@paceline/spec';
import { TrainError } from './train-error.js';

export interface TrainOptions {
  /** 5 by default; 1 in tf.js. */
  readonly epochs?: number;
  /** Examples over all replicas in a step; 32 by default, as in tf.js. */
  readonly batchSize?: number;
  /** The last part of the rows, which the run is measured on; 0 by default: it is measured on what it was trained on. */
  readonly validationSplit?: number;
  readonly shuffle?: boolean;
  readonly replicas?: number;
  readonly name?: string;
  /** Other fields of the run spec; they come before what the model says. */
  readonly spec?: Omit<RunSpecInput, 'model' | 'dataset' | 'features' | 'weights'>;
  /** Ends uploads, and what waits for the run. A run that is made goes on: `training.cancel()` ends it. */
  readonly signal?: AbortSignal;
}

const KNOWN: Readonly<Record<keyof TrainOptions, true>> = {
  epochs: true,
  batchSize: true,
  validationSplit: true,
  shuffle: true,
  replicas: true,
  name: true,
  spec: true,
  signal: true,
};

/** Options of `model.fit` that a run has not, and what to do. */
const INSTEAD: Readonly<Record<string, string>> = {
  callbacks: 'a run calls none: follow `training.progress()`, and read what it ended with from `training.result()`',
  validationData: 'a run is measured on rows of the same data: give validationSplit, or a prepared dataset, which has its splits',
  classWeight: 'a run has weights of classes with a prepared dataset: give { dataset, features }, and set features.classWeights',
  sampleWeight: 'a run has weights of examples with a prepared dataset: give { dataset, features }, and set features.weightColumn',
  initialEpoch: 'a run begins with its first epoch: set epochs to those that are left',
  verbose: 'a run prints nothing here: leave it out, and follow `training.progress()`',
};

/** @throws TrainError TRAIN_OPTIONS */
export async function checkOptions(options: unknown): Promise<void> {
  const names = Object.keys(KNOWN);
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw new TrainError('TRAIN_OPTIONS', 'options', `give an object with ${names.join(', ')}`);
  const given = Object.entries(options).find(([key, value]) => value !== undefined && !names.includes(key));
  if (!given) return;
  const [key] = given;
  const { closest } = await import('@paceline/spec');
  const meant = closest(key, names);
  const why =
    meant === undefined ? `it is none of ${names.join(', ')}; other fields of the run spec belong in spec` : `did you mean ${meant}?`;
  throw new TrainError('TRAIN_OPTIONS', key, Object.hasOwn(INSTEAD, key) ? INSTEAD[key]! : why);
}
