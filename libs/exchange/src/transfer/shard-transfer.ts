/**
 * A server's side of the transfer layer, in all modes: the workers of one shard, their connections, the gradient chunks that come over them and the
 * parameter chunks that are sent. What is taken, held, dropped or answered is decided by the machine (Shard, AsyncShard).
 *
 *   HELLO accepted ──> admit: WELCOME ──> gradient: checkGradient, then a region of the chunk's arena or scratch
 *                                     └─> parameters: sendTo, or a ParameterOutlet
 */
import { FrameType, ProtocolError, type FrameHeader, type Members, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import type { Region } from '../attempt/regions.js';
import type { CoordinatorPort } from '../attempt/shard-ports.js';
import { RegionReceiver, checkChunk, checkRows, sendRegion, type ChunkDecoder, type VectorName } from './chunk-frames.js';
import type { OwnedChunk } from './chunks.js';

/** One connection of a worker (or of the coordinator collecting weights) to a shard. */
export class ShardLink extends RegionReceiver {
  constructor(
    readonly id: string,
    readonly connection: Connection,
    /** Collectors only pull; they are sent no streams. */
    readonly streams: boolean,
    decoder?: ChunkDecoder,
  ) {
    super(decoder);
  }
}

interface ServerOptions {
  readonly index: number;
  readonly attempt: number;
  readonly chunks: readonly OwnedChunk[];
  readonly coordinator: CoordinatorPort;
  /** Left out: gradients come as float32. */
  readonly decoder?: ChunkDecoder | undefined;
}

/** `Held` is what the machine keeps for a connection, until it closes. */
export abstract class ShardTransfer<Held, Options extends ServerOptions> {
  abstract readonly round: number;
  protected readonly links = new Map<ShardLink, Held>();
  private members: Members = [];
  private memberIds = new Set<string>();
  view = 0;
  /** Leadership term granted by the arbiter. Not copied from the coordinator: a deposed primary would then use its successor's term and be believed. */
  term = 1;

  constructor(protected readonly options: Options) {}

  abstract detach(link: ShardLink, isReplaced?: boolean): void;

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  /** The members as this shard knows them, for a coordinator that begins here. */
  known(): { readonly view: number; readonly members: Members } {
    return { view: this.view, members: this.members };
  }

  chunkIndices(): readonly number[] {
    return this.options.chunks.map(({ index }) => index);
  }

  protected takeView(view: number, members: Members): void {
    this.view = view;
    this.members = members;
    this.memberIds = new Set(members.map(({ id }) => id));
  }

  protected isMember(id: string): boolean {
    return this.memberIds.has(id);
  }

  /** A connection, in place of an older one of the same worker. */
  protected admit(
    link: ShardLink,
    held: Held,
    state: Pick<MessageOf<'welcome'>, 'applied' | 'window' | 'base' | 'phase' | 'nodes' | 'residuals'>,
  ): ShardLink {
    const { id, streams, connection } = link;
    for (const old of this.links.keys()) if (old.id === id && old.streams === streams) this.detach(old, true);
    this.links.set(link, held);
    const { round, view, term } = this;
    connection.sendMessage({ type: 'welcome', id, server: this.options.index, round, view, term, ...state }, this.numbers());
    return link;
  }

  protected tellLink({ id, streams }: ShardLink, up: boolean): void {
    if (streams && (up || this.isMember(id))) this.options.coordinator.tell({ type: 'member-link', id, up });
  }

  /** Returns what was held for the connection; undefined when it is gone already. */
  protected drop(link: ShardLink): Held | undefined {
    const held = this.links.get(link);
    this.links.delete(link);
    link.letGo();
    return held;
  }

  /** Tells members and collectors that this process lives. */
  protected beat(progress: number): void {
    for (const { connection } of this.links.keys()) connection.sendMessage({ type: 'heartbeat', progress }, this.numbers());
  }

  /** Before the payload of a gradient frame is read. @throws ProtocolError for what no member sends */
  protected checkGradient<C extends OwnedChunk>({ streams }: ShardLink, header: FrameHeader, chunk: C | undefined): asserts chunk is C {
    if (chunk?.rows) checkRows(header, this.options.attempt, chunk.rows);
    else checkChunk(header, FrameType.gradient, this.options.attempt, chunk, this.options.decoder);
    if (!streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
  }

  /** Takes over one reference to the region. @param numbers where they are not those of the shard */
  protected sendTo(
    { connection }: ShardLink,
    vector: VectorName,
    { index }: Pick<OwnedChunk, 'index'>,
    region: Region,
    numbers = this.numbers(),
  ): void {
    sendRegion(connection, numbers, vector, index, region);
  }
}
