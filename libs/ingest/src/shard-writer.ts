/**
 * The shards of one split: rows are gathered column by column, and a shard is finished when it has reached the target size. Where a shard ends
 * depends on the rows alone, so the same source gives the same shards; those that the sink has are not sent again.
 */
import { createHash } from 'node:crypto';
import { DATASET_LIMITS, type DatasetShard, type SplitName } from '@paceline/spec';
import { safetensorsHeader } from '@paceline/storage';
import type { ColumnState } from './column.js';
import { columnBuffer, type ColumnBuffer, type ShardTensor } from './column-buffer.js';
import { IngestError } from './ingest-error.js';
import type { NumberSpill } from './number-spill.js';
import type { StoredRows } from './stored-rows.js';

/** Where shards go: a store on this machine, or an upload. `put` may be called again with what is there already. */
export interface ShardSink {
  has(sha256: string): Promise<boolean>;
  put(sha256: string, bytes: Uint8Array): Promise<void>;
}

export interface ShardCounts {
  stored: number;
  /** The sink had them. */
  kept: number;
  bytes: number;
}

const ELEMENT_BYTES = { F32: 4, I32: 4, U8: 1, I64: 8 } as const;

/** Tensors with the largest elements first, so that each begins at a multiple of the size of its elements. */
export function shardBytes(tensors: readonly ShardTensor[]): Uint8Array {
  const ordered = tensors.toSorted((a, b) => ELEMENT_BYTES[b.dtype] - ELEMENT_BYTES[a.dtype]);
  const pieces = [safetensorsHeader(ordered), ...ordered.map(({ bytes }) => bytes)];
  const whole = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

export class ShardWriter {
  readonly shards: DatasetShard[] = [];
  rows = 0;
  private readonly buffers: ColumnBuffer[];
  /** Where all rows take the same. */
  private readonly rowBytes: number | undefined;
  private waitingRows = 0;
  private waitingBytes = 0;
  private sending: Promise<void> | undefined;

  constructor(
    private readonly split: SplitName,
    columns: readonly ColumnState[],
    private readonly sink: ShardSink,
    private readonly spill: NumberSpill,
    private readonly counts: ShardCounts,
    private readonly targetBytes: number = DATASET_LIMITS.shardTargetBytes,
  ) {
    this.buffers = columns.map(columnBuffer);
    const sizes = this.buffers.map(({ rowBytes }) => rowBytes);
    this.rowBytes = sizes.includes(undefined) ? undefined : sizes.reduce<number>((sum, bytes) => sum + bytes!, 0);
  }

  /**
   * Takes rows of a block, and finishes each shard that becomes full.
   * @param wanted their numbers in the block, in the order in which they are to stand
   * @throws IngestError SOURCE_TOO_LARGE
   */
  async add({ columns }: StoredRows, wanted: Int32Array): Promise<void> {
    for (let from = 0; from < wanted.length;) {
      const to = Math.min(wanted.length, from + this.rowsThatFit());
      for (let c = 0; c < this.buffers.length; c++) this.waitingBytes += this.buffers[c]!.add(columns[c]!, wanted, from, to);
      this.waitingRows += to - from;
      from = to;
      if (this.waitingBytes < this.targetBytes) continue;
      await this.flush();
      if (this.shards.length > DATASET_LIMITS.shardsPerSplit)
        throw new IngestError('SOURCE_TOO_LARGE', `More than ${DATASET_LIMITS.shardsPerSplit} shards in the split ${this.split}.`);
    }
  }

  /** Rows until the shard is full, as far as that is known before they are there. */
  private rowsThatFit(): number {
    return this.rowBytes === undefined ? 1 : Math.max(1, Math.ceil((this.targetBytes - this.waitingBytes) / this.rowBytes));
  }

  /** Finishes the shard. One shard is sent while the next is filled, no more. */
  async flush(): Promise<void> {
    if (this.waitingRows === 0) return;
    const tensors = this.buffers.flatMap((buffer) => buffer.take(this.split));
    if (this.split === 'train') await this.spill.add(tensors);
    const bytes = shardBytes(tensors);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    this.shards.push({ sha256, rows: this.waitingRows, bytes: bytes.length });
    this.rows += this.waitingRows;
    this.waitingRows = 0;
    this.waitingBytes = 0;
    await this.sending;
    this.sending = this.send(sha256, bytes);
    this.sending.catch(() => undefined); // whoever waits for it next gets the failure
  }

  private async send(sha256: string, bytes: Uint8Array): Promise<void> {
    if (await this.sink.has(sha256)) this.counts.kept++;
    else {
      await this.sink.put(sha256, bytes);
      this.counts.stored++;
    }
    this.counts.bytes += bytes.length;
  }

  /** The last shard, and all that is under way. */
  async finish(): Promise<void> {
    await this.flush();
    await this.sending;
  }

  /** Nothing is under way any more, whatever became of it. */
  async settle(): Promise<void> {
    await this.sending?.catch(() => undefined); // `finish` has given the failure to whoever waited
  }
}
