/**
 * Rows that a worker asks servers for. A request is kept until its values are here: it is sent again over a new connection, and where nothing moves. One of
 * a generation that is committed away is let go.
 */
import { Codec, FrameType, ProtocolError, type FrameHeader } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { bytesOf } from '../attempt/regions.js';
import { encodeIds, type Rows } from './rows.js';

/** The rows of a table at one server. */
export interface MemberGroup {
  /** The chunk of its frames. */
  readonly index: number;
  readonly server: number;
  readonly rows: number;
  /** Elements of a row. */
  readonly width: number;
}

interface Pull {
  readonly generation: number;
  readonly group: MemberGroup;
  readonly ids: Uint32Array;
}

export class RowPulls {
  private readonly pulls = new Map<number, Pull>();
  /** What comes in, by server. */
  private readonly payloads: (Uint8Array | undefined)[] = [];
  private last = 0;

  constructor(
    private readonly groups: readonly MemberGroup[],
    private readonly connectionTo: (server: number) => Connection | undefined,
    private readonly numbers: () => FrameNumbers,
    private readonly deliver: (generation: number, group: number, rows: Rows) => void,
  ) {}

  ask(generation: number, index: number, ids: Uint32Array): void {
    const group = this.groupOf(index);
    this.last = (this.last + 1) >>> 0;
    this.pulls.set(this.last, { generation, group, ids });
    this.send(this.last);
  }

  /** Those that wait, of one server or of all. */
  sendAgain(server?: number): void {
    for (const [n, { group }] of this.pulls) if (server === undefined || group.server === server) this.send(n);
  }

  /** Nobody computes from older generations any more. */
  moveTo(round: number): void {
    for (const [n, { generation }] of this.pulls) if (generation < round) this.pulls.delete(n);
  }

  groupOf(index: number): MemberGroup {
    const group = this.groups.find((each) => each.index === index);
    if (!group) throw new ProtocolError('UNKNOWN_CHUNK', `rows of chunk ${index}`);
    return group;
  }

  /** Where values go. @throws ProtocolError WRONG_LENGTH */
  payloadFor(header: FrameHeader): Uint8Array {
    const group = this.groupOf(header.chunk);
    const pull = this.pulls.get(header.view);
    if (pull && header.length !== pull.ids.length * bytesOf(group.width))
      throw new ProtocolError('WRONG_LENGTH', `${header.length} bytes for ${pull.ids.length} rows`);
    return (this.payloads[group.server] = new Uint8Array(header.length));
  }

  /** @returns bytes by which they are fewer than those of the whole group; undefined for what nobody waits for */
  data(header: FrameHeader): number | undefined {
    const { server, rows, width } = this.groupOf(header.chunk);
    const payload = this.payloads[server]!;
    this.payloads[server] = undefined;
    const pull = this.pulls.get(header.view);
    if (!pull || !this.pulls.delete(header.view)) return undefined;
    this.deliver(pull.generation, pull.group.index, { ids: pull.ids, values: new Float32Array(payload.buffer) });
    return bytesOf(rows * width) - header.length;
  }

  private send(n: number): void {
    const { generation, group, ids } = this.pulls.get(n)!;
    const { attempt, term } = this.numbers();
    const header = { type: FrameType.rows, codec: Codec.rows, attempt, term, view: n, round: generation, nodeLo: 0, nodeHi: 0 };
    this.connectionTo(group.server)?.sendData({ ...header, chunk: group.index }, encodeIds(ids));
  }
}
