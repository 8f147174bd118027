/**
 * A worker's side of the transfer layer, in all modes: its connections to the servers of a run, parameter chunks that come in over them, gradient chunks
 * that go out, and where the worker stands. What is wanted, kept or sent again is decided by the machine (Member, AsyncMember).
 *
 *   servers ── parameters ──> chunkOf, then `destination` in the flat vector, or scratch
 *   compute thread ── gradient node ──> HeldGradient ── chunk by chunk ──> servers ── let go, and flushed by all sockets ──> released
 */
import { Codec, FrameType, type FrameHeader, type Members, type Message } from '@paceline/protocol';
import type { Connection, FrameNumbers, MessagePlace } from '../connection.js';
import { bytesOf } from '../attempt/regions.js';
import { ServerTerms } from '../attempt/server-terms.js';
import { IdleDetector } from '../attempt/stall.js';
import { checkChunk, scratchOf, sendChunk, type ChunkBytes, type VectorName } from './chunk-frames.js';
import type { GradientNode, MemberChunk } from './chunks.js';

const partOf = (vector: Uint8Array, { offset, length }: Pick<MemberChunk, 'offset' | 'length'>): Uint8Array =>
  vector.subarray(bytesOf(offset), bytesOf(offset + length));

/** The bytes of a chunk as they are sent: of the flat vector, or as encoded. */
function sentPartOf({ bytes, encoded }: GradientNode, chunk: MemberChunk): ChunkBytes {
  if (!encoded) return { codec: Codec.none, bytes: partOf(bytes, chunk) };
  const [codec, offset, length] = [encoded.codecs[chunk.index]!, encoded.offsets[chunk.index]!, encoded.lengths[chunk.index]!];
  return { codec, bytes: bytes.subarray(offset, offset + length) };
}

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
  ) {
    this.next = new Array<number>(servers).fill(0);
    this.vector = { type: FrameType.gradient, round: node.round, lo: node.lo, hi: node.hi };
  }

  /**
   * Sends a chunk of it, unless that waits in the queue already: a connection that holds delivers what it was given.
   * @param isAsked it was delivered and dropped, though its write may not be over here
   */
  send(to: Connection, numbers: FrameNumbers, chunk: MemberChunk, isAsked = false): void {
    const { index } = chunk;
    const leaving = this.leavingOver(to);
    if (leaving.has(index) && !isAsked) return;
    leaving.add(index);
    this.holds++;
    sendChunk(to, numbers, this.vector, index, sentPartOf(this.node, chunk), () => {
      leaving.delete(index);
      this.letGo();
    });
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
}

export abstract class WorkerTransfer<Options extends WorkerOptions> {
  abstract readonly table: { take(row: 'staleTerm'): void };
  abstract readonly round: number;
  private readonly connections: (Connection | undefined)[];
  protected readonly terms: ServerTerms;
  protected readonly rest = new IdleDetector();
  private restBeats = 0;
  replicas: readonly number[] = [];
  /** By the server that sends it: the payload that is coming in goes to its place in the vector, and not to scratch. */
  private readonly isKept: boolean[] = [];
  /** Seats held in the run, for the fairness rule at the end of a slice. */
  heldSeats = 0;
  view = 0;
  /** Term of its coordinator. */
  term = 0;

  constructor(protected readonly options: Options) {
    this.connections = new Array<Connection | undefined>(options.servers).fill(undefined);
    this.terms = new ServerTerms(options.servers, () => this.table.take('staleTerm'));
  }

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  /** A server has answered HELLO: frames may be sent to it from here on. */
  attach(server: number, connection: Connection): void {
    this.connections[server] = connection;
  }

  /** False when another connection has taken its place. */
  detach(server: number, connection: Connection): boolean {
    if (this.connections[server] !== connection) return false;
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

  /**
   * Says that this process lives, and by `progress` that its compute thread moves. A thread that owes nothing is at rest, not stuck: the number
   * moves for it.
   */
  protected beat(computed: number, isComputing: boolean): void {
    if (!isComputing) this.restBeats++;
    const rests = this.rest.rests(isComputing, this.connections);
    const progress = computed + this.restBeats;
    for (const server of this.connections.keys()) this.send(server, { type: 'heartbeat', progress, rests });
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
    const chunk = this.options.chunks[header.chunk];
    checkChunk(header, FrameType.parameters, this.options.attempt, chunk);
    this.rest.moved();
    this.terms.check(chunk.server, header.term);
    return chunk;
  }

  /** Whether these are all chunks of a vector. @param have by their index */
  protected isWhole(have: ReadonlySet<number>): boolean {
    return have.size === this.options.chunks.length;
  }

  /** Where its payload goes: its part of `vector`, or scratch when it is not wanted. */
  protected destination(chunk: MemberChunk, vector: Uint8Array | undefined): Uint8Array {
    this.isKept[chunk.server] = vector !== undefined;
    return vector ? partOf(vector, chunk) : scratchOf(bytesOf(chunk.length));
  }

  /** What `destination` has decided about the payload that is whole now: it lies in its place. */
  protected wasKept({ chunk }: FrameHeader): boolean {
    return this.isKept[this.options.chunks[chunk]!.server] === true;
  }

  /** To the server that owns the chunk, where it is connected. */
  protected sendChunk(gradient: HeldGradient, chunk: MemberChunk, isAsked = false): void {
    const connection = this.connections[chunk.server];
    if (!connection?.isOpen) return;
    gradient.send(connection, this.numbers(), chunk, isAsked);
  }
}
