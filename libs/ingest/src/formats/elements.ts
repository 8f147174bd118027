/** Elements of binary formats by their type: bytes of any byte order become the numbers of a cell. */
import type { ArrayCell } from '../cell.js';

export interface ElementType {
  readonly name: 'u8' | 'i8' | 'u16' | 'i16' | 'u32' | 'i32' | 'u64' | 'i64' | 'f16' | 'bf16' | 'f32' | 'f64' | 'bool';
  readonly bytes: number;
  readonly isLittleEndian: boolean;
}

type Values = Exclude<ArrayCell['values'], readonly number[]>;

/** Whole numbers up to 32 bits become I32, unsigned bytes U8, all others float32 in the end. */
export function elementsOf(bytes: Uint8Array, { name, bytes: size, isLittleEndian }: ElementType): Values {
  if (name === 'u8' || name === 'bool') return bytes.slice();
  const count = bytes.length / size;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isInteger = name === 'i8' || name === 'i16' || name === 'u16' || name === 'i32';
  const values = isInteger
    ? new Int32Array(count)
    : name === 'f32' || name === 'f16' || name === 'bf16'
      ? new Float32Array(count)
      : new Float64Array(count);
  const at = readerOf(name, view, isLittleEndian);
  for (let i = 0; i < count; i++) values[i] = at(i * size);
  return values;
}

function readerOf(name: ElementType['name'], view: DataView, little: boolean): (offset: number) => number {
  switch (name) {
    case 'i8':
      return (offset) => view.getInt8(offset);
    case 'i16':
      return (offset) => view.getInt16(offset, little);
    case 'u16':
      return (offset) => view.getUint16(offset, little);
    case 'i32':
      return (offset) => view.getInt32(offset, little);
    case 'u32':
      return (offset) => view.getUint32(offset, little);
    case 'i64':
      return (offset) => Number(view.getBigInt64(offset, little));
    case 'u64':
      return (offset) => Number(view.getBigUint64(offset, little));
    case 'f32':
      return (offset) => view.getFloat32(offset, little);
    case 'f64':
      return (offset) => view.getFloat64(offset, little);
    case 'f16':
      return (offset) => half(view.getUint16(offset, little));
    case 'bf16':
      return (offset) => brain(view.getUint16(offset, little));
    case 'u8':
    case 'bool':
      return (offset) => view.getUint8(offset);
  }
}

/** A bigint where a number would lose digits. */
export const wholeOf = (digits: bigint | string): number | bigint => {
  const value = Number(digits);
  return Number.isSafeInteger(value) ? value : BigInt(digits);
};

/** Single numbers: of 64 bits with all digits, as they may be ids. */
export function scalarsOf(bytes: Uint8Array, type: ElementType): (number | bigint | boolean)[] {
  const { name, isLittleEndian: little } = type;
  if (name === 'bool') return Array.from(bytes, Boolean);
  if (name !== 'i64' && name !== 'u64') return Array.from(elementsOf(bytes, type));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at = (offset: number): bigint => (name === 'i64' ? view.getBigInt64(offset, little) : view.getBigUint64(offset, little));
  return Array.from({ length: bytes.length / type.bytes }, (_, i) => wholeOf(at(i * type.bytes)));
}

/** IEEE 754 binary16. */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const word = new DataView(new ArrayBuffer(4));
/** The upper half of a float32. */
function brain(bits: number): number {
  word.setUint32(0, bits * 65_536);
  return word.getFloat32(0);
}
