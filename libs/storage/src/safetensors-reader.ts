/**
 * Reading the header of a safetensors file that may have been written by anybody. Everything is checked before anything is
 * allocated by it: the length of the header against the file, its JSON, every dtype, shape and offset, and that the tensors
 * lie one after the other without gap or overlap to the end of the file (https://huggingface.co/docs/safetensors, format section).
 */
import { StorageError } from './errors.js';

/** Bytes of one element. */
const DTYPES: Readonly<Record<string, number>> = Object.assign(Object.create(null) as Record<string, number>, {
  BOOL: 1,
  U8: 1,
  I8: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  I64: 8,
  U64: 8,
  F64: 8,
});

/** The bound of the format's reference implementation. */
export const HEADER_MAX_BYTES = 100_000_000;
const RANK_MAX = 32;
/** Names of a tensor in the header: its own and those of its three fields. */
const NAMES_OF_TENSOR = 4;
/** Names in the metadata, where tensors are bounded. */
const METADATA_NAMES = 1_000;

export interface TensorRange {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Where the data lies in the file: bytes [from, to). */
  readonly from: number;
  readonly to: number;
}

const invalid = (reason: string): StorageError => new StorageError('SAFETENSORS_INVALID', reason);

/**
 * Length of the JSON header that follows the first 8 bytes.
 * @throws StorageError SAFETENSORS_INVALID when it is 0, larger than the bound, or larger than the file
 */
export function safetensorsHeaderBytes(first8: Uint8Array, fileBytes: number): number {
  if (first8.length < 8 || fileBytes < 8) throw invalid('the file ends within its first 8 bytes');
  const claimed = new DataView(first8.buffer, first8.byteOffset, 8).getBigUint64(0, true);
  if (claimed === 0n) throw invalid('its header has no bytes');
  if (claimed > BigInt(fileBytes - 8)) throw invalid(`its header claims ${claimed} bytes, the file has ${fileBytes}`);
  if (claimed > BigInt(HEADER_MAX_BYTES)) throw invalid(`its header claims ${claimed} bytes, at most ${HEADER_MAX_BYTES} are read`);
  return Number(claimed);
}

/**
 * The tensors of a file by name, in the order of their data.
 * @param header the JSON bytes, without the 8 bytes before them
 * @param maxTensors a header with more of them is refused before it is parsed
 * @throws StorageError SAFETENSORS_INVALID with the reason
 */
export function parseSafetensorsHeader(
  header: Uint8Array,
  fileBytes: number,
  { maxTensors = Number.POSITIVE_INFINITY }: { readonly maxTensors?: number } = {},
): Map<string, TensorRange> {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(header);
  } catch {
    throw invalid('its header is not UTF-8');
  }
  checkNames(text, maxTensors);
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw invalid('its header is not JSON');
  }
  if (!isRecord(json)) throw invalid('its header is not a JSON object');
  const dataFrom = 8 + header.length;
  const ranges = Object.entries(json)
    .filter(([name]) => name !== '__metadata__')
    .map(([name, entry]) => rangeOf(name, entry, dataFrom));
  ranges.sort((a, b) => a.from - b.from || a.to - b.to);
  let end = dataFrom;
  for (const { name, from, to } of ranges) {
    if (from < end) throw invalid(`the data of ${quoted(name)} overlaps what is before it`);
    if (from > end) throw invalid(`there is a gap before the data of ${quoted(name)}`);
    end = to;
  }
  if (end !== fileBytes) throw invalid(`its tensors end at byte ${end}, the file has ${fileBytes}`);
  return new Map(ranges.map((range) => [range.name, range]));
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const quoted = (name: string): string => JSON.stringify(name.slice(0, 100));
const isCount = (value: unknown): value is number => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

function rangeOf(name: string, entry: unknown, dataFrom: number): TensorRange {
  if (!isRecord(entry)) throw invalid(`the entry of ${quoted(name)} is no object`);
  const { dtype, shape, data_offsets: offsets } = entry;
  const elementBytes = typeof dtype === 'string' ? DTYPES[dtype] : undefined;
  if (typeof dtype !== 'string' || elementBytes === undefined) throw invalid(`the dtype of ${quoted(name)} is unknown`);
  if (!Array.isArray(shape) || shape.length > RANK_MAX || !shape.every(isCount)) throw invalid(`the shape of ${quoted(name)} is not valid`);
  let bytes = elementBytes;
  for (const n of shape) {
    bytes *= n;
    if (!Number.isSafeInteger(bytes)) throw invalid(`the shape of ${quoted(name)} is too large`);
  }
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount))
    throw invalid(`the offsets of ${quoted(name)} are not valid`);
  const [from, to] = offsets as [number, number];
  if (to - from !== bytes) throw invalid(`the offsets of ${quoted(name)} span ${to - from} bytes, its shape ${bytes}`);
  return { name, dtype, shape, from: dataFrom + from, to: dataFrom + to };
}

/**
 * JSON.parse keeps the last of two equal names without a word, so that two readers could see two files. This walks the text
 * once, keeping the names of every open object; a header has at most three levels. What is wrong otherwise JSON.parse finds.
 * Names are counted on the way, so that what has too many is not kept.
 */
function checkNames(text: string, maxTensors: number): void {
  const mostNames = NAMES_OF_TENSOR * maxTensors + METADATA_NAMES;
  let count = 0;
  let tensors = 0;
  const open: (Set<string> | null)[] = [];
  const STRING = /"(?:[^"\\]|\\.)*"/sy;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '{' || c === '[') {
      open.push(c === '{' ? new Set() : null);
      if (open.length > 3) throw invalid('its header is nested too deeply');
    } else if (c === '}' || c === ']') open.pop();
    else if (c === '"') {
      STRING.lastIndex = i;
      const string = STRING.exec(text)?.[0];
      if (string === undefined) throw invalid('its header is not JSON');
      i += string.length - 1;
      const names = open.at(-1);
      if (!names || !/^[ \t\r\n]*:/.test(text.slice(i + 1, i + 20))) continue;
      const name = unescaped(string);
      if (names.has(name)) throw invalid(`the name ${quoted(name)} occurs twice in its header`);
      names.add(name);
      if (open.length === 1 && name !== '__metadata__' && ++tensors > maxTensors) throw invalid(`it has more than ${maxTensors} tensors`);
      if (++count > mostNames) throw invalid(`its header has more than ${mostNames} names`);
    }
  }
}

function unescaped(string: string): string {
  try {
    return JSON.parse(string) as string;
  } catch {
    throw invalid('its header is not JSON');
  }
}
