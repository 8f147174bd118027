/**
 * What `tf.keras.callbacks.BackupAndRestore` is: after each epoch the weights, the state of the optimizer and the number of the epoch go to a file, and a
 * training that was interrupted goes on from there. tf.js decides at which epoch `fit` begins before it calls a callback, so restoring is a call of its own.
 */
import { mkdir, rm } from 'node:fs/promises';
import * as tfc from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { applyWeights, backupFile, readBackup, weightsByLayer, writeBackup, type Backup, type Head, type Kept } from './backup-file.js';
import { ArgumentError, UnsupportedError } from './errors.js';
import { checkKeys } from './known-options.js';
import { LocalUpdateStrategy } from './local-update.js';
import { PerReplica } from './replicas/per-replica.js';
import { isCatchingUpIn, localOf, strategyOf, type Strategy } from './strategy.js';

export interface BackupOptions {
  /** Keeps the backup of a training that has ended; otherwise it is deleted then, as Keras does, and the next one begins anew. */
  readonly keep?: boolean;
}

/** A float32 has every whole number below. */
const FLOAT_EXACT = 2 ** 24;

export class BackupAndRestore extends tfl.Callback {
  private user: tfl.LayersModel | undefined;
  private readonly file: string;

  /**
   * @param folder of this training; it is made where it is missing
   * @throws ArgumentError
   */
  constructor(
    private readonly folder: string,
    private readonly options: BackupOptions = {},
  ) {
    super();
    if (typeof folder !== 'string' || folder === '')
      throw new ArgumentError('BackupAndRestore takes a folder for the backup of one training');
    checkKeys('BackupAndRestore', options, ['keep']);
    if (typeof (options.keep ?? false) !== 'boolean')
      throw new ArgumentError(`BackupAndRestore: keep must be true or false, not ${String(options.keep)}`);
    this.file = backupFile(folder);
  }

  /**
   * Gives a compiled model what the backup has, if there is one. Over several processes all call it: the first one reads its file, and the others, which may
   * have none, learn the epoch from it.
   * @returns the `initialEpoch` for fit
   * @throws ArgumentError for the backup of another model, and for a file that is damaged; in every process, whoever has the file
   * @throws UnsupportedError for a strategy that keeps more than weights and optimizer state, and for an optimizer whose state tf.js does not give
   */
  async restore(model: tfl.LayersModel): Promise<number> {
    if (!(model.optimizer as tfc.Optimizer | undefined))
      throw new ArgumentError('restore takes a model that is compiled: its optimizer has a state');
    if (model.optimizer.getClassName() === 'Adamax')
      throw new UnsupportedError(
        'the optimizer adamax in a backup',
        'tf.js does not give its state: take another optimizer, such as adam, or train without BackupAndRestore',
      );
    const strategy = strategyOf(model);
    if (strategy) refuseMore(strategy);
    this.user = model;
    const optimizer = model.optimizer as unknown as { readonly iterations: number; iterations_: number };
    let epoch = 0;
    let failed: { readonly error: unknown } | undefined;
    // A process that was started again gets weights and slots from the others, whose file may be of an epoch since.
    const isPast = this.isPast();
    if (this.isFirst() && !isPast)
      try {
        const backup = await readBackup(this.file);
        if (backup) await apply(backup, model, this.file);
        epoch = backup?.epoch ?? 0;
      } catch (error) {
        failed = { error }; // the others wait for a word
      }
    const told = strategy ? toldByFirst(strategy, failed ? undefined : { epoch, steps: optimizer.iterations }) : { epoch, steps: 0 };
    if (failed) throw failed.error;
    if (!told) throw new ArgumentError('the first process cannot use its backup, and its own error says why: nothing was restored');
    // Weights and slots are taken over from the first process with the first step; of which step it is, all have to know before.
    if ((!this.isFirst() || isPast) && told.epoch > 0) optimizer.iterations_ = told.steps;
    return told.epoch;
  }

  override async onTrainBegin(): Promise<void> {
    if (!this.user)
      throw new ArgumentError('call `const initialEpoch = await backup.restore(model)` before fit, and give fit that initialEpoch');
    if (this.isFirst()) await mkdir(this.folder, { recursive: true });
  }

