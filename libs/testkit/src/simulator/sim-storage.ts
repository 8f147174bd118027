/**
 * The disk that the servers of a run share, and checkpoints on it: libs/storage over a file system in memory that is slow, full, or
 * loses what was not synced when the power goes. Every operation takes virtual time in the process that wants it, and none is finished
 * for a process that has died meanwhile.
 */
import {
  Checkpoints,
  LocalStore,
  StorageError,
  configHash,
  type CheckpointId,
  type Disk,
  type DiskFile,
  type Manifest,
} from '@paceline/storage';
import { comparableConfig, parseRunSpec } from '@paceline/spec';
import type { CompletedCut } from '@paceline/exchange';
import { FaultyDisk, diskError, type Crash } from '../faulty-disk.js';
import type { Cluster } from './cluster.js';
import type { SimProcess } from './process.js';

export const parametersName = (chunk: number): string => `parameters/${chunk}`;
export const slotName = (slot: string, chunk: number): string => `slots/${slot}/${chunk}`;

const PLACE = '/data';

/** Mistakes that are put between the store and the disk. */
export interface DiskPlant {
  /** `sync` of files and folders does nothing. */
  readonly ignoresSync?: boolean;
}

export class SharedDisk {
  present = new FaultyDisk(undefined, () => 0);
  isFull = false;
  /** Milliseconds of an operation, at most. */
  slownessMs: number;
  private made = false;

  constructor(private readonly cluster: Cluster) {
    this.slownessMs = cluster.world.random.pick([0.1, 2, 50]);
  }

  /** The power is gone: what was not synced may be too. */
  losePower(crash: Crash): void {
    this.present.stop();
    this.present = this.present.survivor(crash);
  }

  /** As a process uses it. */
  checkpointsOf(process: SimProcess): Checkpoints {
    const time = {
      nowMs: () => process.now(),
      sleep: (ms: number) => new Promise<void>((resolve) => process.after(ms, resolve)),
      yield: () => Promise.resolve(),
    };
    return new Checkpoints(new LocalStore(PLACE, this.diskOf(process), () => this.cluster.world.nowMs), time);
  }

  /** As somebody sees it who takes no time. */
  checkpoints(): Checkpoints {
    return new Checkpoints(new LocalStore(PLACE, this.present, () => this.cluster.world.nowMs), {
      nowMs: () => 0,
      sleep: () => Promise.resolve(),
      yield: () => Promise.resolve(),
    });
  }

  private diskOf(process: SimProcess): Disk {
    const { cluster } = this;
    const { ignoresSync = false } = cluster.plant?.disk ?? {};
    const turn = (needsRoom = false): Promise<FaultyDisk> =>
      new Promise((resolve, reject) => {
        process.after(cluster.world.random.between(0.01, this.slownessMs), () => {
          if (needsRoom && this.isFull) {
            cluster.network.count('write to a full disk');
            reject(diskError('ENOSPC', PLACE));
          } else resolve(this.present);
        });
      });
    const fileOf = (file: DiskFile): DiskFile => ({
      write: async (bytes) => {
        await turn(true);
        await file.write(bytes);
      },
      sync: async () => {
        await turn();
        if (!ignoresSync) await file.sync();
      },
      close: async () => {
        await turn();
        await file.close();
      },
    });
    return {
      create: async (file) => {
        const disk = await turn(true);
        if (!this.made) {
          this.made = true;
          await disk.makeFolder(PLACE);
          await disk.syncFolder('/');
        }
        return fileOf(await disk.create(file));
      },
      rename: async (from, to) => (await turn()).rename(from, to),
      link: async (from, to) => (await turn()).link(from, to),
      remove: async (file) => (await turn()).remove(file),
      makeFolder: async (folder) => (await turn(true)).makeFolder(folder),
      removeFolder: async (folder) => (await turn()).removeFolder(folder),
      syncFolder: async (folder) => {
        const disk = await turn();
        if (!ignoresSync) await disk.syncFolder(folder);
      },
      read: async (file, from, to) => (await turn()).read(file, from, to),
      size: async (file) => (await turn()).size(file),
      list: async (folder) => (await turn()).list(folder),
    };
  }

  /** What is wrong with a checkpoint; undefined when it is there with the bits of the undisturbed run. */
  async fault(id: CheckpointId): Promise<string | undefined> {
    const { cluster } = this;
    try {
      const reader = await this.checkpoints().open(id);
      for (const chunk of cluster.run.layout.chunks) {
        const bytes = await reader.tensor(parametersName(chunk.index));
        if (!cluster.holdsRound(id.attempt, id.round, chunk.index, new Float32Array(Uint8Array.from(bytes).buffer)))
          return `chunk ${chunk.index} has other bits`;
      }
      return undefined;
    } catch (error) {
      if (error instanceof StorageError) return error.message;
      throw error;
    }
  }
}

const SPEC = (() => {
  const parsed = parseRunSpec({});
  if (!parsed.ok) throw new Error('the default spec is valid');
  const config = { ...comparableConfig(parsed.spec) } as Manifest['config'];
  return { config, configHash: configHash(parsed.spec) };
})();

export function manifestOf(cluster: Cluster, id: CheckpointId, cut: CompletedCut, parent: Manifest | undefined): Manifest {
  const { run, world } = cluster;
  const { roundsPerEpoch, totalRounds } = run.schedule;
  return {
    ...{ version: 1, ...id, lineage: parent ? [...parent.lineage, { attempt: parent.attempt, round: parent.round }] : [] },
    ...{ createdAtMs: Math.round(world.nowMs), servers: run.shape.servers, replicas: run.shape.replicas, layoutHash: 'tiny' },
    ...{ chunks: run.layout.chunks.length, ...SPEC, mode: run.shape.tokens?.mode ?? 'sync', schedule: { totalRounds, roundsPerEpoch } },
    sampler: { epoch: Math.floor(id.round / roundsPerEpoch), roundInEpoch: id.round % roundsPerEpoch },
    ledger: { examples: cut.ledger.examples, exceptions: [...cut.ledger.exceptions] },
    optimizer: { name: run.optimizer.name, slots: run.optimizer.slots.map(({ name }) => name) },
    ...{ residuals: [], loss: cut.loss, reason: cut.reason, shards: [...cut.files] },
  };
}
