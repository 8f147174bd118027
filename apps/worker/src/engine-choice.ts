/**
 * Which engine a worker computes a run with.
 *
 *     engine: wasm, tensorflow, webgpu …   that one; if it is missing, the compute thread refuses to start and says what to do
 *     engine: auto                         the fastest here for this model, wasm-relaxed excluded; once the run is pinned, the pinned one
 *     engine: mixed                        the fastest here, whatever other workers use
 *
 * Speed is measured per engine, in a process of its own, on the run's first rows, once per machine, model, dataset and batch. The result is kept in the
 * user's cache folder. Several workers of one machine that start together wait for the first one's result.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunRowsSettings } from '@paceline/data';
import type { EngineDevice } from '@paceline/engine';
import { findAdapterInProcess, runTrialInProcess, type TrialRequest, type TrialResult, type TrialRows } from '@paceline/engine/planning';
import { fusesMultiplyAdd } from '@paceline/kernels';
import type { EngineRecord, StepTaskJob } from '@paceline/control-plane';
import { lockFile, type LockResult, userDirectories, webgpuPackage, type Logger } from '@paceline/runtime';
import { isThreaded, type BackendName } from '@paceline/spec';
import { tensorflowEngines, type TensorflowEngine } from '@paceline/tensorflow-addon';
import type { EngineChoice } from './compute-protocol.js';
import { rowsInThread } from './trial-rows.js';

export interface MeasuredChoice extends EngineChoice {
  /** Known when it was measured. */
  readonly fingerprint?: string;
  readonly examplesPerSecond?: number;
}

type MeasuredJob = Pick<StepTaskJob, 'spec' | 'model' | 'data'>;

export interface ChooserOptions {
  readonly log: Pick<Logger, 'info' | 'warn'>;
  /** Where results are kept. */
  readonly folder?: string;
  readonly tensorflow?: () => readonly TensorflowEngine[];
  readonly fusesMultiplyAdd?: () => boolean;
  /** Folder of the npm package. */
  readonly webgpu?: () => string | undefined;
  readonly adapter?: (webgpuPackage: string) => Promise<EngineDevice>;
  readonly trial?: (request: TrialRequest, deadlineMs: number) => Promise<TrialResult>;
  readonly now?: () => number;
  readonly rows?: (job: MeasuredJob) => Promise<TrialRows>;
  /** Where prepared datasets lie. */
  readonly rowsSettings?: RunRowsSettings;
}

const MEASURE_MS = 700;
/** A seat has to be taken within 30 s. The search for a GPU, the wait for another worker's result and all trials together end before that. */
const CHOICE_DEADLINE_MS = 24_000;
const TRIAL_DEADLINE_MS = 7_000;
/** No trial begins with less time left than this. */
const LEAST_TRIAL_MS = 2_000;
const ADAPTER_DEADLINE_MS = 5_000;
/** After this, made-up rows are used, so that a slow store leaves time for the trials. */
const ROWS_DEADLINE_MS = 6_000;
const KEPT_RESULTS = 200;
const LOOK_EVERY_MS = 30_000;
/** An engine that failed is not tried again for this long, because every seat would wait for the trial. */
const BROKEN_FOR_MS = 600_000;

const MEASURED = ['wasm', 'wasm-relaxed', 'tensorflow', 'webgpu'] as const;
/** The GPU's driver compiles its kernels, so it is chosen automatically only if its gradient equals that of wasm. */
const CHECKED: readonly BackendName[] = ['webgpu'];
/** What several compute threads of a process may have: native code is used from one. */
const IN_SEVERAL_THREADS: readonly BackendName[] = ['wasm', 'wasm-relaxed'];
type Result = Pick<TrialResult, 'fingerprint' | 'examples' | 'fastestMs'> & { readonly backend: (typeof MEASURED)[number] };

export class EngineUnfitError extends Error {
  override readonly name = 'EngineUnfitError';
  readonly code = 'ENGINE_UNAVAILABLE';
}

