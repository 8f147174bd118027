/**
 * Writing safetensors files (https://huggingface.co/docs/safetensors, format section): u64 little-endian header length, a JSON
 * header {name: {dtype, shape, data_offsets}}, then the tensors without gaps.
 *
 * The file appears only when it is whole: it is written beside its name, synced, renamed, and the folder is synced.
 */
import { open, mkdir, rename, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';

/** Bytes of one element of the dtypes that are written. */
const ELEMENT_BYTES = { F32: 4, I32: 4, U8: 1, I64: 8 } as const;
export type TensorDtype = keyof typeof ELEMENT_BYTES;

export interface TensorEntry {
  readonly name: string;
  readonly shape: readonly number[];
  /** F32 when left out. */
  readonly dtype?: TensorDtype;
}

/** Bytes of a tensor, of float32 when its type is left out. */
export const tensorBytes = (shape: readonly number[], dtype: TensorDtype = 'F32'): number =>
  shape.reduce((product, n) => product * n, 1) * ELEMENT_BYTES[dtype];

/** Header bytes of tensors laid one after the other, padded with spaces to a multiple of 8. */
export function safetensorsHeader(tensors: readonly TensorEntry[], metadata: Readonly<Record<string, string>> = {}): Uint8Array {
  const header: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  header['__metadata__'] = metadata;
  let offset = 0;
  for (const { name, shape, dtype = 'F32' } of tensors) {
    const bytes = tensorBytes(shape, dtype);
    header[name] = { dtype, shape, data_offsets: [offset, offset + bytes] };
    offset += bytes;
  }
  let json = JSON.stringify(header);
  json += ' '.repeat((8 - (Buffer.byteLength(json) % 8)) % 8);
  const body = Buffer.from(json, 'utf8');
  const out = Buffer.alloc(8 + body.length);
  out.writeBigUInt64LE(BigInt(body.length), 0);
  body.copy(out, 8);
  return out;
}

/** Appends float32 data in order; `finish` makes the file appear, `abort` leaves nothing behind. */
export class SafetensorsWriter {
  private written = 0;
  private constructor(
    private readonly file: FileHandle,
    private readonly temporary: string,
    private readonly target: string,
    private readonly expectedBytes: number,
  ) {}

  static async create(
    target: string,
    tensors: readonly TensorEntry[],
    metadata: Readonly<Record<string, string>> = {},
  ): Promise<SafetensorsWriter> {
    await mkdir(path.dirname(target), { recursive: true });
    const temporary = `${target}.${process.pid}.partial`;
    const file = await open(temporary, 'w', 0o600);
    const expected = tensors.reduce((sum, { shape, dtype }) => sum + tensorBytes(shape, dtype), 0);
    const writer = new SafetensorsWriter(file, temporary, target, expected);
    try {
      await file.appendFile(safetensorsHeader(tensors, metadata));
    } catch (error) {
      await writer.abort(); // a full disk: the beginning of a file would stay
      throw error;
    }
    return writer;
  }

  /** Appends little-endian float32 bytes. The bytes may be reused when the promise resolves. */
  async append(bytes: Uint8Array): Promise<void> {
    let offset = 0;
    while (offset < bytes.length) offset += (await this.file.write(bytes, offset, bytes.length - offset)).bytesWritten;
    this.written += bytes.length;
  }

  /** @throws Error when fewer or more bytes were appended than the header says */
  async finish(): Promise<void> {
    if (this.written !== this.expectedBytes) {
      await this.abort();
      throw new Error(`${this.written} bytes were written to a safetensors file of ${this.expectedBytes}`);
    }
    await this.file.sync();
    await this.file.close();
    await rename(this.temporary, this.target);
    const folder = await open(path.dirname(this.target), 'r');
    await folder.sync().finally(() => folder.close());
  }

  async abort(): Promise<void> {
    await this.file.close().catch(() => undefined); // it may be closed already
    await rm(this.temporary, { force: true });
  }
}
