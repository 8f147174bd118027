/** The weights that a run begins with instead of random ones: a safetensors file that the api has put into the store when the run was made. */
import type { PlacementJob } from '@paceline/control-plane';
import type { Layout } from '@paceline/learning';
import { initialWeightsKey, parseSafetensorsHeader, safetensorsHeaderBytes, StorageError, type ObjectStore } from '@paceline/storage';

/**
 * A reader of parts of variables; undefined for those that the file does not hold.
 * @throws StorageError INITIAL_WEIGHTS_INVALID when the file is not there or does not fit
 */
export async function openInitialWeights(
  store: ObjectStore,
  { runId }: Pick<PlacementJob, 'runId'>,
  layout: Layout,
): Promise<(path: string, from: number, to: number) => Promise<Uint8Array | undefined>> {
  const key = initialWeightsKey(runId);
  // Not the code of a checkpoint: there is no earlier one to take instead.
  const invalid = (reason: string): StorageError => new StorageError('INITIAL_WEIGHTS_INVALID', `${key}: ${reason}`);
  const found = (await store.list(key)).find((object) => object.key === key);
  if (!found) throw invalid('the weights that the run begins with are not in this store');
  const headerBytes = safetensorsHeaderBytes(await store.read(key, 0, 8), found.bytes);
  const ranges = parseSafetensorsHeader(await store.read(key, 8, 8 + headerBytes), found.bytes);
  for (const { path, shape } of layout.variables) {
    const range = ranges.get(path);
    if (range && (range.dtype !== 'F32' || range.shape.join() !== shape.join()))
      throw invalid(`${path} has another shape than in the model`);
  }
  return async (path, from, to) => {
    const range = ranges.get(path);
    if (!range) return undefined;
    const bytes = await store.read(key, range.from + from * 4, range.from + to * 4);
    if (bytes.length !== (to - from) * 4) throw invalid(`it ends within ${path}`);
    return bytes;
  };
}