  override async onEpochEnd(epoch: number): Promise<void> {
    const model = this.user!;
    if (this.isPast()) return; // the others have written it
    // Every process reads: where each has a part of the optimizer's state, that is a call of all.
    const optimizer = await model.optimizer.getWeights();
    const own = model.getWeights();
    const tensorOf = new Map(model.weights.map((weight, i) => [weight, own[i]!]));
    const trained = trainedIn(model);
    const weights = weightsByLayer(model).map((weight) => ({
      name: weight.originalName,
      tensor: tensorOf.get(weight)!,
      isTrained: trained.has(weight),
    }));
    if (!this.isFirst()) return;
    const keptOf = ({ name, tensor }: { readonly name: string; readonly tensor: tfc.Tensor }): Kept => ({ name, shape: tensor.shape });
    const { iterations: steps } = model.optimizer as unknown as { readonly iterations: number };
    const head: Head = {
      epoch: epoch + 1,
      steps,
      weights: weights.map((each) => ({ ...keptOf(each), isTrained: each.isTrained })),
      optimizer: optimizer.map(keptOf),
    };
    const values = [...weights, ...optimizer].map(({ tensor }) => Float32Array.from(tensor.dataSync<'float32'>()));
    await mkdir(this.folder, { recursive: true }); // where the first process was lost, another one writes from then on
    await writeBackup(this.file, head, values);
  }

  override async onTrainEnd(): Promise<void> {
    if (this.options.keep !== true && this.isFirst()) await rm(this.file, { force: true });
  }

  /** The others are further than this process, which was started again. */
  private isPast(): boolean {
    const strategy = strategyOf(this.user!);
    return strategy !== undefined && isCatchingUpIn(strategy);
  }

  /** One process has the file: all have the same weights. */
  private isFirst(): boolean {
    const strategy = strategyOf(this.user!);
    return !strategy || localOf(strategy).process === 0;
  }
}

const trainedIn = (model: tfl.LayersModel): ReadonlySet<unknown> => new Set(model.trainableWeights);

async function apply(backup: Backup, model: tfl.LayersModel, file: string): Promise<void> {
  const { optimizer, weights, steps, values } = backup;
  const trained = trainedIn(model);
  const isOther = weightsByLayer(model).some((weight, i) => weights[i] && weights[i].isTrained !== trained.has(weight));
  if (isOther && weights.length === model.weights.length)
    throw new ArgumentError(
      `the backup ${file} was written while other layers were trained, and has the optimizer's state of those: freeze the same layers as then, or delete it to begin anew`,
    );
  applyWeights(backup, model, file);
  const slots = optimizer.map(({ name, shape }, i) => ({ name, tensor: tfc.tensor(values[weights.length + i]!, [...shape], 'float32') }));
  await model.optimizer.setWeights(slots);
  (model.optimizer as unknown as { iterations_: number }).iterations_ = steps;
}

/** @throws UnsupportedError */
function refuseMore(strategy: Strategy): void {
  if (!(strategy instanceof LocalUpdateStrategy)) return;
  const { kept } = strategy;
  if (kept !== undefined)
    throw new UnsupportedError(
      'BackupAndRestore of this LocalUpdateStrategy',
      `the strategy keeps ${kept}, which a backup does not have, so that a training would go on differently: use outer: 'average' without fragments, delay and innerState: 'keep', or save the model and begin anew with its weights`,
    );
}

interface Told {
  readonly epoch: number;
  readonly steps: number;
}

/** All processes call it. @param own of the first process; undefined where it failed @returns what the first process has */
function toldByFirst(strategy: Strategy, own: Told | undefined): Told | undefined {
  const { process, processes, from, to } = localOf(strategy);
  if (processes === 1) return own;
  const parts = own ? [0, ...partsOf(own.epoch), ...partsOf(own.steps)] : [1, 0, 0, 0, 0];
  // The sum of what the first replica says, and of zeros.
  const said = Array.from({ length: to - from }, (_, replica) =>
    process === 0 && replica === 0 ? Float32Array.from(parts) : new Float32Array(parts.length),
  );
  const sum = strategy.reduce('sum', new PerReplica(said)) as tfc.Tensor;
  const [failed, ...all] = sum.dataSync();
  sum.dispose();
  const [epochHigh, epochLow, stepsHigh, stepsLow] = all as [number, number, number, number];
  return failed === 0 ? { epoch: epochHigh * FLOAT_EXACT + epochLow, steps: stepsHigh * FLOAT_EXACT + stepsLow } : undefined;
}

/** Two numbers, each exact as float32. */
const partsOf = (value: number): [high: number, low: number] => [Math.floor(value / FLOAT_EXACT), value % FLOAT_EXACT];
