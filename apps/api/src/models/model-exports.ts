/** Trained models as archives: which weights, what the card says of them, and how many are made at once. */
import { Injectable } from '@nestjs/common';
import type { MeasuresRecord } from '@paceline/control-plane';
import { BUILT_IN_TABLES, builtInTable, datasetInfo, resolveFeatures } from '@paceline/data';
import {
  builtInPreprocessing,
  ExportError,
  exportModel,
  planPreprocessing,
  zip,
  type Bytes,
  type CardFacts,
  type ExportFormat,
  type Preprocessing,
  type TrainedModel,
} from '@paceline/models';
import { parseDatasetReference, type DatasetManifest, type ModelDescription, type RunData, type RunSpec } from '@paceline/spec';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import { NotFound } from '../graphql/result.types.js';
import { Courses } from '../runs/course.js';
import { namedMeasures, resultOf, specOf } from '../runs/run-row.js';
import type { Run } from '../runs/run.types.js';
import { heldTurns } from '../turns.js';
import { WeightsOfRounds, type StoredWeights } from './stored-weights.js';

const RELEASE = '0.1.0';

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
  ) {}

  /** @throws Fault NOT_FOUND, INVALID_INPUT for a form that cannot hold the model, TOO_BUSY */
  async open(run: Run, format: ExportFormat, round: number | undefined): Promise<ModelArchive> {
    const release = this.turns.hold(run.row.teamId);
    try {
      return Object.assign(await this.archive(run, format, round), { release });
    } catch (error) {
      release();
      throw error;
    }
  }

  private async archive(run: Run, format: ExportFormat, round: number | undefined): Promise<Omit<ModelArchive, 'release'>> {
    const model = await this.model(run, round);
    try {
      const files = exportModel(model, format);
      return { fileName: `${fileNameOf(run.name)}-${run.id.slice(-8)}-${model.facts.round}-${format}.zip`, stream: zip(files) };
    } catch (error) {
      if (!(error instanceof ExportError)) throw error;
      const issues = error.field === undefined ? undefined : [{ path: error.field, message: error.message }];
      throw new Fault('INVALID_INPUT', error.message, undefined, issues);
    }
  }

  /** All that is said of the model of a run, and its weights as a stream. @throws Fault NOT_FOUND */
  async model(run: Run, round?: number): Promise<TrainedModel> {
    const {
      spec: stored,
      model,
      data,
      datasetVersion,
    } = await this.database.run.findUniqueOrThrow({
      where: { id: run.id },
      select: { spec: true, model: true, data: true, datasetVersion: { select: { manifest: true } } },
    });
    const spec = specOf({ spec: stored });
    const runData = data as unknown as RunData;
    const description = model as unknown as ModelDescription;
    const found = await this.weights.find(run, description, round);
    if (found instanceof NotFound) throw new Fault('NOT_FOUND', found.message);
    return {
      spec,
      format: runData.format,
      description,
      facts: await this.facts(run, spec, { data: runData, found, description }),
      preprocessing: preprocessingOf(spec, runData, description, datasetVersion?.manifest as unknown as DatasetManifest | undefined),
      weights: () => found.stream(),
      weightsSha256: found.sha256,
    };
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

/** The plan is a function of manifest and pinned features, as it is for the workers. @param manifest of the team's dataset, unless it was removed */
export function preprocessingOf(
  spec: RunSpec,
  data: RunData,
  model: ModelDescription,
  manifest: DatasetManifest | undefined,
): Preprocessing {
  const { source, format } = data;
  if (source.kind === 'built-in' && !BUILT_IN_TABLES.includes(source.name))
    return builtInPreprocessing(spec, datasetInfo(source.name), model);
  const columns = source.kind === 'built-in' ? builtInTable(source.name).manifest : manifest;
  const resolved = columns && resolveFeatures(columns, spec.features);
  return planPreprocessing(spec, format, model, resolved?.ok ? resolved.plan : undefined);
}

const fileNameOf = (name: string): string => name.replaceAll(/[^\w.-]+/g, '-').replace(/^[.-]+/, '') || 'run';
