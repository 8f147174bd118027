/** From the address of a source to its files. */
import type { SplitName } from '@paceline/spec';
import { IngestError } from '../ingest-error.js';
import { httpFile } from './http.js';
import { localFiles } from './local-files.js';
import { s3Files } from './s3.js';
import type { SourceContext, SourceFile } from './source-file.js';

/** @throws IngestError SOURCE_NOT_FOUND, SOURCE_FORBIDDEN, SOURCE_UNREADABLE, SOURCE_TOO_LARGE */
export async function openSource(location: string, split: SplitName | undefined, context: SourceContext): Promise<SourceFile[]> {
  if (location.includes('\0')) throw new IngestError('SOURCE_NOT_FOUND', 'The address has a zero byte in it.');
  const scheme = /^(?<scheme>[a-z][a-z0-9+.-]+):/i.exec(location)?.groups?.['scheme']?.toLowerCase();
  if (scheme === undefined || scheme === 'file') return await localFiles(location, split, context);
  if (scheme === 'https' || scheme === 'http') return [httpFile(location, split, context)];
  if (scheme === 's3') return await s3Files(location, split, context);
  throw new IngestError('OPTIONS_INVALID', `${scheme}: is no kind of address that is read.`, { file: location });
}
