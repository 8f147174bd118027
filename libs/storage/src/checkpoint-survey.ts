/** What a store holds of a run's checkpoints: each with its objects, and its manifest when it is complete. */
import { StorageError } from './errors.js';
import {
  checkpointsPrefix,
  decodeManifest,
  idOfKey,
  MANIFEST_MAX_BYTES,
  manifestKey,
  type CheckpointId,
  type Manifest,
} from './manifest.js';
import type { ObjectStore, StoredObject } from './object-store.js';

export interface FoundCheckpoint {
  readonly id: CheckpointId;
  readonly objects: readonly StoredObject[];
  /** Null when the checkpoint is not complete: no manifest, a damaged one, or files that are not there. */
  readonly manifest: Manifest | null;
  /** Hash of the manifest; empty if there is none. */
  readonly sha256: string;
}

/** One listing, and one read per manifest; what is not a key of a checkpoint is left alone. */
export async function surveyCheckpoints(store: ObjectStore, runId: string): Promise<FoundCheckpoint[]> {
  const byKey = new Map<string, { id: CheckpointId; objects: StoredObject[] }>();
  for (const object of await store.list(checkpointsPrefix(runId))) {
    const id = idOfKey(runId, object.key);
    if (!id) continue;
    const key = manifestKey(id);
    const known = byKey.get(key) ?? { id, objects: [] };
    known.objects.push(object);
    byKey.set(key, known);
  }
  const found: FoundCheckpoint[] = [];
  for (const { id, objects } of byKey.values()) {
    const complete = objects.some(({ key }) => key === manifestKey(id)) ? await completeManifest(store, id, objects) : null;
    found.push({ id, objects, manifest: complete?.manifest ?? null, sha256: complete?.sha256 ?? '' });
  }
  return found;
}

async function completeManifest(store: ObjectStore, id: CheckpointId, objects: readonly StoredObject[]) {
  try {
    const decoded = decodeManifest(id, await store.read(manifestKey(id), 0, MANIFEST_MAX_BYTES));
    const there = new Map(objects.map(({ key, bytes }) => [key, bytes]));
    return decoded.manifest.shards.every(({ key, bytes }) => there.get(key) === bytes) ? decoded : null;
  } catch (error) {
    // A damaged manifest, or one that was swept since the listing, makes no checkpoint; a store that fails must be heard of.
    if (error instanceof StorageError && (error.code === 'CHECKPOINT_INVALID' || error.code === 'NO_SUCH_OBJECT')) return null;
    throw error;
  }
}
