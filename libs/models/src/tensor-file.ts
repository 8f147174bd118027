/** A safetensors file of float32 tensors in memory. */
import { parseSafetensorsHeader, safetensorsHeader, safetensorsHeaderBytes } from '@paceline/storage';

export interface NamedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

export function safetensorsFile(tensors: readonly NamedTensor[]): Uint8Array {
  const bytes = ({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array => new Uint8Array(buffer, byteOffset, byteLength);
  return Buffer.concat([safetensorsHeader(tensors), ...tensors.map(({ values }) => bytes(values))]);
}

/** Those of float32, by name. @throws StorageError SAFETENSORS_INVALID */
export function safetensorsTensors(file: Uint8Array): Map<string, Float32Array> {
  const headerBytes = safetensorsHeaderBytes(file.subarray(0, 8), file.length);
  const ranges = parseSafetensorsHeader(file.subarray(8, 8 + headerBytes), file.length);
  // In a buffer of its own, which is aligned.
  const values = (from: number, to: number): Float32Array => new Float32Array(Uint8Array.from(file.subarray(from, to)).buffer);
  return new Map([...ranges.values()].flatMap(({ name, dtype, from, to }) => (dtype === 'F32' ? [[name, values(from, to)]] : [])));
}
