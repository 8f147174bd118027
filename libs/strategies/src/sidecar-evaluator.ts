/**
 * What `tf.keras.utils.SidecarEvaluator` is: a process beside a training, the task `evaluator` of TF_CONFIG, evaluates the weights of each backup that the training
 * writes, so that the processes that train do not stop for it.
 *
 *     train: fit with BackupAndRestore(folder) --backup.paceline--> evaluator: a newer backup -> set weights -> evaluate -> say it -> look again
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type * as tfc from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { applyWeights, backupFile, readOtherBackup } from './backup-file.js';
import { ArgumentError } from './errors.js';
import { LONGEST_MS } from './thread-strategies.js';

type Values = tfc.Tensor | tfc.Tensor[] | { readonly [name: string]: tfc.Tensor };

export interface SidecarOptions {
  /** Compiled, with the layers of the model that is trained; another process has built it. */
  readonly model: tfl.LayersModel;
  /** The folder of the training's BackupAndRestore. */
  readonly folder: string;
  /** What `model.evaluate` takes. */
  readonly data: { readonly xs: Values; readonly ys: Values };
  /** As in `model.evaluate`; 32 by default. */
  readonly batchSize?: number;
  /** Ends when the weights after so many epochs are evaluated: give `epochs` of the training. */
  readonly epochs?: number;
  /** Ends after so many evaluations. */
  readonly maxEvaluations?: number;
  /** Between two looks at the folder, in milliseconds; 1,000 by default. */
  readonly intervalMs?: number;
  /** Ends when no newer backup has come for so long, in milliseconds; 300,000 by default. */
  readonly deadlineMs?: number;
  /** Hears of each evaluation; the next one waits for what it returns. */
  readonly onEvaluation?: (evaluation: Evaluation) => unknown;
}

export interface Evaluation {
  /** Epochs that the weights were trained for. */
  readonly epoch: number;
  /** Loss and metrics, by the names that the model has for them. */
  readonly values: Readonly<Record<string, number>>;
}

/** Each with the largest number that it may be; undefined for what is no number. */
const OPTIONS: Readonly<Record<keyof SidecarOptions, number | undefined>> = {
  model: undefined,
  folder: undefined,
  data: undefined,
  onEvaluation: undefined,
  batchSize: Number.MAX_SAFE_INTEGER,
  epochs: Number.MAX_SAFE_INTEGER,
  maxEvaluations: Number.MAX_SAFE_INTEGER,
  intervalMs: LONGEST_MS,
  deadlineMs: LONGEST_MS,
};

const INTERVAL_MS = 1_000;
const DEADLINE_MS = 300_000;

export class SidecarEvaluator {
  private readonly file: string;
  private readonly over = new AbortController();

  /** @throws ArgumentError for an option that has no meaning */
  constructor(private readonly options: SidecarOptions) {
    const { model, folder, data, onEvaluation } = options;
    const unknown = Object.keys(options).find((name) => !Object.hasOwn(OPTIONS, name));
    if (unknown !== undefined)
      throw new ArgumentError(`SidecarEvaluator has no option ${unknown}; there are ${Object.keys(OPTIONS).join(', ')}`);
    if (typeof folder !== 'string' || folder === '')
      throw new ArgumentError('SidecarEvaluator: folder must be that of the BackupAndRestore of a training');
    if (!(model?.loss as unknown))
      throw new ArgumentError('SidecarEvaluator: model must be compiled: its loss and metrics are what is evaluated');
    if (!(data?.xs as unknown) || !(data.ys as unknown))
      throw new ArgumentError('SidecarEvaluator: data must have xs and ys, as model.evaluate takes them');
    if (onEvaluation !== undefined && typeof onEvaluation !== 'function')
      throw new ArgumentError('SidecarEvaluator: onEvaluation must be a function');
    for (const [name, most] of Object.entries(OPTIONS)) {
      const value = options[name as keyof SidecarOptions];
      if (most !== undefined && value !== undefined && !(Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most))
        throw new ArgumentError(`SidecarEvaluator: ${name} must be a whole number from 1 to ${most}, not ${String(value)}`);
    }
    this.file = backupFile(folder);
  }

  /**
   * Evaluates the newest backup whenever there is a newer one; a backup that is replaced before is left out.
   * @returns all evaluations, and why it has ended
   * @throws ArgumentError for the backup of another model, and for a file that is damaged
   */
  async start(): Promise<{
    readonly evaluations: readonly Evaluation[];
    readonly ended: 'epochs' | 'maxEvaluations' | 'stopped' | 'deadline';
  }> {
    const { model, epochs = Infinity, maxEvaluations = Infinity, intervalMs = INTERVAL_MS, deadlineMs = DEADLINE_MS } = this.options;
    const evaluations: Evaluation[] = [];
    let seen: string | undefined;
    let sinceMs = performance.now();
    while (!this.over.signal.aborted) {
      const found = await readOtherBackup(this.file, seen);
      if (found) {
        const { backup, version } = found;
        seen = version;
        applyWeights(backup, model, this.file);
        const evaluation = { epoch: backup.epoch, values: this.evaluated() };
        evaluations.push(evaluation);
        await this.options.onEvaluation?.(evaluation);
        sinceMs = performance.now();
        if (backup.epoch >= epochs) return { evaluations, ended: 'epochs' };
        if (evaluations.length >= maxEvaluations) return { evaluations, ended: 'maxEvaluations' };
      } else if (performance.now() - sinceMs >= deadlineMs) return { evaluations, ended: 'deadline' };
      await sleep(intervalMs, undefined, { signal: this.over.signal }).catch(() => undefined); // `stop` ends the sleep
    }
    return { evaluations, ended: 'stopped' };
  }

  /** Ends `start` after the evaluation that is under way. */
  stop(): void {
    this.over.abort();
  }

  private evaluated(): Readonly<Record<string, number>> {
    const { model, data, batchSize = 32 } = this.options;
    const scalars = [model.evaluate(data.xs as tfc.Tensor, data.ys as tfc.Tensor, { batchSize, verbose: 0 })].flat();
    // Of several outputs tf.js gives the sums of the first losses, then these losses and the metrics; its names begin with the last sum, the loss.
    const sums = Math.max(0, model.outputs.length - 1);
    const named = scalars.slice(sums);
    const values = Object.fromEntries(named.map((scalar, i) => [model.metricsNames[i] ?? `metric_${i}`, scalar.dataSync<'float32'>()[0]!]));
    for (const scalar of scalars) scalar.dispose();
    return values;
  }
}
