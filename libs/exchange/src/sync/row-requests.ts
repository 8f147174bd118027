/**
 * Rows that workers ask a shard for, in mode sync. A request names a generation: that of the present round is answered at once, the next one when the
 * group is applied, so a worker may ask for the rows of its next batch while the present one is computed.
 *
 *   request of generation k, or of k+1 and the group is applied ──> values
 *           of a later one ──> waits: publish, COMMIT             of an earlier one ──> dropped: nobody computes from it any more
 */
import { checkAttempt, Codec, FrameType, MAX_ROW_BYTES, ProtocolError, type FrameHeader } from '@paceline/protocol';
import { bytesOf } from '../attempt/regions.js';
import type { FrameNumbers } from '../connection.js';
import type { ShardLink } from '../transfer/shard-transfer.js';
import { decodeIds } from '../transfer/rows.js';
import type { ShardTables, TableGroup } from './shard-table.js';

/** Of one connection, for each group: those of a step, of the next one and of an evaluation, of two generations. */
const MOST_WAITING = 16;

interface Request {
  readonly n: number;
  readonly generation: number;
  readonly group: TableGroup;
  readonly ids: Uint32Array;
}

interface LinkRequests {
  readonly waiting: Set<Request>;
  payload: Uint8Array | undefined;
}

/** What the requests need of the shard, as it is now. */
interface Surroundings {
  numbers(): FrameNumbers;
  round(): number;
  isApplied(group: number): boolean;
}

export class RowRequests {
  private readonly links = new Map<ShardLink, LinkRequests>();

  constructor(
    private readonly tables: ShardTables,
    private readonly shard: Surroundings,
  ) {}

  /** Where a request goes. @throws ProtocolError for what no worker asks */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    checkAttempt(header, this.shard.numbers().attempt);
    if (!link.streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
    if (header.codec !== Codec.rows) throw new ProtocolError('BAD_CODEC', `codec ${header.codec} of a request for rows`);
    const group = this.groupOf(header);
    if (header.length > 4 + 4 * group.rows.count)
      throw new ProtocolError('WRONG_LENGTH', `${header.length} bytes for ${group.rows.count} rows`);
    const own = this.links.get(link) ?? { waiting: new Set(), payload: undefined };
    this.links.set(link, own);
    return (own.payload = new Uint8Array(header.length));
  }

  /** @throws ProtocolError */
  data(link: ShardLink, header: FrameHeader): void {
    const own = this.links.get(link)!;
    const group = this.groupOf(header);
    const { ids, end } = decodeIds(own.payload!, group.rows.count);
    if (end !== header.length) throw new ProtocolError('BAD_PAYLOAD', 'bytes behind the last row');
    own.payload = undefined;
    const answer = bytesOf(ids.length * group.rows.width);
    if (answer > MAX_ROW_BYTES)
      throw new ProtocolError('WRONG_LENGTH', `${ids.length} rows take ${answer} bytes, and a frame holds ${MAX_ROW_BYTES}`);
    const request = { n: header.view, generation: header.round, group, ids };
    if (this.answers(link, request)) return;
    if (own.waiting.size >= MOST_WAITING * this.tables.groups.length)
      throw new ProtocolError('BAD_ROUND', 'more requests for rows ahead of the round than one round has');
    own.waiting.add(request);
  }

  /** A group is applied, or the round is committed. */
  look(): void {
    for (const [link, { waiting }] of this.links) for (const request of waiting) if (this.answers(link, request)) waiting.delete(request);
  }

  forget(link: ShardLink): void {
    this.links.delete(link);
  }

  private groupOf({ chunk }: FrameHeader): TableGroup {
    const group = this.tables.groups.find(({ index }) => index === chunk);
    if (!group) throw new ProtocolError('UNKNOWN_CHUNK', `rows of chunk ${chunk}`);
    return group;
  }

  private answers({ connection }: ShardLink, { n, generation, group, ids }: Request): boolean {
    const round = this.shard.round();
    if (generation > round + 1 || (generation === round + 1 && !this.shard.isApplied(group.index))) return false;
    if (generation < round) return true;
    const values = this.tables.read(group, ids, generation > round);
    const { attempt, term } = this.shard.numbers();
    const header = { type: FrameType.parameters, codec: Codec.rows, attempt, term, view: n, round: generation, nodeLo: 0, nodeHi: 0 };
    connection.sendData({ ...header, chunk: group.index }, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return true;
  }
}
