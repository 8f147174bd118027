/**
 * What is asked about a manifest. Answers are small, whatever the manifest: a small one is read by the api itself, a large one in a process
 * (manifest-process.ts), by the same functions.
 */
import type { Preprocessing } from '@paceline/models';
import type { DatasetManifest } from '@paceline/spec';
import type { PreprocessedRun, PreparedFile, Scale } from '../models/run-preprocessing.js';
import type { DatasetSchema } from './dataset.types.js';
import { schemaOf } from './dataset-schema.js';
import { plannedPreview, type AnswerContext, type PreviewRequest, type ShownRows } from './shown-rows.js';

/** Manifests up to this size are held and parsed by the api itself. As objects one has up to five times as much. */
export const HELD_BYTES = 1 << 20;
/** Of those, what the api asks about itself: the headers of shards have two tensors for a column at most. */
export const HELD_COLUMNS = 2_000;
/** Headers of shards that are parsed on the loop of the api, and in a process. */
export const HELD_HEADER_BYTES = 2 << 20;
export const PROCESS_HEADER_BYTES = 64 << 20;

type Finish<T> = (context: AnswerContext) => T | Promise<T>;

interface Questions {
  schema: { asked: { readonly first: number; readonly offset: number }; answer: DatasetSchema };
  preview: { asked: PreviewRequest; answer: ShownRows };
  scales: { asked: PreprocessedRun; answer: Scale[] };
  /** May be as large as the manifest: for one that the api holds. */
  plan: { asked: PreprocessedRun; answer: Preprocessing };
  /** The same into a file. */
  preprocessing: { asked: PreprocessedRun & { readonly file: string }; answer: PreparedFile };
}
export type Question = keyof Questions;
export type Asked<Q extends Question> = Questions[Q]['asked'];
export type Answer<Q extends Question> = Questions[Q]['answer'];

const known =
  <T>(answer: T): Finish<T> =>
  () =>
    answer;

/** @returns what makes the answer, and keeps no more of the manifest than it needs */
export const ANSWERS: {
  readonly [Q in Question]: (manifest: DatasetManifest, asked: Asked<Q>) => Finish<Answer<Q>> | Promise<Finish<Answer<Q>>>;
} = {
  schema: (manifest, { first, offset }) => known(schemaOf(manifest, first, offset)),
  preview: (manifest, asked) => plannedPreview(manifest, asked),
  // Models bring their planning with them, which the other questions do without.
  scales: async (manifest, asked) => known((await import('../models/run-preprocessing.js')).scalesOf(asked, manifest)),
  plan: async (manifest, asked) => known((await import('../models/run-preprocessing.js')).preprocessingOf(asked, manifest)),
  preprocessing: async (manifest, asked) => known(await (await import('../models/run-preprocessing.js')).preparedFile(asked, manifest)),
};
