/** From the sources to the parts that are read: which files there are, what format they have, and which split each belongs to. */
import type { Part } from './cell.js';
import { formatOf, partsOf } from './formats/formats.js';
import { IngestError } from './ingest-error.js';
import type { CheckedOptions } from './options.js';
import { openSource } from './sources/open-source.js';
import type { SourceContext, SourceFile } from './sources/source-file.js';

/** @throws IngestError for sources that cannot be opened, and formats that are not recognised */
export async function planParts(options: CheckedOptions, surroundings: Omit<SourceContext, 'options'>): Promise<Part[]> {
  const context: SourceContext = Object.assign({ options }, surroundings);
  const files: SourceFile[] = [];
  for (const { location, split } of options.sources) for (const file of await openSource(location, split, context)) files.push(file);
  if (files.length === 0) throw new IngestError('NO_ROWS', 'There is no file.', { file: options.sources[0]!.location });
  context.traffic.bytesTotal = files.every(({ bytes }) => bytes !== undefined)
    ? files.reduce((sum, { bytes }) => sum + bytes!, 0)
    : undefined;
  const format = await formatOf(files, context);
  const parts = await partsOf(format, files, context);
  if (parts.length === 0) throw new IngestError('NO_ROWS', 'There is no file of this format.', { file: options.sources[0]!.location });
  return parts;
}
