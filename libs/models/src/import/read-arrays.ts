/** Weights by the paths of our variables: a safetensors file, or a zip of .npy files, as our exports have them. */
import { readFile } from 'node:fs/promises';
import { unzipSync } from 'fflate';
import { parseSafetensorsHeader, safetensorsHeaderBytes, StorageError } from '@paceline/storage';
import { elementsOf, floatsOf, IMPORT_MAX_BYTES, unreadable, type FoundTensor } from './imported-model.js';

/** @throws ExportError MODEL_UNREADABLE */
export async function readSafetensors(file: string): Promise<FoundTensor[]> {
  const bytes = await readFile(file);
  try {
    const header = bytes.subarray(8, 8 + safetensorsHeaderBytes(bytes.subarray(0, 8), bytes.length));
    return [...parseSafetensorsHeader(header, bytes.length).values()].map(({ name, shape, dtype, from, to }) => {
      if (dtype !== 'F32') throw unreadable(file, `${name} has dtype ${dtype}; weights are F32`);
      return { name, shape, read: () => floatsOf(bytes.subarray(from, to)) };
    });
  } catch (cause) {
    if (cause instanceof StorageError) throw unreadable(file, cause.message, cause);
    throw cause;
  }
}

/** @throws ExportError MODEL_UNREADABLE */
export async function readNpz(file: string): Promise<FoundTensor[]> {
  let total = 0;
  let files: Record<string, Uint8Array>;
  try {
    files = unzipSync(await readFile(file), {
      filter: ({ name, originalSize }) => {
        total += originalSize;
        if (total > IMPORT_MAX_BYTES) throw new Error(`its arrays have more than ${IMPORT_MAX_BYTES} bytes`);
        return name.endsWith('.npy');
      },
    });
  } catch (cause) {
    throw unreadable(file, `the archive cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
  return Object.entries(files).map(([entry, bytes]) =>
    arrayOf(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), entry.slice(0, -4), file),
  );
}

function arrayOf(bytes: Buffer, name: string, file: string): FoundTensor {
  const version = bytes.length > 12 && bytes.subarray(0, 6).toString('latin1') === '\x93NUMPY' ? bytes[6] : undefined;
  if (version !== 1 && version !== 2) throw unreadable(file, `${name} is no .npy file`);
  const [at, length] = version === 1 ? [10, bytes.readUInt16LE(8)] : [12, bytes.readUInt32LE(8)];
  const text = bytes.subarray(at, at + length).toString('latin1');
  const [, dtype] = /'descr':\s*'([^']{1,20})'/.exec(text) ?? [];
  const [, sizes] = /'shape':\s*\(([\d\s,]{0,400})\)/.exec(text) ?? [];
  if (sizes === undefined || !/'fortran_order':\s*False/.test(text) || (dtype !== '<f4' && dtype !== '<f8'))
    throw unreadable(file, `${name} must be an array of float32 or float64 in C order`);
  const shape = sizes
    .split(',')
    .map((size) => size.trim())
    .filter((size) => size !== '')
    .map(Number);
  const elements = elementsOf(shape, file, name);
  const data = bytes.subarray(at + length);
  if (data.length !== elements * (dtype === '<f4' ? 4 : 8))
    throw unreadable(file, `${name} ends too early, or has more than its shape says`);
  const read = (): Float32Array =>
    dtype === '<f4' ? floatsOf(data) : Float32Array.from({ length: elements }, (_, i) => data.readDoubleLE(i * 8));
  return { name, shape, read };
}
