/**
 * The disk that the servers of a run share, and checkpoints on it: libs/storage over a file system in memory that is slow, full, or
 * loses what was not synced when the power goes. Every operation takes virtual time in the process that wants it, and none is finished
 * for a process that has died meanwhile.
 */
import { Checkpoints, LocalStore, StorageError, type CheckpointId, type Disk, type DiskFile } from '@paceline/storage';
import { parametersName } from '@paceline/hosting';
import type { Layout } from '@paceline/learning';
import { FaultyDisk, diskError, type Crash } from '../../faulty-disk.js';
import type { World } from './world.js';
import type { SimProcess } from './process.js';

const PLACE = '/data';

/** Mistakes that are put between the store and the disk. */
export interface DiskPlant {
  /** `sync` of files and folders does nothing. */
  readonly ignoresSync?: boolean;
}

export interface DiskSurroundings {
  readonly world: World;
  readonly network: { count(fault: string): void };
  readonly plant: { readonly disk?: DiskPlant } | undefined;
  readonly run: { readonly layout: Layout };
  /** True when these are the bits that the chunk had after the round. */
  holdsRound(attempt: number, round: number, chunk: number, values: Float32Array): boolean;
}

export class SharedDisk {
  present = new FaultyDisk(undefined, () => 0);
  isFull = false;
  /** Milliseconds of an operation, at most. */
  slownessMs: number;
  private made = false;

  constructor(private readonly around: DiskSurroundings) {
    this.slownessMs = around.world.random.pick([0.1, 2, 50]);
  }

  /** The power is gone: what was not synced may be too. */
  losePower(crash: Crash): void {
    this.present.stop();
    this.present = this.present.survivor(crash);
  }

  /** Whether a write fails now because nothing fits any more. */
  refusesWrite(): boolean {
    if (this.isFull) this.around.network.count('write to a full disk');
    return this.isFull;
  }

  /** As a process uses it. */
  checkpointsOf(process: SimProcess): Checkpoints {
    const time = {
      nowMs: () => process.now(),
      sleep: (ms: number) => new Promise<void>((resolve) => process.after(ms, resolve)),
      yield: () => Promise.resolve(),
    };
    return new Checkpoints(new LocalStore(PLACE, this.diskOf(process), () => this.around.world.nowMs), time);
  }

  /** As somebody sees it who takes no time. */
  checkpoints(): Checkpoints {
    return new Checkpoints(new LocalStore(PLACE, this.present, () => this.around.world.nowMs), {
      nowMs: () => 0,
      sleep: () => Promise.resolve(),
      yield: () => Promise.resolve(),
    });
  }

  private diskOf(process: SimProcess): Disk {
    const { around } = this;
    const { ignoresSync = false } = around.plant?.disk ?? {};
    const turn = (needsRoom = false): Promise<FaultyDisk> =>
      new Promise((resolve, reject) => {
        process.after(around.world.random.between(0.01, this.slownessMs), () => {
          if (needsRoom && this.refusesWrite()) reject(diskError('ENOSPC', PLACE));
          else resolve(this.present);
        });
      });
    // The mark by which servers know the store is made once, before anything counts.
    const isIgnored = (place: string): boolean => ignoresSync && place.includes('/checkpoints');
    const fileOf = (file: DiskFile, place: string): DiskFile => ({
      write: async (bytes) => {
        await turn(true);
        await file.write(bytes);
      },
      sync: async () => {
        await turn();
        if (!isIgnored(place)) await file.sync();
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
        return fileOf(await disk.create(file), file);
      },
      rename: async (from, to) => (await turn()).rename(from, to),
      link: async (from, to) => (await turn()).link(from, to),
      remove: async (file) => (await turn()).remove(file),
      makeFolder: async (folder) => (await turn(true)).makeFolder(folder),
      removeFolder: async (folder) => (await turn()).removeFolder(folder),
      syncFolder: async (folder) => {
        const disk = await turn();
        if (!isIgnored(folder)) await disk.syncFolder(folder);
      },
      read: async (file, from, to) => (await turn()).read(file, from, to),
      size: async (file) => (await turn()).size(file),
      list: async (folder) => (await turn()).list(folder),
    };
  }

  /** Says what is wrong with a checkpoint; undefined when it has the bits of the undisturbed run. */
  async fault(id: CheckpointId): Promise<string | undefined> {
    const { around } = this;
    try {
      const reader = await this.checkpoints().open(id);
      for (const chunk of around.run.layout.chunks) {
        const bytes = await reader.tensor(parametersName(chunk.index));
        if (!around.holdsRound(id.attempt, id.round, chunk.index, new Float32Array(Uint8Array.from(bytes).buffer)))
          return `chunk ${chunk.index} has other bits`;
      }
      return undefined;
    } catch (error) {
      if (error instanceof StorageError) return (await this.hasNewer(id)) ? undefined : error.message;
      throw error;
    }
  }

  /** A checkpoint may be swept before the control plane has read of it, as soon as there are newer ones. */
  private async hasNewer({ runId, attempt, round }: CheckpointId): Promise<boolean> {
    const all = await this.checkpoints().list(runId);
    return all.some((other) => other.attempt >= attempt && other.round > round);
  }
}
