/**
 * The workers of one shard at its server, in both modes: who is a member, their connections, the gradient chunks that come over them and the parameter
 * chunks that are sent.
 *
 *   HELLO accepted ──> attach, WELCOME ──> gradient: check ──> receive: into a region of the chunk's arena, or scratch ──> received
 *                                      └─> parameters: send
 *
 * What is taken, held, dropped or answered is the decision of the machine (Shard, TokenShard).
 */
import { FrameType, ProtocolError, type FrameHeader, type Members, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { acquireRegion, type Region } from '../rounds/regions.js';
import { checkChunk, scratchOf, sendRegion, type VectorName } from './chunk-frames.js';
import type { OwnedChunk } from './chunks.js';

/** Receives the chunks of one connection into regions, one at a time. */
export class RegionReceiver {
  private region: Region | undefined;

  /** Where the payload goes. @param chunk undefined for a frame that will be dropped */
  receive({ length }: FrameHeader, chunk: OwnedChunk | undefined): Uint8Array {
    this.region = chunk && acquireRegion(chunk.arena, chunk.length);
    return this.region?.bytes ?? scratchOf(length);
  }

  /** The whole chunk, which is the caller's now; undefined when it went to scratch. */
  received(): Region | undefined {
    const { region } = this;
    this.region = undefined;
    return region;
  }

  /** A frame that never becomes whole. */
  letGo(): void {
    this.received()?.release();
  }
}

/** One connection of a worker (or of the coordinator collecting weights) to a shard. */
export class ShardLink {
  readonly gradients = new RegionReceiver();

  constructor(
    readonly id: string,
    readonly connection: Connection,
    /** Collectors only pull; they are sent no streams. */
    readonly streams: boolean,
  ) {}
}

export interface WorkerLinksOptions {
  /** Of the server. */
  readonly index: number;
  readonly attempt: number;
  /** Of the shard. With it a peer that has two generations still to read is sent nothing: it pulls what it misses when it has read them. */
  readonly generationBytes?: number;
  tellCoordinator(message: Message): void;
}

/** Headers and control messages in a connection's queue, beside the chunks. */
const QUEUE_SLACK_BYTES = 1 << 20;

/** `Held` is what the machine keeps for a connection, until it closes. */
export class WorkerLinks<Held> {
  private readonly held = new Map<ShardLink, Held>();
  private readonly mostQueuedBytes: number;
  private members: Members = [];
  private memberIds = new Set<string>();
  view = 0;

  constructor(
    private readonly options: WorkerLinksOptions,
    private readonly numbers: () => FrameNumbers,
  ) {
    this.mostQueuedBytes = 2 * (options.generationBytes ?? Infinity) + QUEUE_SLACK_BYTES;
  }

  /** The members as this shard knows them. */
  known(): { readonly view: number; readonly members: Members } {
    return { view: this.view, members: this.members };
  }

  takeView(view: number, members: Members): void {
    this.view = view;
    this.members = members;
    this.memberIds = new Set(members.map(({ id }) => id));
  }

  isMember(id: string): boolean {
    return this.memberIds.has(id);
  }

  isConnected(id: string): boolean {
    return this.all().some((link) => link.id === id);
  }

  all(): readonly ShardLink[] {
    return [...this.held.keys()];
  }

  heldFor(link: ShardLink): Held | undefined {
    return this.held.get(link);
  }

  everyHeld(): readonly (readonly [ShardLink, Held])[] {
    return [...this.held];
  }

  /** Connections that a new one of the same worker replaces. */
  replacedBy(id: string, streams: boolean): ShardLink[] {
    return this.all().filter((link) => link.id === id && link.streams === streams);
  }

  welcome(link: ShardLink, held: Held, state: Pick<MessageOf<'welcome'>, 'applied' | 'phase'>): void {
    this.held.set(link, held);
    const { round, view, term } = this.numbers();
    const { index } = this.options;
    link.connection.sendMessage({ type: 'welcome', id: link.id, server: index, round, view, term, ...state }, this.numbers());
  }

  /** Everything that belongs to WELCOME is sent. */
  tellAttached({ id, streams }: ShardLink): void {
    if (streams) this.options.tellCoordinator({ type: 'member-link', id, up: true });
  }

  /** Returns what was held for it; undefined when it is gone already. */
  detach(link: ShardLink): Held | undefined {
    const held = this.held.get(link);
    this.held.delete(link);
    link.gradients.letGo();
    return held;
  }

  tellDetached({ id, streams }: ShardLink): void {
    if (streams && this.isMember(id)) this.options.tellCoordinator({ type: 'member-link', id, up: false });
  }

  /** Tells members and collectors that this process lives. */
  heartbeat(progress: number): void {
    for (const link of this.held.keys()) link.connection.sendMessage({ type: 'heartbeat', progress }, this.numbers());
  }

  /** A gradient frame whose payload is about to be read. @throws ProtocolError for what no member sends */
  check<C extends OwnedChunk>(link: ShardLink, header: FrameHeader, chunk: C | undefined): asserts chunk is C {
    checkChunk(header, FrameType.gradient, this.options.attempt, chunk);
    if (!link.streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
  }

  /** A chunk to a peer that reads what it is sent. Takes over one reference to the region. */
  send({ connection }: ShardLink, vector: VectorName, { index }: OwnedChunk, region: Region): void {
    if (connection.queuedBytes > this.mostQueuedBytes) return region.release();
    sendRegion(connection, FrameType.parameters, this.numbers(), vector, index, region);
  }

  /** A chunk to everybody, but to those who only pull. */
  publish(vector: VectorName, chunk: OwnedChunk, region: Region): void {
    for (const link of this.held.keys()) if (link.streams) this.send(link, vector, chunk, region.retain());
  }
}
