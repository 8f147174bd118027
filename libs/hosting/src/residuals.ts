/**
 * What the codec of a run keeps of each replica, in its checkpoints: which runs store it, under which names, and how it is read again.
 *
 * A checkpoint that is too slow costs a run more than residuals are worth, so there are bounds. They hold for the server with the most; a run beyond them has
 * checkpoints without residuals, and says `residual.lost` when it goes on from one.
 */
import { codecOf, residualFloats } from '@paceline/codecs';
import type { PlacementJob } from '@paceline/control-plane';
import { ResidualLayout, type GatheredResiduals, type ResidualName, type StoredResiduals } from '@paceline/exchange';
import { shardChunks, type Layout } from '@paceline/learning';
import { keepsEstimate, MOST_RESIDUAL_BYTES, MOST_RESIDUAL_TENSORS, picksCodec, type RunSpec } from '@paceline/spec';
import { configHash, StorageError, type CheckpointReader, type TensorSource } from '@paceline/storage';

const FLOAT_BYTES = 4;

const residualName = ({ replica, chunk }: Omit<ResidualName, 'round'>): string => `residuals/${replica}/${chunk}`;

/** Undefined where checkpoints have no residuals: the codec keeps nothing, or more than a server may write. */
export function storedResidualsOf(spec: Pick<RunSpec, 'codec' | 'replicas'>, layout: Layout, servers: number): ResidualLayout | undefined {
  const { codec: wanted, replicas } = spec;
  const codec = codecOf(wanted, layout);
  if (!codec || !wanted || picksCodec(spec)) return undefined;
  const lengths = layout.chunks.map(({ index, length, section }) =>
    residualFloats(codec, wanted, { index, length, isEncoded: section === 'trainable' }),
  );
  const residuals = new ResidualLayout(lengths, replicas);
  if (residuals.totalLength === 0) return undefined;
  for (let server = 0; server < servers; server++) {
    const chunks = residuals.kept(shardChunks(layout, servers, server));
    const floats = chunks.reduce((sum, chunk) => sum + residuals.lengthOf(chunk), 0);
    if (replicas * chunks.length > MOST_RESIDUAL_TENSORS || replicas * floats * FLOAT_BYTES > MOST_RESIDUAL_BYTES) return undefined;
  }
  return residuals;
}

/**
 * With EF21 a run could not go on from a checkpoint that lacks what replicas keep.
 * @throws StorageError CHECKPOINT_TOO_LARGE where a server would have to write more of it than it may
 */
export function checkEstimatesAreStored({ spec, servers }: PlacementJob, layout: Layout): void {
  if (!keepsEstimate(spec) || storedResidualsOf(spec, layout, servers)) return;
  throw new StorageError(
    'CHECKPOINT_TOO_LARGE',
    `with codec.feedbackRule ef21 checkpoints have a vector of each of the ${spec.replicas} replicas, and one of ${servers} servers would have to write more than ` +
      `${MOST_RESIDUAL_BYTES >> 20} MiB or ${MOST_RESIDUAL_TENSORS} tensors of them: use more servers, fewer replicas, or feedbackRule residual`,
  );
}

/** What is written of them, one chunk of one replica after the other. @param missing gets the replicas of which something is nowhere; zeros stand for it */
export function* residualTensors(residuals: GatheredResiduals, missing: Set<number>): Iterable<TensorSource> {
  for (const [piece, name] of residuals.names.entries()) {
    const floats = residuals.lengthOf(name);
    yield {
      name: residualName(name),
      shape: [floats],
      read: async () => {
        const bytes = await residuals.read(piece);
        if (bytes) return bytes;
        missing.add(name.replica);
        return new Uint8Array(floats * FLOAT_BYTES);
      },
    };
  }
}

/** Those of the checkpoint that an attempt begins with, as far as they are whole and of the same numbers. @param failed one could not be read */
export function residualsIn(
  reader: CheckpointReader,
  { runId, spec }: { readonly runId: string; readonly spec: RunSpec },
  failed: (error: Error) => void,
): StoredResiduals | undefined {
  const { manifest } = reader;
  const whole = new Set(manifest.residuals);
  // The residuals of another run are of use to one with the same numbers alone.
  if (whole.size === 0 || (manifest.runId !== runId && manifest.configHash !== configHash(spec))) return undefined;
  return {
    round: manifest.round - 1,
    read: async (replica, chunk) => {
      const name = residualName({ replica, chunk });
      if (!whole.has(replica) || !reader.has(name)) return undefined;
      try {
        return await reader.tensor(name);
      } catch (error) {
        failed(error as Error);
        return undefined;
      }
    },
  };
}
