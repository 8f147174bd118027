/**
 * The file of a backup: one line of JSON, the numbers of all tensors as float32, and four bytes of CRC-32 over both. It is written beside its place, flushed and renamed:
 * a crash at any point leaves the backup of the epoch before, or this one, and whoever reads meanwhile has one of both.
 */
import { open, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import * as tfc from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { ArgumentError } from './errors.js';

const CRC_BYTES = 4;

export interface Kept {
  readonly name: string;
  readonly shape: readonly number[];
}
export interface KeptWeight extends Kept {
  /** The optimizer has slots for it. */
  readonly isTrained: boolean;
}
/** The version of the file's form. Version 1 had the weights in an order that depends on which of them are trained, so it is refused. */
const VERSION = 2;

export interface Head {
  readonly version?: number;
  /** Where fit begins. */
  readonly epoch: number;
  /** Steps of the optimizer: as float32, like the other numbers, the count would not be exact. */
  readonly steps: number;
  /** Layer by layer. */
  readonly weights: readonly KeptWeight[];
  readonly optimizer: readonly Kept[];
}
export interface Backup extends Head {
  readonly values: readonly Float32Array[];
}

/** In the folder of a training. */
export const backupFile = (folder: string): string => join(folder, 'backup.paceline');

export async function writeBackup(path: string, head: Head, values: readonly Float32Array[]): Promise<void> {
  const bytes = values.map(({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength));
  const content = Buffer.concat([Buffer.from(`${JSON.stringify({ ...head, version: VERSION })}\n`), ...bytes]);
  const sum = Buffer.alloc(CRC_BYTES);
  sum.writeUInt32LE(crc32(content));
  const beside = `${path}.tmp`; // one name: what a crash leaves is overwritten by the next backup
  const file = await open(beside, 'w');
  try {
    await file.writeFile(Buffer.concat([content, sum]));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(beside, path);
  const folder = await open(dirname(path), 'r');
  await folder.sync().finally(() => folder.close());
}

/** A backup, and which of those that were written one after the other it is: each is a file of its own. */
interface Found {
  readonly backup: Backup;
  readonly version: string;
}

/** @returns undefined where there is none @throws ArgumentError for a file that is damaged */
export const readBackup = async (path: string): Promise<Backup | undefined> => (await readOtherBackup(path, undefined))?.backup;

/**
 * Reads no more than the state of the file where that version is there still.
 * @returns undefined then, and where there is none @throws ArgumentError for a file that is damaged
 */
export async function readOtherBackup(path: string, version: string | undefined): Promise<Found | undefined> {
  const file = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (!file) return undefined;
  try {
    const { ino, mtimeNs } = await file.stat({ bigint: true });
    const present = `${ino} ${mtimeNs}`;
    return present === version ? undefined : { backup: decoded(await file.readFile(), path), version: present };
  } finally {
    await file.close();
  }
}

function decoded(all: Buffer, path: string): Backup {
  const content = all.subarray(0, Math.max(0, all.length - CRC_BYTES));
  const end = content.indexOf('\n');
  if (end < 0 || all.readUInt32LE(content.length) !== crc32(content))
    throw new ArgumentError(`the backup ${path} is damaged: delete it to begin anew, or put a copy in its place`);
  const head = JSON.parse(content.toString('utf8', 0, end)) as Head;
  if (head.version !== VERSION) throw new ArgumentError(`the backup ${path} is of another version of Paceline: delete it to begin anew`);
  let at = end + 1;
  const values = [...head.weights, ...head.optimizer].map(({ shape }) => {
    const bytes = tfc.util.sizeFromShape([...shape]) * 4;
    const part = Uint8Array.prototype.slice.call(content, at, at + bytes); // a copy begins where a float32 may
    at += bytes;
    return new Float32Array(part.buffer, part.byteOffset, bytes / 4);
  });
  return { ...head, values };
}

type Weight = tfl.LayersModel['weights'][number];

/** The weights layer by layer: `model.weights` begins with those that are trained, so its order changes where a layer is frozen. */
export function weightsByLayer(model: tfl.LayersModel): Weight[] {
  const of = (layer: tfl.layers.Layer): Weight[] => {
    const { layers } = layer as Partial<tfl.LayersModel>;
    return Array.isArray(layers) ? layers.flatMap(of) : layer.weights;
  };
  return [...new Set([...of(model), ...model.weights])];
}

/** What a weight is in its layer: tf.js counts layers, so their names differ between two models that are built alike. */
const roleOf = (name: string): string => name.slice(name.lastIndexOf('/') + 1);

/** The weights of a backup become those of the model, whichever layers are frozen. @throws ArgumentError for the backup of another model */
export function applyWeights({ weights, values }: Backup, model: tfl.LayersModel, path: string): void {
  const own = weightsByLayer(model);
  const kinds = (all: readonly { readonly name: string; readonly shape: readonly (number | null)[] }[]): string =>
    JSON.stringify(all.map(({ name, shape }) => [roleOf(name), shape]));
  if (kinds(weights) !== kinds(own.map(({ originalName: name, shape }) => ({ name, shape }))))
    throw new ArgumentError(
      `the backup ${path} is of another model: its weights have other names or shapes. Give each training a folder of its own`,
    );
  const tensors = new Map(own.map((weight, i) => [weight, tfc.tensor(values[i]!, [...weights[i]!.shape], 'float32')]));
  model.setWeights(model.weights.map((weight) => tensors.get(weight)!));
  tfc.dispose([...tensors.values()]);
}
