/**
 * What a codec keeps of the replicas of a member, to a checkpoint and from one.
 *
 *   COMMIT(k) with `checkpoint` ──> copies of what round k has left ── each chunk as its server pulls it ──> let go with the last one, or by a later checkpoint
 *   WELCOME with `residuals` k, round k+1 ──> a replica that is asked for is pulled, chunk by chunk ──> taken by the compute thread ──> computed
 *
 * A server may pull before COMMIT has come here: that waits. A replica of which a chunk is not there is computed without what was kept, and its contribution
 * says so.
 */
import { ProtocolError, type FrameHeader, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { scratchOf } from '../transfer/chunk-frames.js';
import { sendResidual, type ReplicaResidual, type ResidualLayout } from '../transfer/residuals.js';
import type { ComputePort } from './member-table.js';

type Pull = MessageOf<'residual-pull'>;

/** Of one server: more than it pulls at once. */
const MOST_WAITING = 16;

interface Copies {
  readonly round: number;
  /** Undefined while the compute thread makes them. */
  values: Map<number, Copy> | undefined;
}

interface Copy {
  readonly values: Float32Array;
  /** Chunks that no server has pulled. */
  readonly left: Set<number>;
}

/** A replica that is pulled. */
interface Taking {
  readonly replica: number;
  readonly values: Float32Array<ArrayBuffer>;
  readonly missing: Set<number>;
}

interface OwnedChunk {
  readonly index: number;
  readonly server: number;
}

interface Options {
  readonly compute: Pick<ComputePort, 'readResiduals' | 'takeResidual'>;
  readonly chunks: readonly OwnedChunk[];
}

export class MemberResiduals {
  private copies: Copies | undefined;
  private readonly waiting: { readonly server: number; readonly pull: Pull }[] = [];
  /** What the checkpoint has that the attempt began with: of which round. */
  private stored: number | undefined;
  private taking: Taking | undefined;
  /** Replicas in the order in which they are asked for, each with what follows. */
  private line: { readonly replica: number | undefined; readonly then: (() => void) | undefined }[] = [];
  private readonly kept: readonly OwnedChunk[];

  constructor(
    private readonly layout: ResidualLayout,
    private readonly options: Options,
    private readonly connectionTo: (server: number) => Connection | undefined,
    private readonly numbers: () => FrameNumbers,
  ) {
    this.kept = options.chunks.filter(({ index }) => layout.lengthOf(index) > 0);
  }

  // ---- to a checkpoint ----

  /** COMMIT(round) takes a checkpoint. @param replicas that were computed here */
  checkpointed(round: number, replicas: readonly number[]): void {
    if (this.copies && this.copies.round >= round) return;
    this.copies = { round, values: undefined };
    this.options.compute.readResiduals?.(round, replicas);
    if (!this.options.compute.readResiduals) this.copied(round, []);
  }

  /** The compute thread has made copies. */
  copied(round: number, residuals: readonly ReplicaResidual[]): void {
    if (this.copies?.round !== round) return;
    const left = (): Set<number> => new Set(this.kept.map(({ index }) => index));
    this.copies.values = new Map(residuals.map(({ replica, values }) => [replica, { values, left: left() }]));
    this.answerWaiting();
  }

  /** @throws ProtocolError BAD_ROUND for more than a server pulls at once */
  pulled(server: number, pull: Pull, round: number): void {
    if (!this.mustWait(pull, round)) return this.answer(server, pull);
    if (this.waiting.filter((each) => each.server === server).length >= MOST_WAITING)
      throw new ProtocolError('BAD_ROUND', 'more pulls of what is kept than a server has at once');
    this.waiting.push({ server, pull });
  }

  private mustWait(pull: Pull, round: number): boolean {
    const isComing = this.copies?.round === pull.round && this.copies.values === undefined;
    return isComing || (pull.round >= round && pull.round !== this.copies?.round);
  }

  private answerWaiting(round = 0): void {
    for (const { server, pull } of this.waiting.splice(0)) {
      if (this.mustWait(pull, round)) this.waiting.push({ server, pull });
      else this.answer(server, pull);
    }
  }

  private answer(server: number, { round, replica, chunk }: Pull): void {
    const connection = this.connectionTo(server);
    if (!connection) return;
    const values = this.copies?.round === round ? this.copies.values : undefined;
    const copy = values?.get(replica);
    const isLeft = copy?.left.delete(chunk) ?? false;
    if (copy?.left.size === 0) values!.delete(replica);
    sendResidual(connection, this.numbers(), { round, replica, chunk }, isLeft ? this.layout.part(copy!.values, chunk) : undefined);
  }

  // ---- from a checkpoint ----

  welcome(server: number, { residuals }: MessageOf<'welcome'>): void {
    this.stored = residuals ?? this.stored;
    this.sendAgain(server);
  }

  /** Replicas wait for what the checkpoint has of them: no compute thread owes anything for these. */
  get isTaking(): boolean {
    return this.taking !== undefined;
  }

  /** Calls `then` when everything is taken that the checkpoint has of these replicas; at once in a round that does not follow it. */
  prepare(round: number, replicas: readonly number[], then: () => void): void {
    if (this.stored === undefined || this.stored !== round - 1 || !this.options.compute.takeResidual || this.kept.length === 0)
      return this.line.length > 0 ? void this.line.push({ replica: undefined, then }) : then();
    for (const replica of replicas) this.line.push({ replica, then: undefined });
    this.line.push({ replica: undefined, then });
    this.next();
  }

  /** Pulls what is missing again, of one server or of all. */
  sendAgain(server?: number): void {
    for (const chunk of this.kept)
      if (this.taking?.missing.has(chunk.index) && (server === undefined || chunk.server === server)) this.pull(this.taking, chunk);
  }

  /** Where a chunk goes. @throws ProtocolError */
  payloadFor(header: FrameHeader): Uint8Array {
    this.layout.check(header);
    const taking = this.takingOf(header);
    return taking && header.length > 0 ? this.layout.part(taking.values, header.chunk) : scratchOf(header.length);
  }

  data(header: FrameHeader): void {
    const taking = this.takingOf(header);
    if (!taking) return;
    taking.missing.delete(header.chunk);
    if (header.length > 0 && taking.missing.size > 0) return;
    this.taking = undefined;
    // Where a chunk is missing, nothing of the replica is taken.
    if (header.length > 0) this.options.compute.takeResidual!(header.round, { replica: taking.replica, values: taking.values });
    this.next();
  }

  /** The round is known to be this one: nothing of earlier ones is waited for. */
  moveTo(round: number): void {
    this.taking = undefined;
    this.line = [];
    this.answerWaiting(round);
  }

  private takingOf({ round, nodeLo, chunk }: FrameHeader): Taking | undefined {
    const { taking } = this;
    return taking && round === this.stored && nodeLo === taking.replica && taking.missing.has(chunk) ? taking : undefined;
  }

  private next(): void {
    if (this.taking) return;
    for (let head = this.line.shift(); head; head = this.line.shift()) {
      if (head.replica === undefined) {
        head.then!();
        continue;
      }
      const values = new Float32Array(this.layout.totalLength);
      this.taking = { replica: head.replica, values, missing: new Set(this.kept.map(({ index }) => index)) };
      for (const chunk of this.kept) this.pull(this.taking, chunk);
      return;
    }
  }

  private pull({ replica }: Taking, { index, server }: OwnedChunk): void {
    const pull = { type: 'residual-pull', round: this.stored!, replica, chunk: index } as const;
    this.connectionTo(server)?.sendMessage(pull, this.numbers());
  }
}
