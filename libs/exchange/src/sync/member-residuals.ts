/**
 * What a codec keeps of the replicas of a member: to a checkpoint and from one, and from a worker that computed a replica to the one that has it next.
 *
 *   COMMIT(k) with `checkpoint` ──> copies of what round k has left ── each chunk as its server pulls it ──> let go with the last one, or by a later checkpoint
 *   COMMIT(k) with `handedOn`, of a replica that was computed here ──> a copy ── each chunk as a server pulls it for its next worker ──> let go by COMMIT(k+1)
 *   the same, of a replica that is computed here now, or WELCOME with `residuals` k ──> it is pulled, chunk by chunk ──> taken by the compute thread ──> computed
 *
 * A server may pull before COMMIT has come here: that waits. A replica of which a chunk is not there is computed without what was kept, and its contribution
 * says so.
 */
import { ProtocolError, type FrameHeader, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { scratchOf } from '../transfer/chunk-frames.js';
import { sendResidual, sendResidualPull, type ReplicaResidual, type ResidualLayout } from '../transfer/residuals.js';
import type { ComputePort } from './member-table.js';

type Pull = MessageOf<'residual-pull'>;

/** Copies of what a round has left of replicas: undefined while the compute thread makes them. */
interface Copies {
  readonly round: number;
  readonly replicas: readonly number[];
  values: Map<number, Copy> | undefined;
}

interface Copy {
  readonly values: Float32Array;
  /** Chunks that were not sent yet, and how often each will be. */
  readonly left: Map<number, number>;
}

/** What may be pulled of what a round has left: all replicas from a checkpoint, some of them from other workers. */
interface Offer {
  readonly round: number;
  /** Undefined: all. */
  readonly replicas: ReadonlySet<number> | undefined;
}

/** A replica that is pulled. */
interface Taking {
  readonly round: number;
  readonly replica: number;
  readonly values: Float32Array<ArrayBuffer>;
  readonly missing: Set<number>;
}

/** A replica that is to be pulled, or what is done when those before it are taken. */
type Waiting = { readonly replica: number; readonly round: number } | { readonly then: () => void };

interface OwnedChunk {
  readonly index: number;
  readonly server: number;
}

interface Options {
  readonly compute: Pick<ComputePort, 'readResiduals' | 'takeResidual'>;
  readonly chunks: readonly OwnedChunk[];
  /** EF21: a replica is not computed without what was kept of it. */
  readonly mayNotLack?: boolean | undefined;
  /** All that other workers may want of a round was sent. */
  allSent(round: number): void;
  /** The replica goes on from what was kept elsewhere. */
  taken(replica: number): void;
}

export class MemberResiduals {
  /** For a checkpoint. */
  private stored: Copies | undefined;
  /** For workers that compute these replicas now: until the next COMMIT. */
  private handedOn: Copies | undefined;
  private readonly waiting: { readonly server: number; readonly pull: Pull }[] = [];
  private offer: Offer | undefined;
  private taking: Taking | undefined;
  /** Replicas in the order in which they are asked for, each with what follows. */
  private line: Waiting[] = [];
  private readonly kept: readonly OwnedChunk[];

  constructor(
    private readonly layout: ResidualLayout,
    private readonly options: Options,
    private readonly connectionTo: (server: number) => Connection | undefined,
    private readonly numbers: () => FrameNumbers,
  ) {
    this.kept = options.chunks.filter(({ index }) => layout.lengthOf(index) > 0);
  }

  // ---- to a checkpoint, and to other workers ----

  /** @param computed replicas whose contribution to the round was told before it was committed: what it has left of these is known to be right, or told to be lost */
  committed({ round, checkpoint = false, handedOn = [] }: MessageOf<'commit'>, computed: readonly number[]): void {
    const given = computed.filter((replica) => handedOn.includes(replica));
    const offered = handedOn.filter((replica) => !computed.includes(replica));
    this.handedOn = given.length > 0 ? { round, replicas: given, values: undefined } : undefined;
    this.offer = offered.length > 0 ? { round, replicas: new Set(offered) } : undefined;
    if (checkpoint) this.stored = { round, replicas: computed, values: undefined };
    const wanted = checkpoint ? computed : given;
    if (!checkpoint && given.length === 0) return;
    if (this.options.compute.readResiduals) this.options.compute.readResiduals(round, wanted);
    else this.copied(round, []);
  }

  /** The compute thread has made copies. */
  copied(round: number, residuals: readonly ReplicaResidual[]): void {
    const { stored, handedOn } = this;
    const copiesOf = (replicas: readonly number[], times: number): Map<number, Copy> => {
      const left = (): Copy['left'] => new Map(this.kept.map(({ index }) => [index, times]));
      const own = residuals.filter(({ replica }) => replicas.includes(replica));
      return new Map(own.map(({ replica, values }) => [replica, { values, left: left() }]));
    };
    if (stored?.round === round) stored.values = copiesOf(stored.replicas, 1);
    // A server pulls it for its checkpoint too.
    if (handedOn?.round === round) {
      handedOn.values = copiesOf(handedOn.replicas, stored?.round === round ? 2 : 1);
      this.tellSent(); // there may be nothing
    }
    this.answerWaiting();
  }

  /** @throws ProtocolError BAD_ROUND for more than a server pulls at once */
  pulled(server: number, pull: Pull, round: number): void {
    if (!this.mustWait(pull, round)) return this.answer(server, pull);
    // Each chunk once for a checkpoint, and once for another worker.
    const most = 2 * this.kept.length * this.layout.replicas;
    if (this.waiting.filter((each) => each.server === server).length >= most)
      throw new ProtocolError('BAD_ROUND', 'more pulls of what is kept than all replicas have chunks');
    this.waiting.push({ server, pull });
  }

  private mustWait(pull: Pull, round: number): boolean {
    const copies = [this.stored, this.handedOn].filter((each) => each?.round === pull.round);
    return copies.length > 0 ? copies.some((each) => each!.values === undefined) : pull.round >= round;
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
    const { handedOn } = this;
    const handed = handedOn?.round === round ? handedOn.values?.get(replica) : undefined;
    const values = handed?.values ?? this.storedCopy(round, replica, chunk);
    const flushed = (): void => {
      if (!handed || !takeOne(handed, chunk) || handedOn !== this.handedOn) return;
      if (!handed.left.has(chunk)) this.storedCopy(round, replica, chunk);
      this.tellSent();
    };
    sendResidual(connection, this.numbers(), { round, replica, chunk }, values && this.layout.part(values, chunk), flushed);
  }

  private tellSent(): void {
    const { handedOn } = this;
    if (handedOn?.values && [...handedOn.values.values()].every(({ left }) => left.size === 0)) this.options.allSent(handedOn.round);
  }

  /** A server pulls each chunk once for its checkpoint: a replica of which it has all is let go. */
  private storedCopy(round: number, replica: number, chunk: number): Float32Array | undefined {
    const values = this.stored?.round === round ? this.stored.values : undefined;
    const copy = values?.get(replica);
    if (!copy || !takeOne(copy, chunk)) return undefined;
    if (copy.left.size === 0) values!.delete(replica);
    return copy.values;
  }

  // ---- from a checkpoint, and from other workers ----

  /** @param round of this member: a server may be behind it */
  welcome(server: number, { residuals }: MessageOf<'welcome'>, round: number): void {
    if (residuals !== undefined && residuals === round - 1) this.offer = { round: residuals, replicas: undefined };
    this.sendAgain(server);
  }

  /** What a COMMIT has handed on is being copied. */
  get isCopying(): boolean {
    return this.handedOn !== undefined && this.handedOn.values === undefined;
  }

  /** The replica waits for what was kept of it elsewhere: no compute thread owes anything for it. */
  awaits(replica: number): boolean {
    return this.taking?.replica === replica || this.line.some((each) => 'replica' in each && each.replica === replica);
  }

  /** Computes the replicas: at once those of which nothing is offered, and the others together when it is taken. */
  prepare(round: number, replicas: readonly number[], compute: (replicas: readonly number[]) => void): void {
    const { offer, line } = this;
    const canTake = this.kept.length > 0 && this.options.compute.takeResidual !== undefined && offer?.round === round - 1;
    const taken = canTake ? replicas.filter((replica) => offer.replicas?.has(replica) ?? true) : [];
    const own = replicas.filter((replica) => !taken.includes(replica));
    if (own.length > 0) compute(own);
    if (taken.length === 0) return;
    for (const replica of taken) line.push({ replica, round: round - 1 });
    line.push({ then: () => compute(taken) });
    this.next();
  }

  /** The round stands still. A checkpoint is asked again; of another worker nothing more is awaited, unless the replica may not be computed without. */
  tellAgain(): void {
    if (this.offer?.replicas === undefined || this.options.mayNotLack) return this.sendAgain();
    this.offer = undefined;
    this.taking = undefined;
    this.line = this.line.filter((each) => 'then' in each);
    this.next();
  }

  /** Pulls what is missing again, of one server or of all. */
  private sendAgain(server?: number): void {
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
    if (header.length > 0) {
      this.options.taken(taking.replica);
      this.options.compute.takeResidual!(header.round, { replica: taking.replica, values: taking.values });
    }
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
    return round === taking?.round && nodeLo === taking.replica && taking.missing.has(chunk) ? taking : undefined;
  }

  private next(): void {
    if (this.taking) return;
    for (let head = this.line.shift(); head; head = this.line.shift()) {
      if ('then' in head) {
        head.then();
        continue;
      }
      const values = new Float32Array(this.layout.totalLength);
      const missing = new Set(this.kept.map(({ index }) => index));
      this.taking = { round: head.round, replica: head.replica, values, missing };
      for (const chunk of this.kept) this.pull(this.taking, chunk);
      return;
    }
  }

  private pull({ round, replica }: Taking, { index, server }: OwnedChunk): void {
    const connection = this.connectionTo(server);
    if (connection) sendResidualPull(connection, this.numbers(), { round, replica, chunk: index });
  }
}

/** @returns false when it was sent as often as it was to be */
function takeOne({ left }: Copy, chunk: number): boolean {
  const times = left.get(chunk);
  if (times === undefined) return false;
  if (times > 1) left.set(chunk, times - 1);
  else left.delete(chunk);
  return true;
}
