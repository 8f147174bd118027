/** Tensors of float32 by their names, as a safetensors file in memory: what is uploaded, and what comes back. */

export interface NamedValues {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

const LENGTH_BYTES = 8;
const ALIGNED_TO = 8;
const F32_BYTES = 4;

export function tensorFile(tensors: readonly NamedValues[]): Uint8Array {
  let offset = 0;
  const entries = tensors.map(({ name, shape, values }) => {
    const from = offset;
    offset += values.byteLength;
    return [name, { dtype: 'F32', shape, data_offsets: [from, offset] }] as const;
  });
  const json = JSON.stringify(Object.fromEntries(entries));
  const header = new TextEncoder().encode(json);
  const headerBytes = Math.ceil(header.length / ALIGNED_TO) * ALIGNED_TO;
  const file = new Uint8Array(LENGTH_BYTES + headerBytes + offset);
  new DataView(file.buffer).setBigUint64(0, BigInt(headerBytes), true);
  file.fill(0x20, LENGTH_BYTES, LENGTH_BYTES + headerBytes);
  file.set(header, LENGTH_BYTES);
  let at = LENGTH_BYTES + headerBytes;
  for (const { values } of tensors) {
    file.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), at);
    at += values.byteLength;
  }
  return file;
}

/** @throws RangeError, SyntaxError for what is no such file */
export function tensorsOf(file: Uint8Array): Map<string, Float32Array> {
  const headerBytes = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const data = LENGTH_BYTES + headerBytes;
  const header = JSON.parse(new TextDecoder().decode(file.subarray(LENGTH_BYTES, data))) as Record<
    string,
    { readonly dtype: string; readonly data_offsets: readonly [number, number] }
  >;
  const found = new Map<string, Float32Array>();
  for (const [name, { dtype, data_offsets: range }] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    if (dtype !== 'F32') throw new RangeError(`${name} is ${dtype}`);
    const bytes = file.slice(data + range[0], data + range[1]);
    found.set(name, new Float32Array(bytes.buffer, 0, bytes.length / F32_BYTES));
  }
  return found;
}
