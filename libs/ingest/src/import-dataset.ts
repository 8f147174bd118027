/**
 * The import: rows stream from the readers of the formats through the types of their columns into the shards of their splits. Memory is bounded
 * whatever the size of the source: one shard per split that is filled, one per split that is sent, and the first rows, from which the types follow.
 *
 * Deterministic: the same source and options give the same shards, the same manifest and the same version on every machine. So a command that was
 * killed is given again, and the shards that the sink has are not sent a second time. The manifest is returned, not stored: nothing is visible
 * before the caller has committed it.
 */
import { createHash } from 'node:crypto';
import { DATASET_LIMITS, givenManifestSchema, SPLITS, type DatasetManifest, type SplitName } from '@paceline/spec';
import { canonicalJson } from '@paceline/storage';
import { BlockQueue, RowConverter } from './block-queue.js';
import type { Part, RowBatch } from './cell.js';
import type { ColumnState } from './column.js';
import { HeadBuffer, inferColumns } from './head.js';
import { IngestError, shown } from './ingest-error.js';
import { NumberSpill } from './number-spill.js';
import { checkOptions, type CheckedOptions, type ImportOptions } from './options.js';
import { planParts } from './plan.js';
import { SeriesStarts } from './series.js';
import { ShardWriter, type ShardCounts, type ShardSink } from './shard-writer.js';
import { BLOCK_ROWS, BlockSplits } from './splits.js';
import { StagedRows } from './staged-rows.js';
import { rowsFrom, type StoredRows } from './stored-rows.js';

export interface ImportProgress {
  readonly rows: number;
  /** Bytes of the sources as they are stored. */
  readonly bytesRead: number;
  /** Undefined where a source does not say how long it is. */
  readonly bytesTotal: number | undefined;
  readonly shards: number;
  /** How many of them were in the sink already. */
  readonly shardsKept: number;
  readonly shardBytes: number;
}

