/** Predictions for the rows of files, in batches; with windows each file is a series of its own. */
import { placed, type RowsOfFile } from './evaluate-columns.js';
import type { ModelFolder } from './model-folder.js';
import { encoderFor, predictionsOf, type InputRow, type Prediction } from './rows.js';

const BATCH = 256;

/** @throws ExportError ROW_INVALID with file, row and column */
export async function* predictRows(
  { predictor, preprocessing }: ModelFolder,
  files: AsyncIterable<Omit<RowsOfFile, 'rows'> & { readonly rows: readonly InputRow[] }>,
): AsyncGenerator<Prediction, void, void> {
  const encoder = encoderFor(preprocessing, predictor.inputs);
  const names = predictor.outputs.map(({ name }) => name);
  let kept: { readonly file: string; readonly rows: readonly InputRow[] } = { file: '', rows: [] };
  for await (const { file, firstRow, rows } of files) {
    for (let from = 0; from < rows.length; from += BATCH) {
      const before = kept.file === file ? kept.rows : [];
      const some = [...before, ...rows.slice(from, from + BATCH)];
      const { examples, inputs } = await encoder.encode(some, firstRow + from - before.length).catch((error: unknown) => {
        throw placed(error, file, firstRow + from - before.length);
      });
      if (examples > 0) yield* predictionsOf(predictor.predict(inputs, examples), examples, preprocessing, names);
      kept = { file, rows: encoder.span > 1 ? some.slice(-(encoder.span - 1)) : [] };
    }
  }
}