export class EngineChooser {
  private measured: readonly Result[] = [];
  private available: readonly string[] = [];
  private lookAgainAt = 0;
  private warned = false;
  private saidOld = false;
  /** The device for WebGPU; undefined while it is unknown, or if there is none. */
  private gpu: EngineDevice | undefined;
  private lookingForGpu: Promise<void> | undefined;
  /** When an engine that did not work may be tried again. */
  private readonly brokenUntil = new Map<string, number>();
  private readonly folder: string;
  private readonly webgpu: () => string | undefined;
  private readonly tensorflow: () => readonly TensorflowEngine[];
  private readonly fuses: () => boolean;
  private readonly trial: NonNullable<ChooserOptions['trial']>;
  private readonly now: () => number;

  constructor(private readonly options: ChooserOptions) {
    this.folder = options.folder ?? join(userDirectories().cache, 'engine-trials');
    this.tensorflow = options.tensorflow ?? (() => tensorflowEngines());
    this.webgpu = options.webgpu ?? (() => webgpuPackage());
    this.fuses = options.fusesMultiplyAdd ?? fusesMultiplyAdd;
    this.trial = options.trial ?? ((request, deadlineMs) => runTrialInProcess(request, process.env, deadlineMs));
    this.now = options.now ?? (() => performance.now());
  }

  /** The engines of this worker with their speed in the last run that was measured, for its heartbeat. */
  record(chosen: string | null): EngineRecord[] {
    const now = performance.now();
    // Asked for every second: the disk is looked at less often.
    if (now >= this.lookAgainAt) {
      this.lookAgainAt = now + LOOK_EVERY_MS;
      const [wasm, ...others] = this.enginesHere();
      this.available = [wasm!, 'cpu', ...others];
    }
    // A run may name it before it has been looked for, and on a driver that is not offered.
    const isOnWebgpu = chosen?.startsWith('tfjs-webgpu ') === true && !this.available.includes('webgpu');
    return [...this.available, ...(isOnWebgpu ? ['webgpu'] : [])].map((name) => {
      const result = this.measured.find(({ backend }) => backend === name);
      const examplesPerSecond = result ? Math.round(speedOf(result) * 10) / 10 : null;
      return { name, fingerprint: result?.fingerprint ?? null, examplesPerSecond, isChosen: chosen?.startsWith(`tfjs-${name} `) ?? false };
    });
  }

  /**
   * The engines to try for this seat, in order: the next one when the run turns out to be pinned to another.
   * @throws EngineUnfitError when the run is pinned to an engine that is not here
   */
  async choose(job: MeasuredJob & Pick<StepTaskJob, 'fingerprint'>): Promise<MeasuredChoice[]> {
    const { engine } = job.spec;
    if (engine !== 'auto' && engine !== 'mixed') return [{ backend: engine, ...this.packageOf(engine) }];
    this.measured = await this.measure(job);
    const mayServe = (backend: BackendName): boolean => !isThreaded(job.spec) || IN_SEVERAL_THREADS.includes(backend);
    const choices = this.measured
      .filter(({ backend }) => mayServe(backend))
      .sort((a, b) => speedOf(b) - speedOf(a))
      .map((result): MeasuredChoice => {
        const { backend, fingerprint } = result;
        return { backend, fingerprint, examplesPerSecond: speedOf(result), ...this.packageOf(backend) };
      });
    if (!choices.some(({ backend }) => backend !== 'wasm-relaxed')) return [{ backend: 'wasm' }]; // it is told by the compute thread what does not work
    if (engine === 'mixed') return choices;
    // Not every processor has it: a run that is pinned to it could not go on elsewhere. Who wants it names it.
    if (!job.fingerprint) return choices.filter(({ backend }) => backend !== 'wasm-relaxed');
    const pinned = choices.filter(({ fingerprint }) => fingerprint === job.fingerprint);
    if (pinned.length > 0) return pinned;
    throw new EngineUnfitError(
      `the run is pinned to ${job.fingerprint}; this worker has ${choices.map(({ fingerprint }) => fingerprint).join(' and ')}`,
    );
  }

