/** Objects of an S3 bucket: one, or all below a prefix, with the credentials of the AWS_* variables of this process. */
import type { SplitName } from '@paceline/spec';
import { parseS3Url, S3Store, StorageError, type ObjectVersion } from '@paceline/storage';
import { IngestError, type IngestErrorCode } from '../ingest-error.js';
import { inNameOrder } from './name-order.js';
import type { SourceContext, SourceFile } from './source-file.js';

/** @throws IngestError SOURCE_NOT_FOUND, SOURCE_FORBIDDEN, SOURCE_UNREADABLE, SOURCE_TOO_LARGE */
export async function s3Files(location: string, split: SplitName | undefined, context: SourceContext): Promise<SourceFile[]> {
  const { policy, access, limits } = context.options;
  const name = location.split('?')[0]!;
  if (policy === 'server' && access.allowS3 !== true) throw new IngestError('SOURCE_FORBIDDEN', 's3:// is not read here.', { file: name });
  return await translated(name, async () => {
    const parsed = parseS3Url(location, true);
    const store = new S3Store(Object.assign({}, parsed, { prefix: '' }), undefined, undefined, true);
    context.atClose(() => store.close());
    const listed = await store.list(parsed.prefix);
    const exact = listed.filter(({ key }) => key === parsed.prefix);
    const below = parsed.prefix === '' ? listed : listed.filter(({ key }) => key.startsWith(`${parsed.prefix}/`));
    const objects = (exact.length > 0 ? exact : below).filter(({ key }) => !key.endsWith('/'));
    if (objects.length === 0) throw new IngestError('SOURCE_NOT_FOUND', 'No object has this name.', { file: name });
    if (objects.length > limits.files) throw new IngestError('SOURCE_TOO_LARGE', `More than ${limits.files} objects.`, { file: name });
    return objects
      .sort((a, b) => inNameOrder(a.key, b.key))
      .map(({ key, bytes }): SourceFile => {
        const file = `s3://${parsed.bucket}/${key}`;
        if (bytes > limits.sourceBytes)
          throw new IngestError('SOURCE_TOO_LARGE', `The object has ${bytes} bytes; at most ${limits.sourceBytes} are read.`, { file });
        const relative = exact.length > 0 ? key.split('/').at(-1)! : key.slice(parsed.prefix === '' ? 0 : parsed.prefix.length + 1);
        // Opened again, for the format and then for the rows, it is still the same.
        const version: ObjectVersion = { etag: undefined };
        const open = (): AsyncIterable<Uint8Array> => objectBody(store.stream(key, version), file, bytes, context);
        return { name: file, relative, split, bytes, path: undefined, open };
      });
  });
}

async function* objectBody(
  body: AsyncIterable<Uint8Array>,
  file: string,
  size: number,
  context: SourceContext,
): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  const pieces = body[Symbol.asyncIterator]();
  for (;;) {
    context.signal?.throwIfAborted();
    const next = await translated(file, () => pieces.next());
    if (next.done === true) break;
    bytes += next.value.length;
    context.traffic.bytesRead += next.value.length;
    yield next.value;
  }
  if (bytes !== size) throw new IngestError('SOURCE_CHANGED', `It had ${size} bytes, and now has ${bytes}.`, { file });
}

const CODES: Partial<Record<StorageError['code'], IngestErrorCode>> = {
  NO_SUCH_OBJECT: 'SOURCE_NOT_FOUND',
  OBJECT_CHANGED: 'SOURCE_CHANGED',
  STORE_FORBIDDEN: 'SOURCE_FORBIDDEN',
  STORE_URL_INVALID: 'OPTIONS_INVALID',
  BAD_KEY: 'UNSUPPORTED',
};

async function translated<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof StorageError)) throw error;
    throw new IngestError(CODES[error.code] ?? 'SOURCE_UNREADABLE', `${error.message}.`, { file }, { cause: error });
  }
}
