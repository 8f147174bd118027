/**
 * Vocabularies that runs ask for, one at a time: each reads up to the whole training split in a thread with a heap of its own. Teams take turns, and
 * what was made of a version for the same features is kept, so that a sweep of runs makes it once.
 */
import { createHash } from 'node:crypto';
import type { Features } from '@paceline/spec';
import { waitingTurns, type TurnLimits, type Turns } from '../turns.js';

export interface VocabularyRequest {
  readonly teamId: string;
  /** SHA-256 of the manifest. */
  readonly version: string;
  readonly features: Features | undefined;
}

const LIMITS: TurnLimits = { atOnce: 1, waiting: 32, waitingOfTeam: 8, waitMs: 60_000 };
const KEPT_ENTRIES = 16;

export class Vocabularies {
  private readonly turns: Turns;
  private readonly kept = new Map<string, Features | undefined>();

  constructor(limits = LIMITS) {
    this.turns = waitingTurns(limits, 'Vocabularies of other runs are being made.');
  }

  /** @param make what reads the training split @throws Fault TOO_BUSY before anything was read; what `make` throws */
  async of(request: VocabularyRequest, make: () => Promise<Features | undefined>): Promise<Features | undefined> {
    const key = keyOf(request);
    if (this.kept.has(key)) return this.kept.get(key);
    return this.turns.run(request.teamId, async () => {
      // Somebody before in the line may have asked for the same.
      if (this.kept.has(key)) return this.kept.get(key);
      const made = await make();
      this.kept.set(key, made);
      for (const [oldest] of this.kept) {
        if (this.kept.size <= KEPT_ENTRIES) break;
        this.kept.delete(oldest);
      }
      return made;
    });
  }
}

const keyOf = ({ teamId, version, features }: VocabularyRequest): string =>
  createHash('sha256')
    .update(JSON.stringify([teamId, version, features ?? null]))
    .digest('hex');
