import type { planModel } from '@paceline/engine/planning';
import type { LayoutVariable } from '@paceline/learning';
import type { ExportFile } from './archive.js';
import type { StreamCutter } from './byte-stream.js';

/** What the files of an export are written from. */
export interface ExportParts {
  readonly name: string;
  readonly plan: ReturnType<typeof planModel>['plan'];
  readonly topology: unknown;
  readonly variables: readonly LayoutVariable[];
  readonly weights: StreamCutter;
  readonly metadata: Readonly<Record<string, string>>;
  /** What its numbers mean, in short. */
  readonly outputs: readonly object[];
}

/** Yields the files whose content is known before the weights, then those with the weights. */
export type FormatWriter = (parts: ExportParts) => AsyncIterable<ExportFile> | Iterable<ExportFile>;
