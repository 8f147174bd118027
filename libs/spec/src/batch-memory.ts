/** The largest batch of one replica: a worker holds at least two of them, and others share the machine. */
import { fieldLength, type RowFormat } from './datasets/row-format.js';
import type { RunSpec } from './run-spec.js';

export const BATCH_BYTES_MAX = 512 << 20;
const FLOAT_BYTES = 4;

/** Bytes of one example. */
export const exampleBytes = ({ inputs, targets, isWeighted }: RowFormat): number =>
  FLOAT_BYTES * ([...inputs, ...targets].reduce((sum, field) => sum + fieldLength(field), 0) + (isWeighted ? 1 : 0));

/** Why the batch of a replica does not fit into a worker; undefined when it does. */
export function batchTooLarge({ globalBatch, replicas }: Pick<RunSpec, 'globalBatch' | 'replicas'>, format: RowFormat): string | undefined {
  const perReplica = Math.ceil(globalBatch / replicas);
  const each = exampleBytes(format);
  if (perReplica * each <= BATCH_BYTES_MAX) return undefined;
  const most = Math.floor(BATCH_BYTES_MAX / each);
  const advice =
    most < 1 ? 'make the examples smaller' : `make it at most ${most * replicas}, use more replicas, or make the examples smaller`;
  return (
    `gives each replica ${perReplica} examples of ${(each / 2 ** 20).toFixed(2)} MiB; a worker takes ${BATCH_BYTES_MAX >> 20} MiB for the batch of a ` +
    `replica: ${advice}`
  );
}
