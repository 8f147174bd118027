/**
 * A worker's side of the transfer layer, in all modes: its connections to the servers of a run, parameter chunks that come in over them, gradient chunks
 * that go out, and where the worker stands. What is wanted, kept or sent again is decided by the machine (Member, AsyncMember).
 *
 *   servers ── parameters ──> chunkOf, then `destination` in the flat vector, or scratch
 *   compute thread ── gradient node ──> HeldGradient ── chunk by chunk ──> servers ── let go, and flushed by all sockets ──> released
 */
import { Codec, FrameType, HEADER_BYTES, type FrameHeader, type Members, type Message, type WorkerPace } from '@paceline/protocol';
import type { Connection, FrameNumbers, MessagePlace } from '../connection.js';
import { acquireRegion, bytesOf, type Region } from '../attempt/regions.js';
import { ServerTerms } from '../attempt/server-terms.js';
import { IdleDetector } from '../attempt/stall.js';
import { RegionReceiver, checkChunk, scratchOf, sendChunk, type EncodedParameters, type VectorName } from './chunk-frames.js';
import { partOf, type GradientNode, type MemberChunk } from './chunks.js';
import { WorkerTraffic } from './traffic.js';

/** A gradient that is kept to be sent again. Its memory goes back when it is let go and no socket reads it any more. */
export class HeldGradient {
  private holds = 1;
  /** Chunks that wait in the queue of a connection, by their index. One that has broken may yet let go of them, after another has come. */
  private readonly leaving = new WeakMap<Connection, Set<number>>();
  readonly vector: VectorName;
  readonly letGo = (): void => {
    if (--this.holds === 0) this.node.release();
  };

  /** By server: the place of the chunk that is to be sent next, where a window says how far it may go. */
  readonly next: number[];

  constructor(
    readonly node: GradientNode,
    servers = 0,
    /** Without a codec it would be in the sum of others. */
    private readonly isExtra = false,
  ) {
    this.next = new Array<number>(servers).fill(0);
    this.vector = { type: FrameType.gradient, round: node.round, lo: node.lo, hi: node.hi };
  }

  /**
   * Sends a chunk of it, unless that waits in the queue already: a connection that holds delivers what it was given.
   * @param isAsked it was delivered and dropped, though its write may not be over here
   * @returns bytes by which it is shorter than what would be sent without a codec
   */
  send(to: Connection, numbers: FrameNumbers, chunk: MemberChunk, isAsked = false): number {
    const { index } = chunk;
    const leaving = this.leavingOver(to);
    if (leaving.has(index) && !isAsked) return 0;
    leaving.add(index);
    this.holds++;
    const part = this.node.chunk(chunk);
    sendChunk(to, numbers, this.vector, index, part, () => {
      leaving.delete(index);
      this.letGo();
    });
    return this.isExtra ? -HEADER_BYTES - part.bytes.length : bytesOf(chunk.length) - part.bytes.length;
  }

  /** What a chunk of it takes. */
  bytesOf(chunk: MemberChunk): number {
    return this.node.chunk(chunk).bytes.length;
  }

  private leavingOver(connection: Connection): Set<number> {
    const leaving = this.leaving.get(connection) ?? new Set<number>();
    this.leaving.set(connection, leaving);
    return leaving;
  }
}

interface WorkerOptions {
  readonly id: string;
  readonly attempt: number;
  readonly servers: number;
  readonly chunks: readonly MemberChunk[];
  readonly parameters?: EncodedParameters | undefined;
}

export abstract class WorkerTransfer<Options extends WorkerOptions> {
  abstract readonly table: { take(row: 'staleTerm'): void };
  abstract readonly round: number;
  private readonly connections: (Connection | undefined)[];
  /** Chunks of tables that are exchanged by rows are not among them. */
  protected readonly byIndex: ReadonlyMap<number, MemberChunk>;
  protected readonly terms: ServerTerms;
  protected readonly rest = new IdleDetector();
  private readonly traffic = new WorkerTraffic();
  private restBeats = 0;
  replicas: readonly number[] = [];
  /** By the server that sends it: the payload that is coming in goes to its place in the vector, and not to scratch. */
  private readonly isKept: boolean[] = [];
  /** Of encoded chunks, by the server that sends them. */
  private readonly receivers: RegionReceiver[];
  /** Seats held in the run, for the fairness rule at the end of a slice. */
  heldSeats = 0;
  view = 0;
  /** Term of its coordinator. */
  term = 0;

  constructor(protected readonly options: Options) {
    this.byIndex = new Map(options.chunks.map((chunk) => [chunk.index, chunk]));
    this.connections = new Array<Connection | undefined>(options.servers).fill(undefined);
    this.receivers = Array.from({ length: options.servers }, () => new RegionReceiver(options.parameters?.decoder));
    this.terms = new ServerTerms(options.servers, () => this.table.take('staleTerm'));
  }

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  /** A server has answered HELLO: frames may be sent to it from here on. */
  attach(server: number, connection: Connection): void {
    const former = this.connections[server];
    if (former) this.traffic.ended(former);
    this.receivers[server]!.letGo();
    this.connections[server] = connection;
  }

  /** False when another connection has taken its place. */
  detach(server: number, connection: Connection): boolean {
    if (this.connections[server] !== connection) return false;
    this.traffic.ended(connection);
    this.receivers[server]!.letGo();
    this.connections[server] = undefined;
    return true;
  }

  /** A message is about to come, in this term. @throws ProtocolError STALE_TERM when it is one of a former primary */
  hears(server: number, term: number): void {
    this.terms.hears(server, term);
  }

