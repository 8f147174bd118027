/** Small checkpoints whose every number is known, and the check that one that is read back is exactly as it was written. */
import { comparableConfig, parseRunSpec } from '@paceline/spec';
import { configHash, StorageError, type CheckpointId, type Checkpoints, type Manifest, type TensorSource } from '@paceline/storage';

export const FIXTURE_RUN_ID = '0b8f7c1e-7a53-4b0e-9d8c-3f6f1c0d2a11';
export const checkpointAt = (attempt: number, round: number): CheckpointId => ({ runId: FIXTURE_RUN_ID, attempt, round });

const SERVERS = 2;
const CHUNK_PARAMETERS = 300;

function valuesOf({ attempt, round }: CheckpointId, name: string): Uint8Array {
  const salt = [...name].reduce((sum, character) => (sum * 31 + character.charCodeAt(0)) % 65_521, attempt * 1000 + round);
  return new Uint8Array(Float32Array.from({ length: CHUNK_PARAMETERS }, (_, i) => salt + i / 8).buffer);
}

const namesOf = (server: number): string[] => [`parameters/${server}`, `slots/velocity/${server}`];

export function tensorsOf(id: CheckpointId, server: number): TensorSource[] {
  return namesOf(server).map((name) => ({ name, shape: [CHUNK_PARAMETERS], read: () => valuesOf(id, name) }));
}

export function manifestOf(id: CheckpointId, shards: Manifest['shards'], more: Partial<Manifest> = {}): Manifest {
  const parsed = parseRunSpec({});
  if (!parsed.ok) throw new Error('the default spec is valid');
  return {
    version: 1,
    ...id,
    lineage: [],
    createdAtMs: 1000 * id.round,
    servers: shards.length,
    replicas: 4,
    layoutHash: 'layout',
    chunks: SERVERS,
    configHash: configHash(parsed.spec),
    config: { ...comparableConfig(parsed.spec) } as Manifest['config'],
    mode: 'sync',
    schedule: { totalRounds: 100, roundsPerEpoch: 10 },
    sampler: { epoch: 0, roundInEpoch: id.round },
    ledger: { examples: 256 * id.round, exceptions: [] },
    optimizer: { name: 'momentum', slots: ['velocity'] },
    residuals: [],
    loss: null,
    reason: 'cadence',
    shards,
    ...more,
  };
}

/** Writes the files of all servers, then the manifest. */
export async function writeCheckpoint(checkpoints: Checkpoints, id: CheckpointId, more: Partial<Manifest> = {}): Promise<void> {
  const shards: Manifest['shards'] = [];
  for (let server = 0; server < SERVERS; server++)
    shards.push(await checkpoints.writeShard(id, server, tensorsOf(id, server), { servers: SERVERS }));
  await checkpoints.publish(manifestOf(id, shards, more));
}

/** Says what is wrong with the checkpoint; undefined when all of it reads back bit for bit. Errors other than a refusal are thrown. */
export async function checkpointFault(checkpoints: Checkpoints, id: CheckpointId): Promise<string | undefined> {
  try {
    const reader = await checkpoints.open(id);
    for (let server = 0; server < SERVERS; server++)
      for (const name of namesOf(server))
        if (Buffer.compare(await reader.tensor(name), valuesOf(id, name)) !== 0) return `${name} was loaded with other bits`;
    return undefined;
  } catch (error) {
    if (error instanceof StorageError && error.code === 'CHECKPOINT_INVALID') return error.message;
    throw error;
  }
}
