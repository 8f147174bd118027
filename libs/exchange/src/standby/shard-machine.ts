/**
 * The shard of a server as its surroundings see it, the same in every mode. Hops of a gradient: a worker's frames come in through `payloadFor` and `data`,
 * what was reduced or applied goes to the standby through the replication that `replicate` makes, and the word of the coordinator comes through
 * `fromCoordinator`.
 */
import type { FrameHeader, Members, Message } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import type { ShardLink } from '../transfer/shard-transfer.js';
import type { Replication, ReplicationOptions } from './replication.js';
import type { Follower } from './standby.js';

export interface ShardMachine extends Follower {
  readonly table: { readonly state: string };
  numbers(): FrameNumbers;
  chunkIndices(): readonly number[];
  /** The members as this shard knows them, and mode sync: rounds that were left out while it was a standby, for a coordinator that begins here. */
  known(): { readonly view: number; readonly members: Members; readonly leftOut?: readonly number[] };

  // ---- workers and collectors ----

  /** Admits a worker's connection whose HELLO the gate has accepted. */
  attach(id: string, connection: Connection): ShardLink;
  detach(link: ShardLink): void;
  /** Where the payload of a gradient frame goes. @throws ProtocolError for what no member sends */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array;
  /** Whether a chunk that has come with others is one that a member sends. @throws ProtocolError as payloadFor */
  check(link: ShardLink, header: FrameHeader): void;
  data(link: ShardLink, header: FrameHeader): void;
  /** False when the message is not for the shard. @param term of its header */
  fromWorker(link: ShardLink, message: Message, term: number): boolean;

  // ---- the coordinator ----

  /** False when the coordinator sends no such message to a shard. */
  fromCoordinator(link: ShardLink, message: Message): boolean;
  /** Says where it stands, to a coordinator that it joins; where that waits for the standby, as soon as it may. */
  stand(tell: (standing: Message) => void): void;
  /** The coordinator lacks something that it was told. */
  tellAgain(): void;

  // ---- its standby ----

  /** From here on a standby is sent what changes the shard, and others hear of it when the standby has it. */
  replicate(options: ReplicationOptions): Replication;

  /** What the shard has under way is done before what comes next. */
  finishWork(): void;
  /** Tells members and collectors that this process lives; call it every second. */
  heartbeat(): void;
  end(): void;
}
