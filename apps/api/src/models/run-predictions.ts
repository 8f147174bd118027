/**
 * What the result of a run says of its evaluation split: computed when somebody looks first, in a process of its own, and kept in the object
 * store under the weights and the data that it follows from. Who looks later, or at another api, reads it there.
 */
import { rm } from 'node:fs/promises';
import { createWriteStream } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import { exportModel, type OutputReport, type PredictionsReport } from '@paceline/models';
import type { Logger } from '@paceline/runtime';
import type { RunData } from '@paceline/spec';
import { canonicalJson, predictionsKey, predictionsPrefix, sha256Of } from '@paceline/storage';
import { WorkFailedError } from '../child-process.js';
import { Database } from '../database/database.js';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import { LOGGER } from '../logger.js';
import { resultOf } from '../runs/run-row.js';
import type { Run } from '../runs/run.types.js';
import { waitingTurns } from '../turns.js';
import { openWorkFolder } from '../work-folder.js';
import { CheckpointStore, NO_CHECKPOINT_STORE } from './checkpoint-store.js';
import { ModelExports } from './model-exports.js';
import { predictInProcess } from './predictions-child.js';
import { PredictedClasses, PredictedValues, RunPredictionsType, UnpicturedOutput } from './predictions.types.js';

/** Other contents of the document, or another way to them. */
const DOCUMENT = 1;
const TURNS = { atOnce: 2, waiting: 100, waitingOfTeam: 10, waitMs: 900_000 };
const PARAMETERS_MAX = 32_000_000;
const REPORT_MAX_BYTES = 16 << 20;
/** Why it was not possible is remembered for so long, of so many runs. */
const FAILED_FOR_MS = 60_000;
const FAILURES_MAX = 1000;
/** Longer than they may take. */
const LEFT_AFTER_MS = 3_600_000;

@Injectable()
export class RunPredictions implements OnModuleDestroy {
  private readonly turns = waitingTurns(TURNS, 'Predictions of other runs are being computed.');
  private readonly stopping = new AbortController();
  private readonly computing = new Map<string, Promise<void>>();
  private readonly failures = new Map<string, { readonly reason: string; readonly untilMs: number }>();