  failed(code: string, message: string, round: number, replica: number): void {
    this.send(0, { type: 'failed', code: code.slice(0, 100), message: message.slice(0, 2000), round, replica });
  }

  /** Behind its gradients: who may go at once is hung up on. */
  leave(reason: string): void {
    this.send(0, { type: 'leave', reason: reason.slice(0, 300) }, 'behind data');
  }

  protected send(server: number, message: Message, place?: MessagePlace): void {
    this.connections[server]?.sendMessage(message, this.numbers(), place);
  }

  /** To the server that owns the chunk. */
  protected sendToOwner(chunk: number, message: Message): void {
    this.send(this.byIndex.get(chunk)!.server, message);
  }

  protected connectionTo(server: number): Connection | undefined {
    return this.connections[server];
  }

  /** Something has come that is shorter than it would be as a whole. */
  protected receivedShorter(server: number, bytes: number): void {
    this.traffic.received(this.connections[server], bytes);
  }

  /**
   * Says that this process lives, and by `progress` that its compute thread moves. A thread that owes nothing is at rest, not stuck: the number
   * moves for it. The coordinator learns what has passed over the sockets.
   */
  protected beat(computed: number, isComputing: boolean, measured?: { asks(): number; readonly pace: WorkerPace | undefined }): void {
    if (!isComputing) this.restBeats++;
    const rests = this.rest.rests(isComputing, this.connections);
    const progress = computed + this.restBeats;
    const traffic = this.traffic.counts(this.connections);
    const pace = measured?.pace;
    const ofCoordinator = { traffic, ...(pace ? { pace } : {}), ...(measured ? { echo: measured.asks() } : {}) };
    for (const server of this.connections.keys())
      this.send(server, { type: 'heartbeat', progress, rests, ...(server === 0 ? ofCoordinator : {}) });
  }

  protected takeMembers(view: number, term: number, members: Members): void {
    this.view = Math.max(this.view, view);
    this.term = Math.max(this.term, term);
    this.heldSeats = members.length;
    this.replicas = members.find(({ id }) => id === this.options.id)?.replicas ?? [];
  }

  /** What it waits for where a server is not connected. */
  protected missingConnection(): string | undefined {
    const missing = this.connections.findIndex((connection) => !connection?.isOpen);
    return missing < 0 ? undefined : `the connection to parameter server ${missing}`;
  }

  /** The chunk of a frame whose payload is about to be read. @throws ProtocolError for what no server sends */
  protected chunkOf(header: FrameHeader): MemberChunk {
    const chunk = this.byIndex.get(header.chunk);
    checkChunk(header, FrameType.parameters, this.options.attempt, chunk, this.options.parameters?.decoder);
    this.rest.moved();
    this.terms.check(chunk.server, header.term);
    return chunk;
  }

  /** A chunk that has come with others. @throws ProtocolError for what no server sends */
  check(header: FrameHeader): void {
    this.chunkOf(header);
  }

  /** Whether these are all chunks of a vector. @param have by their index */
  protected isWhole(have: ReadonlySet<number>): boolean {
    return have.size === this.options.chunks.length;
  }

  /** Where its payload goes: its part of `vector`, the bytes that it is decoded from, or scratch when it is not wanted. */
  protected destination(header: FrameHeader, chunk: MemberChunk, vector: Uint8Array | undefined): Uint8Array {
    const { parameters } = this.options;
    this.isKept[chunk.server] = vector !== undefined;
    if (!vector) return scratchOf(header.length);
    if (header.codec === Codec.none || !parameters) return partOf(vector, chunk);
    return this.receivers[chunk.server]!.receive(header, { index: chunk.index, length: chunk.length, arena: parameters.arena });
  }

  /**
   * What `destination` has decided about the payload that is whole now: true when it lies in its place.
   * @param vector of its generation
   * @param base of the generation before, for a difference; undefined: it is not there any more
   * @throws ProtocolError BAD_PAYLOAD
   */
  protected wasKept({ chunk: index, codec, length }: FrameHeader, vector: () => Uint8Array, base?: () => Uint8Array | undefined): boolean {
    const chunk = this.byIndex.get(index)!;
    if (codec !== Codec.none) this.traffic.received(this.connections[chunk.server], bytesOf(chunk.length) - length);
    if (this.isKept[chunk.server] !== true) return false;
    if (codec === Codec.none) return true;
    const region = this.receivers[chunk.server]!.received();
    if (!region) return false;
    const held = this.isDifference(codec) ? base?.() : undefined;
    const isThere = held !== undefined || !this.isDifference(codec);
    if (held) addTo(region, partOf(held, chunk));
    if (isThere) partOf(vector(), chunk).set(region.bytes);
    region.release();
    return isThere;
  }

  protected isDifference(codec: number): boolean {
    return codec !== Codec.none && codec === this.options.parameters?.decoder.difference;
  }

  /** To the server that owns the chunk, where it is connected. */
  protected sendChunk(gradient: HeldGradient, chunk: MemberChunk, isAsked = false): void {
    const connection = this.connections[chunk.server];
    if (!connection?.isOpen) return;
    this.traffic.sent(connection, gradient.send(connection, this.numbers(), chunk, isAsked));
  }
}

/** Adds float32 elements, as the server has added them. The kernel adds in the arena alone, so they are copied there. */
function addTo(region: Region, values: Uint8Array): void {
  const base = acquireRegion(region.arena, region.length);
  base.bytes.set(values);
  region.add(base);
  base.release();
}
