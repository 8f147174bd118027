/**
 * What a codec keeps of replicas, as a shard sees it: it pulls its chunks of them for the checkpoint that it writes, and answers the workers that go on from
 * one. Nothing of it stays in memory.
 *
 *   COMMIT(k) with `checkpoint` ──> ResidualGathering: the writer reads chunk by chunk, a few are pulled ahead ──> what nobody has is undefined
 *   pull of a worker in the first round of the attempt ──> read from the checkpoint, one at a time for each connection ──> sent
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

type Pull = MessageOf<'residual-pull'>;

/** Chunks that are under way to the writer of a checkpoint. */
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
}

interface Pulled {
  readonly link: ShardLink;
  readonly name: ResidualName;
  readonly resolve: (bytes: Uint8Array | undefined) => void;
  payload: Uint8Array | undefined;
}

/** Pulls a few pieces ahead of the one that is read. */
export class ResidualGathering implements GatheredResiduals {
  /** By the number of the piece. */
  private readonly pieces = new Map<number, Promise<Uint8Array | undefined>>();
  private readonly underWay = new Map<string, Pulled>();
  readonly names: readonly ResidualName[];

  constructor(
    readonly round: number,
    replicas: number,
    private readonly residuals: ResidualLayout,
    chunks: readonly number[],
    private readonly holders: Map<number, ShardLink>,
    private readonly numbers: () => FrameNumbers,
  ) {
    this.names = Array.from({ length: replicas }, (_, replica) =>
      residuals.kept(chunks).map((chunk) => ({ round, replica, chunk })),
    ).flat();
  }

  lengthOf({ chunk }: ResidualName): number {
    return this.residuals.lengthOf(chunk);
  }

  async read(piece: number): Promise<Uint8Array | undefined> {
    for (let next = piece; next < Math.min(piece + PULLED_AHEAD, this.names.length); next++)
      if (!this.pieces.has(next)) this.pieces.set(next, this.pull(this.names[next]!));
    const bytes = await this.pieces.get(piece)!;
    this.pieces.delete(piece);
    return bytes;
  }

  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    const pulled = this.pulled(link, header);
    return pulled ? (pulled.payload = new Uint8Array(header.length)) : scratchOf(header.length);
  }

  data(link: ShardLink, header: FrameHeader): void {
    const pulled = this.pulled(link, header);
    if (!pulled) return;
    this.underWay.delete(keyOf(pulled.name));
    pulled.resolve(header.length > 0 ? pulled.payload : undefined);
  }

  /** A connection is gone, with what was to come over it. */
  forget(link: ShardLink): void {
    for (const [replica, holder] of this.holders) if (holder === link) this.holders.delete(replica);
    for (const [key, pulled] of this.underWay) {
      if (pulled.link !== link) continue;
      this.underWay.delete(key);
      pulled.resolve(undefined);
    }
  }

  abandon(): void {
    for (const link of new Set(this.holders.values())) this.forget(link);
  }

  private pull(name: ResidualName): Promise<Uint8Array | undefined> {
    const link = this.holders.get(name.replica);
    if (!link) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      this.underWay.set(keyOf(name), { link, name, resolve, payload: undefined });
      link.connection.sendMessage({ type: 'residual-pull', ...name }, this.numbers());
    });
  }

  private pulled(link: ShardLink, { round, nodeLo, chunk }: FrameHeader): Pulled | undefined {
    const pulled = round === this.round ? this.underWay.get(keyOf({ round, replica: nodeLo, chunk })) : undefined;
    return pulled?.link === link ? pulled : undefined;
  }
}

const keyOf = ({ replica, chunk }: ResidualName): string => `${replica}/${chunk}`;

export class ShardResiduals {
  private gathering: ResidualGathering | undefined;
  /** Pulls that wait, by connection. */
  private readonly lines = new Map<ShardLink, Pull[]>();

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
  gather(round: number, members: Members, links: Iterable<ShardLink>): ResidualGathering {
    this.gathering?.abandon();
    const byId = new Map([...links].filter(({ streams }) => streams).map((link) => [link.id, link]));
    const holders = new Map<number, ShardLink>();
    for (const { id, replicas } of members) for (const replica of replicas) if (byId.has(id)) holders.set(replica, byId.get(id)!);
    const { replicas, layout, chunks } = this.options;
    this.gathering = new ResidualGathering(round, replicas, layout, chunks, holders, () => this.shard.numbers());
    return this.gathering;
  }

  /** @throws ProtocolError for what no member sends */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    this.check(link, header);
    return this.gathering?.payloadFor(link, header) ?? scratchOf(header.length);
  }

  data(link: ShardLink, header: FrameHeader): void {
    this.gathering?.data(link, header);
  }

  /** @throws ProtocolError for what no member asks */
  pulled(link: ShardLink, pull: Pull): void {
    const { layout, chunks, replicas } = this.options;
    if (pull.replica >= replicas || !layout.kept(chunks).includes(pull.chunk))
      throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${pull.chunk} of what is kept of replica ${pull.replica}`);
    const line = this.lines.get(link);
    if (line && line.length > 2 * chunks.length)
      throw new ProtocolError('BAD_ROUND', 'more pulls of what is kept than a replica has chunks');
    if (line) return void line.push(pull);
    this.lines.set(link, [pull]);
    void this.answer(link, this.lines.get(link)!);
  }

  forget(link: ShardLink): void {
    this.lines.delete(link);
    this.gathering?.forget(link);
  }

  end(): void {
    this.lines.clear();
    this.gathering?.abandon();
  }

  private check(link: ShardLink, header: FrameHeader): void {
    if (header.type !== FrameType.residual)
      throw new ProtocolError('BAD_FRAME', `a frame of type ${header.type} where residuals are taken`);
    checkAttempt(header, this.shard.numbers().attempt);
    if (!link.streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
    this.options.layout.check(header);
  }

  /** One at a time: the next one is read when the one before has left. */
  private async answer(link: ShardLink, line: Pull[]): Promise<void> {
    for (let pull = line.shift(); pull && this.shard.isOpen(link); pull = line.shift()) {
      const { round, replica, chunk } = pull;
      const stored = this.options.stored();
      const isWanted = stored?.round === round && this.shard.round() === round + 1;
      const bytes = isWanted ? await stored.read(replica, chunk) : undefined;
      if (!this.shard.isOpen(link)) return;
      await new Promise<void>((flushed) => sendResidual(link.connection, this.shard.numbers(), { round, replica, chunk }, bytes, flushed));
    }
    if (this.lines.get(link) === line) this.lines.delete(link);
  }
}
