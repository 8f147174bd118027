/** What is done to the rows of a run and what its numbers mean, from the manifest of its dataset. */
import { writeFile } from 'node:fs/promises';
import { BUILT_IN_TABLES, builtInTable, datasetInfo, resolveFeatures } from '@paceline/data';
import { builtInPreprocessing, describedOutputs, planPreprocessing, type Preprocessing } from '@paceline/models';
import type { DatasetManifest, ModelDescription, RunData, RunSpec } from '@paceline/spec';

export interface PreprocessedRun {
  readonly spec: RunSpec;
  readonly data: RunData;
  readonly model: ModelDescription;
}

/** A target that is scaled for the training. */
export interface Scale {
  readonly output: string;
  readonly target: string;
  readonly factors: number[];
}

/** Where `preprocessing.json` lies, and what is said of its outputs elsewhere. */
export interface PreparedFile {
  readonly file: string;
  readonly outputs: readonly object[];
}

/** The plan is a function of manifest and pinned features, as it is for the workers. @param manifest of the team's dataset, unless it was removed */
export function preprocessingOf({ spec, data, model }: PreprocessedRun, manifest: DatasetManifest | undefined): Preprocessing {
  const { source, format } = data;
  if (source.kind === 'built-in' && !BUILT_IN_TABLES.includes(source.name))
    return builtInPreprocessing(spec, datasetInfo(source.name), model);
  const columns = source.kind === 'built-in' ? builtInTable(source.name).manifest : manifest;
  const resolved = columns && resolveFeatures(columns, spec.features);
  return planPreprocessing(spec, format, model, resolved?.ok ? resolved.plan : undefined);
}

export const scalesOf = (run: PreprocessedRun, manifest: DatasetManifest | undefined): Scale[] =>
  preprocessingOf(run, manifest).outputs.flatMap((output, i) =>
    output.kind === 'values'
      ? [{ output: run.model.outputs[i]!.name, target: output.name, factors: [...new Set(output.scale?.divide ?? [1])] }]
      : [],
  );

export async function preparedFile(asked: PreprocessedRun & { readonly file: string }, manifest: DatasetManifest): Promise<PreparedFile> {
  const preprocessing = preprocessingOf(asked, manifest);
  await writeFile(asked.file, `${JSON.stringify(preprocessing, null, 2)}\n`, { flag: 'wx', mode: 0o600 });
  return { file: asked.file, outputs: describedOutputs(preprocessing) };
}