  /** Worth measuring; the first one is everywhere. */
  private enginesHere(): readonly (typeof MEASURED)[number][] {
    const isHere = { wasm: true, 'wasm-relaxed': this.fuses(), tensorflow: this.tensorflow().length > 0, webgpu: this.gpu !== undefined };
    return MEASURED.filter((name) => isHere[name] && (this.brokenUntil.get(name) ?? 0) <= this.now());
  }

  private packageOf(backend: BackendName): Pick<EngineChoice, 'tensorflowPackage' | 'webgpuPackage'> {
    if (backend === 'tensorflow') return { tensorflowPackage: this.tensorflowHere()?.packageDir };
    return backend === 'webgpu' ? { webgpuPackage: this.webgpu() } : {};
  }

  private tensorflowHere(): TensorflowEngine | undefined {
    const [engine] = this.tensorflow();
    if (engine?.isCurrent === false && !this.saidOld)
      this.options.log.warn(
        { engine: engine.name },
        'an older release built TensorFlow: `paceline engine install tensorflow` builds it anew, faster',
      );
    this.saidOld ||= engine?.isCurrent === false;
    return engine;
  }

  /** Before the first measurement, and again some time after it failed: without an adapter, or with a driver that computes on the processor, WebGPU is not measured. */
  private lookForGpu(): Promise<void> {
    const folder = this.webgpu();
    if (folder === undefined || (this.brokenUntil.get('webgpu') ?? 0) > this.now()) return Promise.resolve();
    const look = this.options.adapter ?? ((webgpuPackage) => findAdapterInProcess({ webgpuPackage }, process.env, ADAPTER_DEADLINE_MS));
    this.lookingForGpu ??= look(folder).then(
      (device) => {
        if (device.type === 'GPU') this.gpu = device;
        else
          this.options.log.info({ device: device.name }, 'webgpu computes on the processor here, and is taken only by runs that name it');
      },
      (error: unknown) => {
        this.options.log.info({ reason: (error as Error).message }, 'webgpu is not available here');
        this.brokenUntil.set('webgpu', this.now() + BROKEN_FOR_MS);
        this.lookingForGpu = undefined;
      },
    );
    return this.lookingForGpu;
  }

  private async measure(job: MeasuredJob): Promise<readonly Result[]> {
    const until = this.now() + CHOICE_DEADLINE_MS;
    await this.lookForGpu();
    const here = this.enginesHere();
    const key = keyOf(job, here.includes('tensorflow') ? this.tensorflow()[0] : undefined, here.includes('webgpu') ? this.gpu : undefined);
    const file = join(this.folder, `${key}.json`);
    for (;;) {
      const known = readResults(file);
      if (known) return known;
      const lock = this.lock(`${file}.lock`);
      if (!lock) return this.measureNow(job, until);
      if ('release' in lock) {
        try {
          return readResults(file) ?? (await this.measureNow(job, until, file));
        } finally {
          lock.release();
        }
      }
      if (this.now() > until) return []; // what was measured last was another model
      await sleep(200);
    }
  }

  /** Undefined if the dataset cannot be read: made-up rows do for a trial, and the compute thread will say what is wrong. */
  private async rowsFor(job: MeasuredJob): Promise<TrialRows | undefined> {
    try {
      return await (this.options.rows?.(job) ?? rowsInThread(job, this.options.rowsSettings ?? {}, ROWS_DEADLINE_MS));
    } catch (error) {
      this.options.log.warn({ err: error as Error }, 'engines are measured with made-up rows');
      return undefined;
    }
  }

