/** Opening the checkpoint that an attempt begins with, and holding it to the run: never another model, never other numbers. */
import type { PlacementJob } from '@paceline/control-plane';
import { layoutHash, type Layout } from '@paceline/learning';
import { appliedByServers, comparableConfig, configDifferences, optimizerSlots } from '@paceline/spec';
import { StorageError, type CheckpointReader, type Checkpoints } from '@paceline/storage';

/** @throws StorageError CHECKPOINT_INVALID, CHECKPOINT_ELSEWHERE, CONFIG_CHANGED, STORE_UNAVAILABLE */
export async function openCheckpoint(checkpoints: Checkpoints, job: PlacementJob, layout: Layout): Promise<CheckpointReader | undefined> {
  if (!job.restore) return undefined;
  const reader = await checkpoints.open(job.restore).catch(async (error: unknown) => {
    // Nothing of the run at all, not even what is damaged: the checkpoint is whole, this server looks into another store.
    if (!(error instanceof StorageError) || error.code !== 'CHECKPOINT_INVALID' || (await checkpoints.hasAny(job.restore!.runId)))
      throw error;
    throw new StorageError('CHECKPOINT_ELSEWHERE', `no checkpoint of run ${job.restore!.runId} lies in ${checkpoints.store.place}`, {
      cause: error,
    });
  });
  const { manifest } = reader;
  const place = `the checkpoint of round ${manifest.round} (attempt ${manifest.attempt}) of run ${manifest.runId}`;
  // Another run may train on in its own way, as long as the numbers fit (inherited-spec.ts); the run itself goes on as it was.
  if (manifest.runId !== job.runId) {
    // What does not fit this run is no fault of the checkpoint: its own run goes on from it.
    const { optimizer } = appliedByServers(job.spec);
    if (manifest.optimizer.slots.join() !== optimizerSlots(optimizer).join())
      throw new StorageError('CONFIG_CHANGED', `${place} has the slots of ${manifest.optimizer.name}, which do not fit ${optimizer.name}`);
    if (manifest.layoutHash !== layoutHash(layout)) throw new StorageError('CONFIG_CHANGED', `${place} has other variables than the model`);
    return reader;
  }
  const differences = configDifferences(manifest.config, comparableConfig(job.spec));
  if (differences.length > 0) {
    const shown = differences.slice(0, 10).map(({ path, was, is }) => `${path}: ${JSON.stringify(was)} → ${JSON.stringify(is)}`);
    throw new StorageError('CONFIG_CHANGED', `${place} was written by another configuration: ${shown.join('; ')}`);
  }
  return withLayout(reader, layout, place);
}

function withLayout(reader: CheckpointReader, layout: Layout, place: string): CheckpointReader {
  if (reader.manifest.layoutHash !== layoutHash(layout))
    throw new StorageError('CHECKPOINT_INVALID', `${place} has other variables than the model`);
  return reader;
}
