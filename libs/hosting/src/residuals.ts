/**
 * What the codec of a run keeps of each replica, in its checkpoints: which runs store it, under which names, and how it is read again.
 *
 * It goes from the arenas of workers to the file chunk by chunk, a few at a time, so a server needs no memory for it. A checkpoint that is too slow costs a run more
 * than residuals are worth, so there are bounds (libs/learning/src/residual-bounds.ts), and a run beyond them is refused when it is created. An attempt of a run
 * that was created before that has checkpoints without residuals, and says `residual.lost` when it goes on from one.
 */
import { codecOf, residualFloats } from '@paceline/codecs';
import type { PlacementJob } from '@paceline/control-plane';
import { ResidualLayout, type GatheredResiduals, type ResidualName, type StoredResiduals } from '@paceline/exchange';
import { beyondResidualBounds, RESIDUAL_BOUNDS, residualBoundsMessage, shardChunks, type Layout } from '@paceline/learning';
import { keepsEstimate, picksCodec, type RunSpec } from '@paceline/spec';
import { configHash, StorageError, type CheckpointReader, type TensorSource } from '@paceline/storage';

const FLOAT_BYTES = 4;

const residualName = ({ replica, chunk }: Omit<ResidualName, 'round'>): string => `residuals/${replica}/${chunk}`;

/** Undefined where checkpoints have no residuals: the codec keeps nothing, or more than a server may write. */
export function storedResidualsOf(
  spec: Pick<RunSpec, 'codec' | 'replicas'>,
  layout: Layout,
  servers: number,
  bounds = RESIDUAL_BOUNDS,
): ResidualLayout | undefined {
  const { codec: wanted, replicas } = spec;
  const codec = codecOf(wanted, layout);
  if (!codec || !wanted || picksCodec(spec)) return undefined;
  const lengths = layout.chunks.map(({ index, length, section }) =>
    residualFloats(codec, wanted, { index, length, isEncoded: section === 'trainable' }),
  );
  const residuals = new ResidualLayout(lengths, replicas);
  if (residuals.totalLength === 0 || beyondResidualBounds(spec, layout, servers, bounds)) return undefined;
  return residuals;
}

/** Names of what a server has of residuals in its part of a checkpoint, in the order of their data. They follow from the run, so they do not travel. */
export function residualNamesOf(residuals: ResidualLayout, layout: Layout, servers: number, server: number): string[] {
  const chunks = residuals.kept(shardChunks(layout, servers, server));
  return Array.from({ length: residuals.replicas }, (_, replica) => chunks.map((chunk) => residualName({ replica, chunk }))).flat();
}

/**
 * With EF21 a run could not go on from a checkpoint that lacks what replicas keep.
 * @throws StorageError CHECKPOINT_TOO_LARGE where a server would have to write more of it than it may
 */
export function checkEstimatesAreStored({ spec, servers }: PlacementJob, layout: Layout): void {
  const beyond = keepsEstimate(spec) ? beyondResidualBounds(spec, layout, servers) : undefined;
  if (beyond) throw new StorageError('CHECKPOINT_TOO_LARGE', residualBoundsMessage(spec, beyond, servers));
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
