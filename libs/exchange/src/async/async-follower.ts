/**
 * The standby's side of a shard of modes async and ssp: its primary's updates come one after the other, each with a number and then its gradients,
 * chunk by chunk, as they went into the optimizer there. Whoever misses one of them would be another shard than its primary, and nobody
 * would notice: it is refused.
 */
import { ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import { releaseRegions, type Region } from '../attempt/regions.js';
import type { WorkItem } from './done-set.js';

/** What it does to the shard. */
export interface FollowingShard {
  /** How many it has. */
  readonly chunks: number;
  /** All gradients of a work item are there; they are the shard's now. @param done called when they are applied */
  apply(item: WorkItem, staleness: number, gradients: ReadonlyMap<number, Region>, done: () => void): void;
  leaveOut(item: WorkItem): void;
}

export class AsyncFollower {
  /** The update that is coming in, and how many have come. */
  private following: MessageOf<'update'> | undefined;
  private readonly arriving = new Map<number, Region>();
  private followed = 0;

  constructor(private readonly shard: FollowingShard) {}

  /** True: it is a gradient of the update that is coming in. @throws ProtocolError when none is */
  expects({ round, nodeLo, chunk }: FrameHeader): true {
    const { following } = this;
    if (!following || round !== following.round || nodeLo !== following.replica || this.arriving.has(chunk))
      throw new ProtocolError('BAD_ROUND', `no update of replica ${nodeLo} in round ${round} is expected`);
    return true;
  }

  /** @param acknowledge called for an update when it is applied */
  arrived(header: FrameHeader, gradient: Region | undefined, acknowledge: (message: Message) => void): void {
    const { following } = this;
    if (!gradient || !following) return gradient?.release();
    this.arriving.set(header.chunk, gradient);
    if (this.arriving.size < this.shard.chunks) return;
    const { sequence, round, replica, staleness } = following;
    const gradients = new Map(this.arriving);
    this.arriving.clear();
    this.following = undefined;
    this.shard.apply({ round, replica }, staleness, gradients, () => acknowledge({ type: 'updated', sequence }));
  }

  /** @returns what to acknowledge @throws ProtocolError when one before it is missing */
  begins(update: MessageOf<'update'>): readonly Message[] {
    if (this.following || update.sequence !== this.followed + 1)
      throw new ProtocolError(
        'BAD_ROUND',
        `update ${update.sequence} has come, this standby is at ${this.followed}${this.following ? ', in part' : ''}`,
      );
    this.followed = update.sequence;
    if (!update.isDropped) {
      this.following = update;
      return [];
    }
    this.shard.leaveOut(update);
    return [{ type: 'updated', sequence: update.sequence }];
  }

  /** What has come of an update is not whole, and never will be. */
  letGo(): void {
    releaseRegions([...this.arriving.values()]);
    this.arriving.clear();
    this.following = undefined;
  }
}
