/**
 * What a codec keeps of replicas, as a shard sees it: it pulls its chunks of them for the checkpoint that it writes, answers the workers that go on from
 * one, and passes on what a worker gives away. Nothing of it stays in memory.
 *
 *   COMMIT(k) with `checkpoint` ──> ResidualGathering: the writer reads chunk by chunk, a few are pulled ahead ──> what nobody has is undefined
 *   pull of a worker in the first round of the attempt ──> read from the checkpoint, a few ahead for each connection ──> sent
 *   COMMIT(k) with `handedOn` ──> pull of the worker that computes the replica now ──> pulled from the one that computed it in round k ──> sent
 */
import { checkAttempt, FrameType, ProtocolError, type FrameHeader, type Members, type MessageOf } from '@paceline/protocol';
import type { FrameNumbers } from '../connection.js';
import { scratchOf } from '../transfer/chunk-frames.js';
import {
  sendResidual,
  type GatheredResiduals,
  type ResidualLayout,
  type ResidualName,
  type StoredResiduals,
} from '../transfer/residuals.js';
import type { ShardLink } from '../transfer/shard-transfer.js';
import { ResidualPulls, type Holder } from './residual-pulls.js';

type Pull = MessageOf<'residual-pull'>;

/** Chunks that are under way to the writer of a checkpoint, or to a worker. */
const PULLED_AHEAD = 4;

export interface ShardResidualsOptions {
  readonly layout: ResidualLayout;
  readonly replicas: number;
  /** Chunks of the shard. */
  readonly chunks: readonly number[];
  /** Known when the checkpoint is loaded. */
  stored(): StoredResiduals | undefined;
}

/** The shard that it belongs to. */
interface Surroundings {
  numbers(): FrameNumbers;
  round(): number;
  isOpen(link: ShardLink): boolean;
  /** The connection of a worker, where it is open. */
  linkOf(id: string | undefined): ShardLink | undefined;
  /** Whether the present view gives the replica to this worker. */
  computes(id: string, replica: number): boolean;
}

/** Pulls a few pieces ahead of the one that is read. */
export class ResidualGathering implements GatheredResiduals {
  /** By the number of the piece. */
  private readonly pieces = new Map<number, Promise<Uint8Array | undefined>>();
  readonly pulls: ResidualPulls;
  readonly names: readonly ResidualName[];

  constructor(
    round: number,
    replicas: number,
    private readonly residuals: ResidualLayout,
    chunks: readonly number[],
    private readonly holders: Map<number, ShardLink>,
    numbers: () => FrameNumbers,
  ) {
    this.pulls = new ResidualPulls(round, (replica) => this.holders.get(replica), numbers);
    this.names = Array.from({ length: replicas }, (_, replica) =>
      residuals.kept(chunks).map((chunk) => ({ round, replica, chunk })),
    ).flat();
  }

  lengthOf({ chunk }: ResidualName): number {
    return this.residuals.lengthOf(chunk);
  }

  async read(piece: number): Promise<Uint8Array | undefined> {
    for (let next = piece; next < Math.min(piece + PULLED_AHEAD, this.names.length); next++) {
      const { replica, chunk } = this.names[next]!;
      if (!this.pieces.has(next)) this.pieces.set(next, this.pulls.pull(replica, chunk));
    }
    const bytes = await this.pieces.get(piece)!;
    this.pieces.delete(piece);
    return bytes;
  }

  /** A connection is gone: nothing more is asked of it. */
  forget(link: ShardLink): void {
    for (const [replica, holder] of this.holders) if (holder === link) this.holders.delete(replica);
    this.pulls.forget(link);
  }

  abandon(): void {
    this.holders.clear();
    this.pulls.forget();
  }
}

export class ShardResiduals {
  private gathering: ResidualGathering | undefined;
  /** What the round before this one has left of replicas that other workers compute now. */
  private handedOn: ResidualPulls | undefined;
  /** Workers whose connections have come. */
  private readonly known = new Set<string>();
  /** Pulls that wait, by connection. */
  private readonly lines = new Map<ShardLink, Pull[]>();
  /** Answers that wait for the COMMIT of the present round: their workers have it already. */
  private early: { readonly link: ShardLink; readonly goOn: () => void }[] = [];

  constructor(
    private readonly options: ShardResidualsOptions,
    private readonly shard: Surroundings,
  ) {}

  /** For WELCOME: what a worker may pull in this round. */
  get offered(): { readonly residuals?: number } {
    const stored = this.options.stored();
    return stored && stored.round === this.shard.round() - 1 ? { residuals: stored.round } : {};
  }

