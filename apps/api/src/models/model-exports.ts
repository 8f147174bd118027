/** Trained models as archives: which weights, what the card says of them, and how many are made at once. */
import { createReadStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { Injectable } from '@nestjs/common';
import type { MeasuresRecord } from '@paceline/control-plane';
import { ExportError, exportModel, zip, type Bytes, type CardFacts, type ExportFormat, type TrainedModel } from '@paceline/models';
import { parseDatasetReference, type ModelDescription, type RunData, type RunSpec } from '@paceline/spec';
import { Database } from '../database/database.js';
import { Datasets } from '../datasets/datasets.js';
import { HELD_BYTES } from '../datasets/manifest-questions.js';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import { NotFound } from '../graphql/result.types.js';
import { Courses } from '../runs/course.js';
import { namedMeasures, resultOf, specOf } from '../runs/run-row.js';
import type { Run } from '../runs/run.types.js';
import { heldTurns } from '../turns.js';
import { openWorkFolder } from '../work-folder.js';
import { preprocessingOf, type PreprocessedRun } from './run-preprocessing.js';
import { WeightsOfRounds, type StoredWeights } from './stored-weights.js';

const RELEASE = '0.1.0';
/** Longer than an archive may be under way. */
const LEFT_AFTER_MS = 86_400_000;

export interface ModelArchive {
  readonly fileName: string;
  readonly stream: Bytes;
  /** To be called once the stream is sent or given up. */
  release(): void;
}

@Injectable()
export class ModelExports {
  /** Each reads one file from disk and sends it: more would only share the same disk. */
  private readonly turns = heldTurns(2, 8, 'exports', 5);

  constructor(
    private readonly database: Database,
    private readonly weights: WeightsOfRounds,
    private readonly courses: Courses,
    private readonly datasets: Datasets,
    private readonly settings: Settings,
  ) {}

  /** @throws Fault NOT_FOUND, INVALID_INPUT for a form that cannot hold the model, TOO_BUSY, TOO_LARGE */
  async open(run: Run, format: ExportFormat, round: number | undefined): Promise<ModelArchive> {
    const giveBack = this.turns.hold(run.row.teamId);
    let folder: string | undefined;
    const release = (): void => {
      giveBack();
      if (folder !== undefined) void rm(folder, { recursive: true, force: true }).catch(() => undefined); // the next one removes what is left
    };
    try {
      const openFolder = async (): Promise<string> => (folder = await openWorkFolder(this.settings, 'exports', LEFT_AFTER_MS));
      return Object.assign(this.archive(run, format, await this.model(run, round, openFolder)), { release });
    } catch (error) {
      release();
      throw error;
    }
  }

  private archive(run: Run, format: ExportFormat, model: TrainedModel): Omit<ModelArchive, 'release'> {
    try {
      const files = exportModel(model, format);
      return { fileName: `${fileNameOf(run.name)}-${run.id.slice(-8)}-${model.facts.round}-${format}.zip`, stream: zip(files) };
    } catch (error) {
      if (!(error instanceof ExportError)) throw error;
      const issues = error.field === undefined ? undefined : [{ path: error.field, message: error.message }];
      throw new Fault('INVALID_INPUT', error.message, undefined, issues);
    }
  }

  /**
   * All that is said of the model of a run, and its weights as a stream.
   * @param openFolder gives a folder for what is too large for memory, which is there as long as the model is used
   * @throws Fault NOT_FOUND, TOO_BUSY, TOO_LARGE
   */
  async model(run: Run, round: number | undefined, openFolder: () => Promise<string>): Promise<TrainedModel> {
    const {
      spec: stored,
      model,
      data,
      datasetVersion,
    } = await this.database.run.findUniqueOrThrow({
      where: { id: run.id },
      select: { spec: true, model: true, data: true, datasetVersion: { select: { id: true, manifestBytes: true } } },
    });
    const spec = specOf({ spec: stored });
    const runData = data as unknown as RunData;
    const description = model as unknown as ModelDescription;
    const found = await this.weights.find(run, description, round);
    if (found instanceof NotFound) throw new Fault('NOT_FOUND', found.message);
    const asked = { spec, data: runData, model: description };
    return {
      spec,
      format: runData.format,
      description,
      facts: await this.facts(run, spec, { data: runData, found, description }),
      preprocessing: await this.preprocessing(run.row.teamId, asked, datasetVersion, openFolder),
      weights: () => found.stream(),
      weightsSha256: found.sha256,
    };
  }

  /** What follows from a large manifest may be as large, and is read from a file. */
  private async preprocessing(
    teamId: string,
    asked: PreprocessedRun,
    version: { readonly id: string; readonly manifestBytes: bigint } | null,
    openFolder: () => Promise<string>,
  ): Promise<TrainedModel['preprocessing']> {
    const removed = (): TrainedModel['preprocessing'] => preprocessingOf(asked, undefined);
    if (!version) return removed();
    if (Number(version.manifestBytes) <= HELD_BYTES) return (await this.datasets.ask(teamId, version.id, 'plan', asked)) ?? removed();
    const file = path.join(await openFolder(), 'large-preprocessing.json');
    const prepared = await this.datasets.ask(teamId, version.id, 'preprocessing', Object.assign({ file }, asked));
    if (!prepared) return removed();
    return { outputs: prepared.outputs, json: () => createReadStream(prepared.file) };
  }

  private async facts(
    run: Run,
    spec: RunSpec,
    of: { data: RunData; found: StoredWeights; description: ModelDescription },
  ): Promise<CardFacts> {
    const { row } = run;
    const { data, found, description } = of;
    const result = resultOf(row);
    const { name, version } = parseDatasetReference(spec.dataset);
    const [dataset, course] = await Promise.all([this.database.dataset.findUnique({ where: { name } }), this.courses.of(run)]);
    return {
      name: run.name,
      run: {
        id: run.id,
        status: run.status,
        createdAt: run.createdAt.toISOString(),
        finishedAt: run.finishedAt?.toISOString() ?? null,
      },
      round: found.round,
      totalRounds: Number(row.totalRounds),
      trainedExamples: found.isResult ? (result?.trainedExamples ?? null) : null,
      dataset: { name, version: version ?? null, license: dataset?.license ?? null, source: dataset?.source ?? null },
      evaluation:
        found.isResult && result
          ? Object.assign({ examples: data.evalExamples, split: data.evaluateOn }, evaluationOf(result.values))
          : null,
      ...(course ? { validations: { metric: course.metric, better: course.better, best: course.best, last: course.last } } : {}),
      trainingLoss: found.trainingLoss,
      parameterCount: description.parameterCount,
      stateCount: description.stateCount,
      engine: spec.engine,
      paceline: RELEASE,
      spec,
    };
  }
}

const evaluationOf = (values: MeasuresRecord) => {
  const { loss, accuracy } = namedMeasures(values);
  return { loss, accuracy, values };
};

const fileNameOf = (name: string): string => name.replaceAll(/[^\w.-]+/g, '-').replace(/^[.-]+/, '') || 'run';
