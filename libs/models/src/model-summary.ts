/** What a model is made of, for programs that know no engine. */
import { datasetInfo, DatasetError } from '@paceline/data';
import type { RowFormat } from '@paceline/spec';
import { ExportError } from './export-error.js';

export { ModelError, summarizeModel, type ModelSummary } from '@paceline/engine';

/** What a row of a built-in dataset looks like. @throws ExportError ROW_INVALID */
export function rowsOfDataset(name: string): RowFormat {
  try {
    return datasetInfo(name).format;
  } catch (error) {
    if (!(error instanceof DatasetError)) throw error;
    throw new ExportError('ROW_INVALID', error.message, undefined, { cause: error });
  }
}