  constructor(
    private readonly database: Database,
    private readonly exports: ModelExports,
    private readonly checkpoints: CheckpointStore,
    private readonly settings: Settings,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  async onModuleDestroy(): Promise<void> {
    this.stopping.abort();
    await Promise.all(this.computing.values());
  }

  /** Begins to compute them where they are not there yet. @returns null of a run that has not SUCCEEDED @throws Fault SERVICE_UNAVAILABLE */
  async of(run: Run): Promise<RunPredictionsType | null> {
    const result = resultOf(run.row);
    if (run.status !== 'SUCCEEDED' || !result) return null;
    const { data: stored, datasetVersionId } = await this.database.run.findUniqueOrThrow({
      where: { id: run.id },
      select: { data: true, datasetVersionId: true },
    });
    const data = stored as unknown as RunData;
    const refusal = this.refusal(run, data, datasetVersionId);
    if (refusal !== undefined) return unavailable(refusal);
    const { rounds, weightsSha256 } = result;
    const key = predictionsKey(run.id, sha256Of(canonicalJson({ document: DOCUMENT, rounds, weightsSha256, source: data.source })));
    const report = await this.stored(key);
    if (report) return ready(report);
    const failure = this.failures.get(key);
    if (failure && failure.untilMs > Date.now()) return unavailable(failure.reason);
    this.begin(run, data, key);
    return Object.assign(new RunPredictionsType(), { state: 'COMPUTING' as const });
  }

  /** What is kept of runs whose data was removed shows rows of it. In the background, as it may be many objects. */
  forget(runIds: readonly string[]): void {
    if (runIds.length === 0 || !this.checkpoints.isThere) return;
    const { store } = this.checkpoints;
    const work = (async () => {
      for (const id of runIds) {
        if (this.stopping.signal.aborted) return;
        await store.remove((await store.list(predictionsPrefix(id))).map(({ key }) => key));
      }
    })().catch((err: Error) => this.log.warn({ err: err.message }, 'predictions of a removed dataset could not be removed'));
    const key = `forget ${runIds[0]}`;
    this.computing.set(
      key,
      work.finally(() => this.computing.delete(key)),
    );
  }

  private async datasetVersionOf({ id }: Run): Promise<string | null> {
    return (await this.database.run.findUniqueOrThrow({ where: { id }, select: { datasetVersionId: true } })).datasetVersionId;
  }

  private refusal(run: Run, { source }: RunData, datasetVersionId: string | null): string | undefined {
    if (!this.checkpoints.isThere) return `The weights are not here: ${NO_CHECKPOINT_STORE}.`;
    if (source.kind === 'prepared' && datasetVersionId === null) return 'The dataset of the run was removed.';
    if (source.kind === 'prepared' && this.settings.dataStore === undefined) return 'This api has no data store (PACELINE_DATA_STORE).';
    if (run.parameterCount > PARAMETERS_MAX)
      return `The model has ${run.parameterCount} parameters, and predictions of at most ${PARAMETERS_MAX} are computed here. On your machine: paceline evaluate.`;
    return undefined;
  }

  /** @throws Fault SERVICE_UNAVAILABLE */
  private async stored(key: string): Promise<PredictionsReport | undefined> {
    try {
      const bytes = await this.checkpoints.use((store) => store.read(key, 0, REPORT_MAX_BYTES));
      const report = JSON.parse(Buffer.from(bytes).toString('utf8')) as PredictionsReport;
      return report.format === 'paceline.predictions' ? report : undefined;
    } catch (error) {
      // What was damaged is made anew.
      if (error instanceof SyntaxError || (error instanceof Fault && error.code === 'NOT_FOUND')) return undefined;
      throw error;
    }
  }

  /** Several who look at once wait for one computation. */
  private begin(run: Run, data: RunData, key: string): void {
    if (this.computing.has(key) || this.stopping.signal.aborted) return;
    const work = this.turns
      .run(run.row.teamId, () => this.compute(run, data, key))
      .catch((error: unknown) => this.failed(key, run, error))
      .finally(() => this.computing.delete(key));
    this.computing.set(key, work);
  }

  private failed(key: string, run: Run, error: unknown): void {
    // There was no place: whoever looks again asks for one again.
    if (this.stopping.signal.aborted || (error instanceof Fault && error.code === 'TOO_BUSY')) return;
    const isSaid =
      error instanceof Fault || (error instanceof WorkFailedError && error.isOfUser) || (error as Error).name === 'ExportError';
    if (!isSaid) this.log.error({ err: error as Error, run: run.id }, 'predictions failed');
    const reason = isSaid ? (error as Error).message : 'A fault in Paceline; the log of the api says more.';
    if (this.failures.size >= FAILURES_MAX) this.failures.clear();
    this.failures.set(key, { reason: reason.slice(0, 1000), untilMs: Date.now() + FAILED_FOR_MS });
  }

  private async compute(run: Run, data: RunData, key: string): Promise<void> {
    const { signal } = this.stopping;
    const folder = await openWorkFolder(this.settings, 'predictions', LEFT_AFTER_MS);
    try {
      const model = await this.exports.model(run, undefined, () => Promise.resolve(folder));
      for await (const file of exportModel(model, 'safetensors'))
        await pipeline(Readable.from(file.body), createWriteStream(path.join(folder, file.path), { flags: 'wx', mode: 0o600 }), { signal });
      const report = await predictInProcess({ folder, spec: model.spec, data, dataStore: this.settings.dataStore }, signal);
      if (report.length > REPORT_MAX_BYTES) throw new Error(`the predictions have ${report.length} characters`);
      const { store } = this.checkpoints;
      const before = await store.list(predictionsPrefix(run.id));
      await store.put(key, [Buffer.from(report)]);
      // Those of a result that the run had before it was extended.
      await store.remove(before.map((object) => object.key).filter((other) => other !== key));
      // Its dataset was removed meanwhile, and `forget` may have looked before they were there.
      if (data.source.kind === 'prepared' && (await this.datasetVersionOf(run)) === null) await store.remove([key]);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
}

const unavailable = (reason: string): RunPredictionsType =>
  Object.assign(new RunPredictionsType(), { state: 'UNAVAILABLE' as const, reason });

function ready({ examples, measured, split, outputs }: PredictionsReport): RunPredictionsType {
  return Object.assign(new RunPredictionsType(), { state: 'READY' as const, examples, measured, split, outputs: outputs.map(typed) });
}

/** As the members of the GraphQL union are told apart. */
function typed(report: OutputReport): PredictedClasses | PredictedValues | UnpicturedOutput {
  switch (report.kind) {
    case 'classes':
      return Object.assign(new PredictedClasses(), report);
    case 'values':
      return Object.assign(new PredictedValues(), report);
    case 'none':
      return Object.assign(new UnpicturedOutput(), report);
  }
}