export interface ImportControl {
  readonly onProgress?: ((progress: ImportProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** A folder that exists, for what does not fit into memory; it is left as it was. */
  readonly workFolder: string;
}

export interface ImportResult {
  readonly manifest: DatasetManifest;
  /** SHA-256 of the canonical JSON of the manifest. */
  readonly version: string;
  /** What the user should know: digits that are lost, for example. */
  readonly warnings: readonly string[];
}

/** SHA-256 of the canonical JSON: what a version of a dataset is called. */
export const datasetVersion = (manifest: DatasetManifest): string => createHash('sha256').update(canonicalJson(manifest)).digest('hex');

/** @throws IngestError with the place in the source, and what to do */
export async function importDataset(options: ImportOptions, sink: ShardSink, control: ImportControl): Promise<ImportResult> {
  const checked = checkOptions(options);
  const run = new ImportRun(checked, sink, control);
  try {
    return await run.result();
  } catch (error) {
    if (control.signal?.aborted) throw new IngestError('ABORTED', 'The import was stopped.', {}, { cause: error });
    throw diskFull(error, control.workFolder) ?? error;
  } finally {
    await run.close();
  }
}

/** The error of a full work folder, whose files the system's message does not name. */
function diskFull(error: unknown, workFolder: string): IngestError | undefined {
  const { code, path: file } = error as NodeJS.ErrnoException;
  if (code !== 'ENOSPC' && code !== 'EDQUOT') return undefined;
  return new IngestError('DISK_FULL', `${code} in ${file ?? workFolder}.`, {}, { cause: error });
}

/** What cannot be found in another file of the same kind. */
function dialectOf({ decimal, delimiter }: CheckedOptions): DatasetManifest['dialect'] {
  return decimal === undefined && delimiter === undefined ? undefined : { decimal, delimiter };
}

const WARNINGS_MAX = 20;

class ImportRun {
  private readonly counts: ShardCounts = { stored: 0, kept: 0, bytes: 0 };
  private readonly traffic = { bytesRead: 0, bytesTotal: 0 as number | undefined };
  private readonly writers = new Map<SplitName, ShardWriter>();
  private readonly queues = new Map<SplitName | 'any', BlockQueue>();
  private readonly closing: (() => Promise<void>)[] = [];
  private columns: ColumnState[] = [];
  private converter!: RowConverter;
  private spill!: NumberSpill;
  private staged: StagedRows | undefined;
  private readonly series = new SeriesStarts();
  private rows = 0;
  private readonly told: string[] = [];
  private known: Pick<Part, 'label' | 'types'> = {};

  constructor(
    private readonly options: CheckedOptions,
    private readonly sink: ShardSink,
    private readonly control: ImportControl,
  ) {}

  async result(): Promise<ImportResult> {
    const { options, control } = this;
    const parts = await planParts(options, {
      signal: control.signal,
      workFolder: control.workFolder,
      traffic: this.traffic,
      atClose: (close) => void this.closing.push(close),
    });
    if (options.split)
      for (const { split } of parts)
        if (split !== undefined && split !== 'train' && (options.split[split] ?? 0) > 0)
          throw new IngestError('OPTIONS_INVALID', `The source has a ${split} split of its own; take ${split} out of the fractions.`);
    this.known = {
      label: options.label ?? parts.find(({ label }) => label !== undefined)?.label,
      types: parts[0]!.types,
    };
    const head = new HeadBuffer();
    for (const part of parts) await this.readPart(part, head);
    if (!this.isStarted) await this.start(head, parts[0]!.split);
    await this.finishSplits();
    return await this.describe();
  }

  private get isStarted(): boolean {
    return this.columns.length > 0;
  }

  private async readPart(part: Part, head: HeadBuffer): Promise<void> {
    let left = this.options.maxRows;
    if (!this.options.oneSeries) this.series.begin();
    for await (const batch of part.read()) {
      this.control.signal?.throwIfAborted();
      const taken: RowBatch =
        batch.rows.length <= left
          ? batch
          : { names: batch.names, rows: batch.rows.slice(0, left), file: batch.file, firstRow: batch.firstRow };
      left -= taken.rows.length;
      if (this.isStarted) await this.take(taken, part.split);
      else {
        head.add(taken);
        if (head.isFull) await this.start(head, part.split);
      }
      if (left <= 0) break;
    }
    // The types follow from the first part that has rows: the others are checked against it.
    if (!this.isStarted && head.rows > 0) await this.start(head, part.split);
  }

  /** Types are known from here on; the first rows are converted like all others. */
  private async start(head: HeadBuffer, split: SplitName | undefined): Promise<void> {
    if (head.rows === 0) throw new IngestError('NO_ROWS', 'There is no row.');
    const { columns, ignored, warnings } = inferColumns(head, this.options, this.known);
    this.told.push(...warnings.slice(0, WARNINGS_MAX));
    this.columns = columns;
    this.converter = new RowConverter(columns, ignored, this.options.missing);
    this.spill = new NumberSpill(columns, this.control.workFolder);
    this.closing.push(() => this.spill.close());
    for (const batch of head.take()) await this.take(batch, split);
  }

  private async take(batch: RowBatch, split: SplitName | undefined): Promise<void> {
    const { options } = this;
    const rows = this.converter.convert(batch);
    this.rows += batch.rows.length;
    this.series.add(split ?? 'train', rows.count);
    const isDivided = options.split !== undefined && (split === undefined || split === 'train');
    if (!isDivided) await this.write(split ?? 'train', rows, rowsFrom(0, rows.count));
    else if (options.inOrder) {
      this.staged ??= this.openStaged();
      await this.staged.add(rows);
    } else {
      const key = split ?? 'any';
      const queue = this.queues.get(key) ?? new BlockQueue(new BlockSplits(options.split!, options.seed));
      this.queues.set(key, queue);
      const { rows: blocks, whole } = queue.push(rows);
      await this.divide(blocks, whole, queue.splits);
    }
    this.tellProgress();
  }

  private openStaged(): StagedRows {
    const staged = new StagedRows(this.control.workFolder);
    this.closing.push(() => staged.close());
    return staged;
  }

  /** @param count rows from the first that are divided: blocks, of which the very last may be smaller */
  private async divide(rows: StoredRows, count: number, blocks: BlockSplits): Promise<void> {
    const wanted = new Map(SPLITS.map((name) => [name, { rows: new Int32Array(count), count: 0 }]));
    for (let from = 0; from < count; from += BLOCK_ROWS) {
      const splits = blocks.next(Math.min(BLOCK_ROWS, count - from));
      for (let i = 0; i < splits.length; i++) {
        const list = wanted.get(splits[i]!)!;
        list.rows[list.count++] = from + i;
      }
    }
    for (const [name, list] of wanted) if (list.count > 0) await this.write(name, rows, list.rows.subarray(0, list.count));
  }

  private async write(split: SplitName, rows: StoredRows, wanted: Int32Array): Promise<void> {
    if (wanted.length === 0) return;
    let writer = this.writers.get(split);
    if (!writer) this.writers.set(split, (writer = new ShardWriter(split, this.columns, this.sink, this.spill, this.counts)));
    await writer.add(rows, wanted);
  }

  private async finishSplits(): Promise<void> {
    for (const queue of this.queues.values()) {
      const rows = queue.take();
      if (rows) await this.divide(rows, rows.count, queue.splits);
    }
    if (this.staged) {
      this.series.divide(this.staged.counts(this.options.split!));
      for await (const { split, rows, wanted } of this.staged.divided(this.options.split!)) await this.write(split, rows, wanted);
    }
    for (const writer of this.writers.values()) await writer.finish();
    this.tellProgress();
  }

  private async describe(): Promise<ImportResult> {
    if ((this.writers.get('train')?.rows ?? 0) === 0)
      throw new IngestError(
        'NO_ROWS',
        this.converter.dropped > 0
          ? `All ${this.converter.dropped} rows have missing values and were left out.`
          : 'The training split is empty.',
      );
    const histograms = await this.spill.histograms();
    const { isOrdered, hasWindows } = this;
    const splitOf = (split: SplitName): DatasetManifest['splits']['train'] | undefined => {
      const writer = this.writers.get(split);
      const starts = isOrdered && hasWindows ? this.series.startsOf(split) : undefined;
      return writer && { rows: writer.rows, shards: writer.shards, starts };
    };
    const manifest = givenManifestSchema.parse({
      format: 'paceline.dataset',
      version: 1,
      columns: this.columns.map((column) => column.describe(histograms.get(column.name))),
      label: this.columns.some(({ name }) => name === this.known.label) ? this.known.label : undefined,
      splits: { train: splitOf('train'), validation: splitOf('validation'), test: splitOf('test') },
      dropped: { missing: this.converter.dropped },
      isOrdered,
      dialect: dialectOf(this.options),
    });
    const defined = JSON.parse(canonicalJson(manifest)) as DatasetManifest;
    if (Buffer.byteLength(JSON.stringify(defined)) > DATASET_LIMITS.manifestBytes)
      throw new IngestError('VOCABULARY_TOO_LARGE', 'The manifest would be too large.');
    return { manifest: defined, version: datasetVersion(defined), warnings: this.warnings() };
  }

  private get isOrdered(): boolean {
    return this.keepsOrder && !(this.hasWindows && this.series.isOverfull);
  }

  private get keepsOrder(): boolean {
    const { split, inOrder } = this.options;
    // Rows on both sides of one that was left out are no neighbours.
    return (split === undefined || inOrder) && this.converter.dropped === 0;
  }

  /** Windows are cut from numbers. Of other columns the series are of no use, and would only change the version. */
  private get hasWindows(): boolean {
    return this.columns.some(({ form }) => form.kind === 'number');
  }

  private warnings(): string[] {
    const warnings = [...this.told];
    if (this.keepsOrder && this.hasWindows && this.series.isOverfull)
      warnings.push(
        `There are more than ${DATASET_LIMITS.seriesPerSplit} files, so where each begins is not kept and no windows can be cut: put the rows into fewer files.`,
      );
    for (const { name, inexact, isScalar } of this.columns)
      if (inexact !== undefined && warnings.length < WARNINGS_MAX)
        warnings.push(
          `Column ${JSON.stringify(name)} has whole numbers beyond 2^24 that float32 does not hold, such as ${inexact}: ${isScalar ? 'import it as a category or leave it out' : 'leave it out'} if the digits matter.`,
        );
    for (const split of SPLITS)
      if ((this.options.split?.[split] ?? 0) > 0 && (this.writers.get(split)?.rows ?? 0) === 0)
        warnings.push(`The split ${split} has no row: its share of ${this.rows} rows is less than one. Give it a larger share.`);
    const label = this.columns.find(({ isLabel, form }) => isLabel && form.kind === 'category');
    for (const { word, place } of label?.untrained() ?? []) {
      if (warnings.length >= WARNINGS_MAX) break;
      const where = place === undefined ? '' : `, first in ${place.file} row ${place.row}`;
      warnings.push(
        `The class ${shown(word)} of column ${shown(label!.name)} stands in no row of the training split${where}: nothing can learn it. Is the word right?`,
      );
    }
    if (this.converter.dropped > 0) warnings.push(`${this.converter.dropped} of ${this.rows} rows have missing values and were left out.`);
    return warnings;
  }

  private tellProgress(): void {
    const { stored, kept, bytes } = this.counts;
    this.control.onProgress?.({
      rows: this.rows,
      bytesRead: this.traffic.bytesRead,
      bytesTotal: this.traffic.bytesTotal,
      shards: stored + kept,
      shardsKept: kept,
      shardBytes: bytes,
    });
  }

  async close(): Promise<void> {
    for (const writer of this.writers.values()) await writer.settle();
    for (const close of this.closing.toReversed()) await close();
  }
}
