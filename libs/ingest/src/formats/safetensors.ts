/** safetensors: each tensor is a column, and its first dimension counts the rows. Tensors named x_train and x_test are one column of two splits. */
import { open } from 'node:fs/promises';
import { parseSafetensorsHeader, safetensorsHeaderBytes, StorageError, type TensorRange } from '@paceline/storage';
import type { Part } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import { ByteReader } from '../sources/byte-reader.js';
import { rangeOf, readAt, seekable, type SeekableFile } from '../sources/spool.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { columnsBySplit, elementColumn, opened, readColumns } from './array-columns.js';
import type { ElementType } from './elements.js';

const TYPES: Readonly<Record<string, Omit<ElementType, 'isLittleEndian'>>> = {
  BOOL: { name: 'bool', bytes: 1 },
  U8: { name: 'u8', bytes: 1 },
  I8: { name: 'i8', bytes: 1 },
  U16: { name: 'u16', bytes: 2 },
  I16: { name: 'i16', bytes: 2 },
  F16: { name: 'f16', bytes: 2 },
  BF16: { name: 'bf16', bytes: 2 },
  U32: { name: 'u32', bytes: 4 },
  I32: { name: 'i32', bytes: 4 },
  F32: { name: 'f32', bytes: 4 },
  U64: { name: 'u64', bytes: 8 },
  I64: { name: 'i64', bytes: 8 },
  F64: { name: 'f64', bytes: 8 },
};
const HEADER_MAX_BYTES = 64 << 20;

export async function safetensorsParts(files: readonly SourceFile[], context: SourceContext): Promise<Part[]> {
  const parts: Part[] = [];
  for (const file of files) {
    const at = await seekable(file, context);
    const tensors = await tensorsOf(at, file.name);
    const bySplit = columnsBySplit(
      tensors,
      ({ name }) => name,
      () => file.split,
    );
    for (const [split, group] of bySplit)
      parts.push({
        split,
        read: () =>
          readColumns(() =>
            opened(
              group.map(({ item: { dtype, shape, from, to }, column }) => async () => {
                const type = Object.assign({ isLittleEndian: true }, TYPES[dtype]!);
                const reader = new ByteReader(rangeOf(at, from, to, file.name), file.name);
                return await Promise.resolve(elementColumn(column, file.name, reader, type, shape, context.options.limits.rowBytes));
              }),
            ),
          ),
      });
  }
  return parts;
}

async function tensorsOf(at: SeekableFile, name: string): Promise<TensorRange[]> {
  const handle = await open(at.path, 'r');
  try {
    const length = safetensorsHeaderBytes(await readAt(handle, 0, Math.min(8, at.bytes), name), at.bytes);
    if (length > HEADER_MAX_BYTES) throw new IngestError('FORMAT_MALFORMED', `Its header claims ${length} bytes.`, { file: name });
    return [...parseSafetensorsHeader(await readAt(handle, 8, length, name), at.bytes).values()];
  } catch (error) {
    if (!(error instanceof StorageError)) throw error;
    throw new IngestError('FORMAT_MALFORMED', `${error.message}.`, { file: name }, { cause: error });
  } finally {
    await handle.close();
  }
}
