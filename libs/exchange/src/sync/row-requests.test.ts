import { Codec, FrameType, type FrameHeader } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { ShardLink } from '../transfer/shard-transfer.js';
import { encodeIds } from '../transfer/rows.js';
import { RowRequests } from './row-requests.js';
import type { ShardTables, TableGroup } from './shard-table.js';

test('a request for more rows than a frame holds is the mistake of who asks: nothing is read for it', () => {
  const ROWS = 2 ** 20;
  const group = { index: 7, rows: { count: ROWS, width: 64 } } as TableGroup;
  const reads: number[] = [];
  const tables = { groups: [group], read: (_: TableGroup, ids: Uint32Array) => (reads.push(ids.length), new Float32Array(0)) };
  const requests = new RowRequests(tables as unknown as ShardTables, {
    numbers: () => ({ attempt: 1, term: 1, view: 1, round: 0 }),
    round: () => 0,
    isApplied: () => false,
  });
  const link = { streams: true, connection: { sendData: () => true } } as unknown as ShardLink;
  const ask = (count: number): void => {
    const bytes = encodeIds(Uint32Array.from({ length: count }, (_, i) => i));
    const header = { type: FrameType.gradient, codec: Codec.rows, attempt: 1, round: 0, view: 1, chunk: 7, length: bytes.length };
    requests.payloadFor(link, header as FrameHeader).set(bytes);
    requests.data(link, header as FrameHeader);
  };
  ask(2 ** 18);
  expect(reads).toEqual([2 ** 18]);
  expect(() => ask(2 ** 18 + 1)).toThrow(expect.objectContaining({ code: 'WRONG_LENGTH' }) as Error);
  expect(reads).toHaveLength(1);
});
