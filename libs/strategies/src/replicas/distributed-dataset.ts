/** Datasets whose batches come in parts, one for each replica of this process. */
import { replicaRows } from '@paceline/learning';
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError } from '../errors.js';
import type { Share } from './combine.js';
import { CommonTurns } from './common-turns.js';
import { mapLeaves, PerReplica } from './per-replica.js';

/** Replicas [from, to) of all are those of this process. */
export interface LocalReplicas {
  readonly replicas: number;
  readonly from: number;
  readonly to: number;
  /** Which process this is, and how many there are. */
  readonly process: number;
  readonly processes: number;
}

interface Iterator<T> {
  /** Where there is one: nobody asks for more. Generators end in it, and close their files. */
  return?(): unknown;
  next(): Promise<{ readonly value: T; readonly done?: boolean | undefined }> | { readonly value: T; readonly done?: boolean | undefined };
}

/** A dataset of tf.data, or what can be iterated. It gives batches: structures of tensors. */
export type BatchSource = { iterator(): Promise<Iterator<unknown>> } | AsyncIterable<unknown> | Iterable<unknown>;

/** What the function of `distributeDatasetsFromFunction` learns: tf.distribute.InputContext. */
export interface InputContext {
  /** Processes, each of which calls the function once. */
  readonly numInputPipelines: number;
  readonly inputPipelineId: number;
  readonly numReplicasInSync: number;
  /** @throws ArgumentError for a batch that cannot be shared out evenly */
  getPerReplicaBatchSize(globalBatchSize: number): number;
}

async function iteratorOf(source: BatchSource): Promise<Iterator<unknown>> {
  const {
    iterator,
    [Symbol.asyncIterator]: later,
    [Symbol.iterator]: now,
  } = (source ?? {}) as unknown as Record<string | symbol, (() => unknown) | undefined>;
  const begin = iterator ?? later ?? now;
  if (typeof begin !== 'function') throw new ArgumentError('a dataset is one of tf.data, or gives batches when it is iterated');
  return (await begin.call(source)) as Iterator<unknown>;
}

/** The source is closed when nobody asks for more: after a `break`, or where what it gave was refused. */
async function* closing(
  source: BatchSource,
  use: (batches: Iterator<unknown>) => AsyncGenerator<unknown, void>,
): AsyncGenerator<unknown, void> {
  const batches = await iteratorOf(source);
  let isOver = false;
  const watched: Iterator<unknown> = {
    next: async () => {
      const wasOver = isOver;
      isOver = true; // also where it throws: what has failed is closed by itself
      const result = await batches.next();
      isOver = wasOver || result.done === true;
      return result;
    },
  };
  try {
    yield* use(watched);
  } finally {
    if (!isOver) await batches.return?.();
  }
}

/** The parts of the replicas are new tensors. @throws ArgumentError */
function split(batch: unknown, { replicas, from, to }: LocalReplicas): unknown {
  let count: number | undefined;
  return mapLeaves(batch, (leaf, path) => {
    if (!(leaf instanceof tfc.Tensor) || leaf.rank === 0)
      throw new ArgumentError(`batch${path}: a batch is made of tensors with a row for each example`);
    count ??= leaf.shape[0]!;
    if (leaf.shape[0] !== count) throw new ArgumentError(`batch${path}: has ${leaf.shape[0]} rows, and others of the batch ${count}`);
    const parts = Array.from({ length: to - from }, (_, i) => replicaRows(count!, replicas, from + i));
    return new PerReplica(parts.map(({ from: first, to: end }) => tfc.slice(leaf, first, end - first)));
  });
}

function forEachTensor(value: unknown, act: (tensor: tfc.Tensor) => void): void {
  mapLeaves(value, (leaf) => {
    for (const each of leaf instanceof PerReplica ? leaf.values : [leaf]) if (each instanceof tfc.Tensor) act(each);
    return undefined;
  });
}

const dispose = (value: unknown): void => forEachTensor(value, (tensor) => tensor.dispose());

/** Gives batches by `for await`. The tensors of a batch are disposed when the next one is asked for. */
export class DistributedDataset implements AsyncIterable<unknown> {
  constructor(private readonly steps: () => AsyncGenerator<unknown, void>) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<unknown, void> {
    for await (const batch of this.steps())
      try {
        yield batch;
      } finally {
        dispose(batch);
      }
  }
}

export const distributed = (source: BatchSource, local: LocalReplicas): DistributedDataset =>
  new DistributedDataset(() =>
    closing(source, async function* (batches) {
      for (;;) {
        const { value, done } = await batches.next();
        if (value !== null && value !== undefined) {
          const parts = split(value, local);
          dispose(value);
          yield parts;
        }
        if (done) return;
      }
    }),
  );

/**
 * Every replica takes a batch of its own. Where the last ones are fewer than replicas, the others get a batch without rows.
 * @param share with other processes: all of them go on as long as one has a batch
 */
export function distributedFromFunction(
  make: (context: InputContext) => BatchSource | Promise<BatchSource>,
  local: LocalReplicas,
  share?: Share,
): DistributedDataset {
  const context: InputContext = {
    numInputPipelines: local.processes,
    inputPipelineId: local.process,
    numReplicasInSync: local.replicas,
    getPerReplicaBatchSize(globalBatchSize) {
      if (globalBatchSize % local.replicas === 0) return globalBatchSize / local.replicas;
      throw new ArgumentError(`a batch of ${globalBatchSize} examples cannot be shared out evenly to ${local.replicas} replicas`);
    },
  };
  let passes = 0;
  const parts = async function* (batches: Iterator<unknown>): AsyncGenerator<unknown, void> {
    const turns = share && new CommonTurns(share, ++passes);
    let isOver = false;
    for (;;) {
      const own: unknown[] = [];
      while (!isOver && own.length < local.to - local.from) {
        const { value, done } = await batches.next();
        if (value !== null && value !== undefined) own.push(value);
        isOver = done === true;
      }
      const [first] = own;
      if (!(turns ? turns.goOn(first) : own.length > 0)) return;
      while (own.length < local.to - local.from)
        own.push(turns ? turns.empty() : mapLeaves(first, (leaf) => tfc.slice(leaf as tfc.Tensor, 0, 0)));
      yield together(own);
    }
  };
  return new DistributedDataset(async function* () {
    yield* closing(await make(context), parts);
  });
}

/** The batches of the replicas as one structure. @throws ArgumentError where their structures differ */
function together(batches: readonly unknown[]): unknown {
  const leaves = batches.map((batch) => {
    const found = new Map<string, unknown>();
    mapLeaves(batch, (leaf, path) => found.set(path, leaf));
    return found;
  });
  return mapLeaves(batches[0], (_, path) => {
    const values = leaves.map((found) => found.get(path));
    if (!values.every((value) => value instanceof tfc.Tensor)) throw new ArgumentError(`batch${path}: batches have different structures`);
    return new PerReplica(values);
  });
}
