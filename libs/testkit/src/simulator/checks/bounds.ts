/** I10 while a run goes on, after every event: what a server keeps has stated bounds. */
import type { ShardLink } from '@paceline/exchange';
import type { TinyRun } from '../run/tiny-run.js';
import type { Network } from '../world/network.js';
import type { SimProcess } from '../world/process.js';
import type { Checks } from './checks.js';

const ALIGNMENT_BYTES = 64;

/** What so many float32 take in an arena. */
export const blockBytes = (length: number): number => Math.ceil((4 * length) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;

/** Control messages that a slow peer leaves in its queue. */
const QUEUE_SLACK_BYTES = 1 << 20;
/** Events of one attempt, beside what each round writes. */
const JOURNAL_SLACK_ENTRIES = 500;

interface OpenShard {
  readonly links: ReadonlyMap<
    ShardLink,
    { readonly held: ReadonlyMap<string, unknown>; readonly outlet: { readonly leavingBytes: number } }
  >;
  readonly options: { readonly parameterWindowBytes?: number; readonly gradientWindowChunks?: number };
  readonly present: { readonly base: number; readonly chunks: readonly { readonly tree: { missingLeaves(): readonly number[] } }[] };
}

/** A part of an attempt that a server holds. */
interface BoundedPart {
  readonly name: string;
  readonly isStandby: boolean;
  readonly server: { readonly process: SimProcess };
  readonly shard: object;
  readonly memory: { readonly chunks: readonly unknown[]; readonly arena: { readonly bytesInUse: number } };
  readonly coordinator: { readonly round: number } | undefined;
  readonly journal: { readonly pending: number } | undefined;
  readonly restore: { readonly round: number } | undefined;
}

interface BoundedRun {
  readonly checks: Checks;
  readonly run: TinyRun;
  readonly network: Pick<Network, 'streams'>;
}

export function checkBounds(part: BoundedPart, { checks, run, network }: BoundedRun): void {
  const { server, shard, journal, memory, coordinator, restore } = part;
  const slots = run.optimizer.slots.length;
  const { replicas } = run.shape;
  const owned = memory.chunks.length;
  const bytes = memory.arena.bytesInUse;
  // The block of the longest chunk: most chunks have 64 bytes.
  const block = blockBytes(Math.max(...run.layout.chunks.map(({ length }) => length)));
  // Two generations, and the best; slots, gradients; one generation and copies of slots while a checkpoint is written; what a standby has not taken yet.
  const best = run.shape.validation?.restoreBest ? 1 : 0;
  const base = owned * (2 + best + slots + replicas + (1 + slots) + (part.isStandby ? 0 : 2 * run.shape.standby));
  if (bytes > base * block) {
    let links = 0;
    for (const stream of network.streams) if (stream.process === server.process) links++;
    const bound = (base + links * (owned * 2 * replicas + 1 + owned * 2)) * block;
    checks.expect(bytes <= bound, 'I10', () => `${part.name} holds ${bytes} bytes, its bound is ${bound}`);
  }
  const { links, options, present } = shard as unknown as OpenShard;
  const end = present.base + (options.gradientWindowChunks ?? Infinity);
  for (const { tree } of present.chunks.slice(end))
    checks.expect(
      tree.missingLeaves().length === replicas,
      'I10',
      () => `${part.name} has gradients beyond place ${end}, where its window ends`,
    );
  for (const [{ id, connection }, { held, outlet }] of links) {
    // A tree over R replicas has less than 2·R nodes, and one frame is under way.
    const most = owned * 2 * replicas + 1;
    checks.expect(held.size <= most, 'I10', () => `${part.name} holds ${held.size} frames of ${id} ahead, its bound is ${most}`);
    const window = Math.max(options.parameterWindowBytes ?? Infinity, block);
    checks.expect(
      outlet.leavingBytes <= window,
      'I10',
      () => `${part.name} queues ${outlet.leavingBytes} bytes of chunks for ${id}, its window is ${window}`,
    );
    const queue = 4 * owned * block + QUEUE_SLACK_BYTES;
    const { queuedBytes } = connection;
    checks.expect(queuedBytes <= queue, 'I10', () => `${part.name} queues ${queuedBytes} bytes for ${id}, its bound is ${queue}`);
  }
  if (!journal || !coordinator) return;
  const most = 2 * (coordinator.round - (restore?.round ?? 0)) + JOURNAL_SLACK_ENTRIES;
  checks.expect(journal.pending <= most, 'I10', () => `the journal has ${journal.pending} entries, its bound is ${most}`);
}