  /** Undefined where the folder cannot be written (a read-only container): then each worker measures for itself, and keeps nothing. */
  private lock(file: string): LockResult<object> | undefined {
    try {
      return lockFile(file);
    } catch (error) {
      if (!this.warned) this.options.log.warn({ err: error as Error, folder: this.folder }, 'what is measured cannot be kept');
      this.warned = true;
      return undefined;
    }
  }

  private async measureNow(job: MeasuredJob, until: number, file?: string): Promise<Result[]> {
    const results: Result[] = [];
    const here = this.enginesHere();
    const rows = await this.rowsFor(job);
    const { spec } = job;
    const { format } = job.data;
    for (const backend of here) {
      const deadlineMs = Math.min(TRIAL_DEADLINE_MS, until - this.now());
      if (deadlineMs < LEAST_TRIAL_MS) {
        this.options.log.warn({ backend }, 'there is no time left to measure an engine, and it is left out');
        continue;
      }
      const request = { spec, format, backend, ...this.packageOf(backend), rows, check: CHECKED.includes(backend), measureMs: MEASURE_MS };
      try {
        const { fingerprint, examples, msPerStep, fastestMs } = await this.trial(request, deadlineMs);
        results.push({ backend, fingerprint, examples, fastestMs });
        this.options.log.info({ backend, fingerprint, examples, msPerStep }, 'engine measured');
      } catch (error) {
        this.options.log.warn({ backend, err: error as Error }, 'an engine does not work here and is left out');
        if (backend !== 'wasm') this.brokenUntil.set(backend, this.now() + BROKEN_FOR_MS);
      }
    }
    // A trial that fails may work the next time, and made-up rows say too little: only what is complete is kept.
    if (file && rows && results.length === here.length) keep(file, results);
    return results;
  }
}

const speedOf = ({ examples, fastestMs }: Result): number => (examples / fastestMs) * 1000;

/** Everything that the speed depends on: model, step, engines, Node and processor. */
function keyOf({ spec, data }: MeasuredJob, tensorflow: TensorflowEngine | undefined, gpu: EngineDevice | undefined): string {
  const step = [
    spec.model ?? null,
    spec.loss ?? null,
    spec.globalBatch,
    spec.replicas,
    spec.strategy.accumulate,
    spec.losses ?? null,
    data.source,
    data.format,
    spec.augmentation ?? null,
  ];
  const machine = [process.version, cpus()[0]?.model ?? '', cpus().length, process.env['CUDA_VISIBLE_DEVICES'] ?? ''];
  const engine = tensorflow ? [tensorflow.name, tensorflow.packageDir, statSync(tensorflow.packageDir).mtimeMs] : [];
  return createHash('sha256')
    .update(JSON.stringify([step, machine, engine, ...(gpu ? [gpu.name] : []), RESULT_REVISION]))
    .digest('hex')
    .slice(0, 32);
}

/** Raised when the engines of this release are faster or slower than before. */
const RESULT_REVISION = 7;

const isResult = ({ backend, fingerprint, examples, fastestMs }: Result): boolean =>
  MEASURED.includes(backend) && typeof fingerprint === 'string' && examples > 0 && fastestMs > 0;

function readResults(file: string): Result[] | undefined {
  try {
    const results = JSON.parse(readFileSync(file, 'utf8')) as Result[];
    return Array.isArray(results) && results.every(isResult) ? results : undefined;
  } catch {
    return undefined; // not there, or of another release
  }
}

function keep(file: string, results: readonly Result[]): void {
  const folder = join(file, '..');
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${file}.${process.pid}`, JSON.stringify(results));
  renameSync(`${file}.${process.pid}`, file);
  const all = readdirSync(folder).filter((name) => name.endsWith('.json'));
  if (all.length <= KEPT_RESULTS) return;
  const oldest = all.map((name) => ({ name, at: statSync(join(folder, name)).mtimeMs })).sort((a, b) => a.at - b.at);
  for (const { name } of oldest.slice(0, all.length - KEPT_RESULTS)) rmSync(join(folder, name), { force: true });
}
