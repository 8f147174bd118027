/**
 * Manifests that are in memory at once: each may have 32 MiB as text and more as objects. A few are, teams take turns, and fields of one request that
 * want the same one share it.
 */
import type { DatasetManifest } from '@paceline/spec';
import { waitingTurns, type TurnLimits, type Turns } from '../turns.js';

const LIMITS: TurnLimits = { atOnce: 2, waiting: 1_000, waitingOfTeam: 250, waitMs: 30_000 };

interface Shared {
  users: number;
  readonly manifest: Promise<DatasetManifest | null>;
  readonly release: () => void;
}

export class ManifestReads {
  private readonly turns: Turns;
  private readonly shared = new Map<string, Shared>();

  constructor(limits = LIMITS) {
    this.turns = waitingTurns(limits, 'Schemas and rows of other datasets are being read.');
  }

  /** @param work gets what `read` found; the manifest is let go of when it ends @throws Fault TOO_BUSY; what both throw */
  async use<T>(
    teamId: string,
    versionId: string,
    read: () => Promise<DatasetManifest | null>,
    work: (manifest: DatasetManifest | null) => T | Promise<T>,
  ): Promise<T> {
    const key = `${teamId}/${versionId}`;
    const shared = this.shared.get(key) ?? this.begin(teamId, key, read);
    shared.users++;
    try {
      return await work(await shared.manifest);
    } finally {
      if (--shared.users === 0) {
        if (this.shared.get(key) === shared) this.shared.delete(key);
        shared.release();
      }
    }
  }

  private begin(teamId: string, key: string, read: () => Promise<DatasetManifest | null>): Shared {
    let release!: () => void;
    const released = new Promise<void>((resolve) => (release = resolve));
    const manifest = new Promise<DatasetManifest | null>((resolve, reject) => {
      this.turns
        .run(teamId, async () => {
          resolve(await read());
          await released;
        })
        .catch(reject);
    });
    const shared = { users: 0, manifest, release };
    this.shared.set(key, shared);
    return shared;
  }
}
