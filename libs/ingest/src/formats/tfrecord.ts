/**
 * TFRecord files of tf.train.Example: per record its length and the bytes, each with a masked CRC-32C, which is checked. A feature is a list of
 * bytes, floats or int64; one value is a number, more are an array. Bytes are a picture, a text, or an array of bytes.
 */
import protobuf from 'protobufjs/minimal.js';
import { BATCH_ROWS, type ArrayCell, type Cell, type RowBatch } from '../cell.js';
import { IngestError, type Place } from '../ingest-error.js';
import { ByteReader } from '../sources/byte-reader.js';
import { unpacked } from '../sources/compression.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { maskedCrc32c } from './crc32c.js';
import { wholeOf } from './elements.js';
import { NameTable } from './plain-cells.js';
import { isPicture, recordRow } from './records.js';

const BATCH_BYTES = 16 << 20;

export async function* readTfRecords(file: SourceFile, context: SourceContext): AsyncGenerator<RowBatch> {
  const reader = new ByteReader(unpacked(file, context), file.name);
  const table = new NameTable();
  const bytesKinds = new Map<string, 'text' | 'bytes'>();
  let rows: Cell[][] = [];
  let firstRow = 1;
  let bytes = 0;
  try {
    while (!(await reader.isAtEnd())) {
      const place = { file: file.name, row: firstRow + rows.length };
      const record = await readRecord(reader, place, context.options.limits.rowBytes);
      rows.push(await recordRow(exampleOf(record, bytesKinds, place), table, place));
      bytes += record.length;
      if (rows.length < BATCH_ROWS && bytes < BATCH_BYTES) continue;
      yield { names: table.refresh(), rows, file: file.name, firstRow };
      firstRow += rows.length;
      rows = [];
      bytes = 0;
    }
    if (rows.length > 0) yield { names: table.refresh(), rows, file: file.name, firstRow };
  } finally {
    await reader.close();
  }
}

async function readRecord(reader: ByteReader, place: Place, rowBytesMax: number): Promise<Uint8Array> {
  const head = await reader.read(12);
  const view = new DataView(head.buffer);
  if (maskedCrc32c(head.subarray(0, 8)) !== view.getUint32(8, true))
    throw new IngestError('FORMAT_MALFORMED', 'The checksum of the length of a record is wrong.', place);
  const length = view.getBigUint64(0, true);
  if (length > BigInt(rowBytesMax))
    throw new IngestError('ROW_TOO_LONG', `The record claims ${length} bytes; at most ${rowBytesMax} are read.`, place);
  const record = await reader.read(Number(length));
  const checksum = await reader.read(4);
  if (maskedCrc32c(record) !== new DataView(checksum.buffer).getUint32(0, true))
    throw new IngestError('FORMAT_MALFORMED', 'The checksum of a record is wrong: the file is damaged.', place);
  return record;
}

/** The fields of a message by number; what is unknown is passed over. */
function fieldsOf(reader: protobuf.Reader, end: number, take: (field: number, wire: number) => boolean): void {
  while (reader.pos < end) {
    const tag = reader.uint32();
    if (!take(tag >>> 3, tag & 7)) reader.skipType(tag & 7);
  }
  if (reader.pos !== end) throw new Error('a field is longer than its message');
}

/** A message inside of a message: nothing may reach beyond it. */
function within(reader: protobuf.Reader, read: (end: number) => void): boolean {
  const length = reader.uint32();
  const end = reader.pos + length;
  if (end > reader.len) throw new Error('a message is longer than what it lies in');
  read(end);
  return true;
}

type Feature = { readonly bytes: Uint8Array[] } | { readonly floats: number[] } | { readonly integers: (number | bigint)[] } | undefined;

/** tensorflow/core/example/example.proto and feature.proto. */
function exampleOf(record: Uint8Array, kinds: Map<string, 'text' | 'bytes'>, place: Place): object {
  const features = new Map<string, Feature>();
  try {
    const reader = protobuf.Reader.create(record);
    fieldsOf(
      reader,
      record.length,
      (field, wire) => field === 1 && wire === 2 && within(reader, (end) => readFeatures(reader, end, features)),
    );
  } catch (error) {
    throw new IngestError('FORMAT_MALFORMED', `The record is no tf.train.Example (${(error as Error).message}).`, place, { cause: error });
  }
  if (features.size === 0) throw new IngestError('UNSUPPORTED', 'The record has no features: tf.train.Example is read.', place);
  return Object.fromEntries(
    [...features].map(([name, feature]) => [name, valueOf(name, feature, kinds, { file: place.file, row: place.row, column: name })]),
  );
}