  /** A checkpoint takes what `round` has left. @param members with their replicas in that round */
  gather(round: number, members: Members): ResidualGathering {
    this.gathering?.abandon();
    const holders = new Map<number, ShardLink>();
    for (const [replica, id] of holdersOf(members)) {
      const link = this.shard.linkOf(id);
      if (link) holders.set(replica, link);
    }
    const { replicas, layout, chunks } = this.options;
    this.gathering = new ResidualGathering(round, replicas, layout, chunks, holders, () => this.shard.numbers());
    return this.gathering;
  }

  /** The shard is in the round after `round`. @param handedOn replicas that others compute from now on @param members with their replicas in `round` */
  committed(round: number, handedOn: readonly number[], members: Members): void {
    this.handedOn?.forget();
    this.handedOn = undefined;
    if (handedOn.length > 0) {
      const holders = holdersOf(members);
      const holderOf = (replica: number): Holder => {
        const id = handedOn.includes(replica) ? holders.get(replica) : undefined;
        return this.shard.linkOf(id) ?? (id === undefined || this.known.has(id) ? undefined : 'awaited');
      };
      this.handedOn = new ResidualPulls(round, holderOf, () => this.shard.numbers());
    }
    for (const { goOn } of this.early.splice(0)) goOn();
  }

  /** @throws ProtocolError for what no member sends */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    this.check(link, header);
    return this.gathering?.pulls.payloadFor(link, header) ?? this.handedOn?.payloadFor(link, header) ?? scratchOf(header.length);
  }

  data(link: ShardLink, header: FrameHeader): void {
    if (!this.gathering?.pulls.data(link, header)) this.handedOn?.data(link, header);
  }

  /** @throws ProtocolError for what no member asks */
  pulled(link: ShardLink, pull: Pull): void {
    const { layout, chunks, replicas } = this.options;
    if (pull.replica >= replicas || !layout.kept(chunks).includes(pull.chunk))
      throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${pull.chunk} of what is kept of replica ${pull.replica}`);
    const line = this.lines.get(link);
    // What it does not await any more may stand in the line too.
    if (line && line.length > 2 * chunks.length * replicas)
      throw new ProtocolError('BAD_ROUND', 'more pulls of what is kept than all replicas have chunks');
    if (line) return void line.push(pull);
    this.lines.set(link, [pull]);
    void this.answer(link, this.lines.get(link)!);
  }

  attached({ id }: ShardLink): void {
    this.known.add(id);
    this.handedOn?.attached();
  }

  forget(link: ShardLink): void {
    this.lines.delete(link);
    this.gathering?.forget(link);
    this.handedOn?.forget(link);
    for (const { goOn } of this.early.filter((each) => each.link === link)) goOn();
    this.early = this.early.filter((each) => each.link !== link);
  }

  end(): void {
    this.lines.clear();
    this.gathering?.abandon();
    this.handedOn?.forget();
    for (const { goOn } of this.early.splice(0)) goOn();
  }

  private check(link: ShardLink, header: FrameHeader): void {
    if (header.type !== FrameType.residual)
      throw new ProtocolError('BAD_FRAME', `a frame of type ${header.type} where residuals are taken`);
    checkAttempt(header, this.shard.numbers().attempt);
    if (!link.streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
    this.options.layout.check(header);
  }

  /** In their order. A few are looked for while the first of them leaves. */
  private async answer(link: ShardLink, line: Pull[]): Promise<void> {
    const ahead: { readonly pull: Pull; readonly found: Promise<Uint8Array | undefined> }[] = [];
    for (;;) {
      for (const pull of line.splice(0, PULLED_AHEAD - ahead.length)) ahead.push({ pull, found: this.find(link, pull) });
      const first = ahead.shift();
      if (!first) break;
      const { round, replica, chunk } = first.pull;
      const bytes = await first.found;
      if (!this.shard.isOpen(link)) return;
      await new Promise<void>((flushed) => sendResidual(link.connection, this.shard.numbers(), { round, replica, chunk }, bytes, flushed));
    }
    if (this.lines.get(link) === line) this.lines.delete(link);
  }

  private async find(link: ShardLink, { round, replica, chunk }: Pull): Promise<Uint8Array | undefined> {
    if (round === this.shard.round()) await new Promise<void>((goOn) => this.early.push({ link, goOn }));
    if (round !== this.shard.round() - 1) return undefined;
    const stored = this.options.stored();
    if (stored?.round === round) return stored.read(replica, chunk);
    return this.shard.computes(link.id, replica) ? this.handedOn?.pull(replica, chunk) : undefined;
  }
}

/** The worker that computed each replica, by its id. */
const holdersOf = (members: Members): Map<number, string> =>
  new Map(members.flatMap(({ id, replicas }) => replicas.map((replica) => [replica, id] as const)));
