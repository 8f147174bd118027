/**
 * A worker's connections to the servers of its run, in both modes: parameter chunks come in over them, gradient chunks go out.
 *
 *   servers ── parameters ──> check, then into the flat vector or scratch
 *   compute thread ── gradient node ──> hold ── chunk by chunk ──> servers ── released by its machine and flushed by all sockets ──> released
 *
 * What is wanted, kept, skipped or sent again is the decision of the machine (Member, TokenMember).
 */
import { FrameType, type FrameHeader, type Message } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { ServerTerms } from '../rounds/server-terms.js';
import { RestWatch } from '../rounds/stall.js';
import { bytesOf } from '../rounds/regions.js';
import { checkChunk, scratchOf, sendChunk } from './chunk-frames.js';
import type { GradientNode, MemberChunk } from './chunks.js';

/** A gradient that its machine keeps to send it again. */
export class HeldGradient {
  /** Socket writes that still read its memory, plus one until the machine lets go. */
  private holds = 1;
  readonly letGo = (): void => {
    if (--this.holds === 0) this.node.release();
  };

  constructor(readonly node: GradientNode) {}

  hold(): void {
    this.holds++;
  }
}

export interface ParameterLinkOptions {
  readonly attempt: number;
  readonly servers: number;
  readonly chunks: readonly MemberChunk[];
}

export class ParameterLink {
  private readonly connections: (Connection | undefined)[];
  private readonly terms: ServerTerms;
  private readonly rest = new RestWatch();
  private restBeats = 0;

  /** @param refused a message or chunk of an older term than its shard has was refused */
  constructor(
    private readonly options: ParameterLinkOptions,
    private readonly numbers: () => FrameNumbers,
    refused: () => void,
  ) {
    this.connections = new Array<Connection | undefined>(options.servers).fill(undefined);
    this.terms = new ServerTerms(options.servers, refused);
  }

  /** A server has answered HELLO. */
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

  /** WELCOME. True when a standby has taken the shard over since the last one. @throws ProtocolError STALE_TERM */
  welcomes(server: number, term: number): boolean {
    return this.terms.welcomes(server, term);
  }

  send(server: number, message: Message): void {
    this.connections[server]?.sendMessage(message, this.numbers());
  }

  failed(code: string, message: string, round: number, replica: number): void {
    this.send(0, { type: 'failed', code: code.slice(0, 100), message: message.slice(0, 2000), round, replica });
  }

  leave(reason: string): void {
    this.send(0, { type: 'leave', reason: reason.slice(0, 300) });
  }

  /**
   * Says that this process lives, and by `progress` that its compute thread moves. A thread that owes nothing is at rest,
   * not stuck: the number moves for it.
   */
  heartbeat(computed: number, isComputing: boolean): void {
    if (!isComputing) this.restBeats++;
    const rests = this.rest.rests(isComputing, this.connections);
    const progress = computed + this.restBeats;
    for (let server = 0; server < this.connections.length; server++) this.send(server, { type: 'heartbeat', progress, rests });
  }

  /** A server that is not connected, for messages. */
  missingServer(): number | undefined {
    const missing = this.connections.findIndex((connection) => !connection?.isOpen);
    return missing < 0 ? undefined : missing;
  }

  /** The chunk of a frame whose payload is about to be read. @throws ProtocolError for what no server sends */
  check(header: FrameHeader): MemberChunk {
    const chunk = this.options.chunks[header.chunk];
    checkChunk(header, FrameType.parameters, this.options.attempt, chunk);
    this.rest.moved();
    this.terms.check(chunk.server, header.term);
    return chunk;
  }

  /** Where the payload goes: its part of `vector`, or scratch where it is not wanted. */
  destination({ offset, length }: MemberChunk, vector: Uint8Array | undefined): Uint8Array {
    return vector ? vector.subarray(bytesOf(offset), bytesOf(offset + length)) : scratchOf(bytesOf(length));
  }

  /** A whole chunk has come. */
  moved(): void {
    this.rest.moved();
  }

  /** A chunk of a gradient to the server that owns it, where it is connected. */
  sendChunk(gradient: HeldGradient, { index, offset, length, server }: MemberChunk): void {
    const connection = this.connections[server];
    if (!connection?.isOpen) return;
    gradient.hold();
    const bytes = gradient.node.bytes.subarray(bytesOf(offset), bytesOf(offset + length));
    sendChunk(connection, FrameType.gradient, this.numbers(), gradient.node, index, bytes, gradient.letGo);
  }
}