function readFeatures(reader: protobuf.Reader, end: number, features: Map<string, Feature>): void {
  fieldsOf(reader, end, (field, wire) => field === 1 && wire === 2 && within(reader, (entryEnd) => readEntry(reader, entryEnd, features)));
}

function readEntry(reader: protobuf.Reader, end: number, features: Map<string, Feature>): void {
  let name = '';
  let feature: Feature;
  fieldsOf(reader, end, (field, wire) => {
    if (field === 1 && wire === 2) name = reader.string();
    else if (field === 2 && wire === 2) within(reader, (featureEnd) => (feature = readFeature(reader, featureEnd)));
    else return false;
    return true;
  });
  features.set(name, feature);
}

function readFeature(reader: protobuf.Reader, end: number): Feature {
  let feature: Feature;
  fieldsOf(reader, end, (field, wire) => {
    if (wire !== 2 || field < 1 || field > 3) return false;
    return within(reader, (listEnd) => {
      if (field === 1) feature = { bytes: byteLists(reader, listEnd) };
      else if (field === 2) feature = { floats: numbers(reader, listEnd, () => reader.float()) };
      else feature = { integers: numbers(reader, listEnd, () => wholeOf(reader.int64().toString())) };
    });
  });
  return feature;
}

/** Numbers come packed, or one by one from old writers. */
function numbers<N>(reader: protobuf.Reader, end: number, read: () => N): N[] {
  const values: N[] = [];
  fieldsOf(reader, end, (field, wire) => {
    if (field !== 1) return false;
    if (wire !== 2) values.push(read());
    else
      within(reader, (packedEnd) => {
        while (reader.pos < packedEnd) values.push(read());
      });
    return true;
  });
  return values;
}

function byteLists(reader: protobuf.Reader, end: number): Uint8Array[] {
  const values: Uint8Array[] = [];
  fieldsOf(reader, end, (field, wire) => {
    if (field !== 1 || wire !== 2) return false;
    values.push(reader.bytes().slice());
    return true;
  });
  return values;
}

/** A list of one is a number for whoever has only such lists: `isFlat` leaves that to the types of the columns. */
function valueOf(name: string, feature: Feature, kinds: Map<string, 'text' | 'bytes'>, place: Place): unknown {
  if (feature === undefined) return undefined;
  if ('floats' in feature) return flat(Float32Array.from(feature.floats));
  if ('integers' in feature) {
    const { integers } = feature;
    const values = integers.map(Number);
    const exact = integers.length === 1 && typeof integers[0] === 'bigint' ? integers[0] : undefined;
    return flat(values.every((value) => value === (value | 0)) ? Int32Array.from(values) : Float64Array.from(values), exact);
  }
  const [bytes, ...more] = feature.bytes;
  if (bytes === undefined) return undefined;
  if (more.length > 0)
    throw new IngestError('UNSUPPORTED', `A feature of ${feature.bytes.length} texts or pictures; one per row is read.`, place);
  if (isPicture(bytes)) return { image: bytes };
  const text = textOf(bytes);
  const kind = kinds.get(name) ?? (text === undefined ? 'bytes' : 'text');
  kinds.set(name, kind);
  if (kind === 'bytes') return { kind: 'array', values: bytes, shape: [bytes.length] } satisfies ArrayCell;
  if (text === undefined) throw new IngestError('VALUE_MISFIT', 'The bytes are no text, those of the rows before are.', place);
  return text;
}

const flat = (values: Float32Array | Int32Array | Float64Array, exact?: bigint): ArrayCell => ({
  kind: 'array',
  values,
  shape: [values.length],
  isFlat: true,
  exact,
});

/** Control characters are a sign of numbers that were written as bytes. */
function textOf(bytes: Uint8Array): string | undefined {
  for (const byte of bytes.subarray(0, 4096)) if (byte < 9 || (byte > 13 && byte < 32)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}
